"""Standard output that takes nothing: a full disk, a closed file. One line, exit code 1, no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.settings import Settings
from tests.acceptance.both_ways import environment_of
from tests.acceptance.programs import COMMAND, environment
from tests.support.both_ways import BOTH
from tests.thin import one

FULL = Path("/dev/full")


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix)


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    return environment(settings.redis_url, settings.prefix)


@pytest.fixture(params=one(BOTH))
def either_env(request: pytest.FixtureRequest, settings: Settings) -> Iterator[dict[str, str]]:
    """Of commands that read, over Redis and through an API worker."""
    with environment_of(request, settings) as found:
        yield found


#: These go through an API worker as well.
READING = [("events", "-o", "json"), ("get", "events", "-o", "json"), ("get", "nodes", "-o", "json")]
PRINTING = [
    ("status",),
    ("get", "suppressed", "-o", "json"),
    ("doctor", "-o", "json"),
    ("options", "get"),
    ("acl", "--role", "reader"),
    ("--help",),
    ("get", "nodes", "--help"),
]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here, which Linux has")
@pytest.mark.parametrize("words", one(PRINTING), ids=" ".join)
def test_output_that_is_full_is_one_line(env: dict[str, str], words: tuple[str, ...]) -> None:
    check_full(env, words)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here, which Linux has")
@pytest.mark.parametrize("words", one(READING), ids=" ".join)
def test_output_of_what_is_read_that_is_full_is_one_line(either_env: dict[str, str], words: tuple[str, ...]) -> None:
    check_full(either_env, words)


def check_full(env: dict[str, str], words: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        ran = subprocess.run([*COMMAND, *words], env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=50)
    assert (ran.returncode, ran.stderr) == (1, "error: No space left on device\n")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here, which Linux has")
def test_an_error_that_cannot_be_told_has_its_exit_code_at_least(either_env: dict[str, str]) -> None:
    with FULL.open("wb") as full:
        words = [*COMMAND, "describe", "pod/nobody"]
        ran = subprocess.run(words, env=either_env, stdout=subprocess.PIPE, stderr=full, text=True, timeout=50)
    assert (ran.returncode, ran.stdout) == (1, "")


@pytest.mark.parametrize("words", one([("status",), ("doctor", "-o", "json")]), ids=" ".join)
def test_output_that_is_closed_is_one_line(env: dict[str, str], words: tuple[str, ...]) -> None:
    check_closed(env, words)


@pytest.mark.parametrize("words", one(READING), ids=" ".join)
def test_output_of_what_is_read_that_is_closed_is_one_line(either_env: dict[str, str], words: tuple[str, ...]) -> None:
    check_closed(either_env, words)


def check_closed(env: dict[str, str], words: tuple[str, ...]) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *words]
    ran = subprocess.run(closing, env=env, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stderr) == (1, "error: standard output is closed\n")


def test_a_reader_that_has_gone_is_no_error_to_speak_of(either_env: dict[str, str]) -> None:
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as gone:
        gone.wait(30)
        ran = subprocess.run(
            [*COMMAND, "get", "events", "-o", "json"],
            env=either_env,
            stdout=gone.stdin,
            stderr=subprocess.PIPE,
            text=True,
            timeout=50,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "")
