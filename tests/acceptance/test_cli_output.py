"""Standard output that takes nothing: a full disk, a closed file. One line, exit code 1, no traceback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.acceptance.programs import COMMAND, environment
from tests.starting import start
from tests.thin import one
from tests.waiting import PATIENCE_S

FULL = Path("/dev/full")


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix)


WORDS = [
    ("get", "events", "-o", "json"),
    ("events", "-o", "json"),
    ("get", "nodes", "-o", "json"),
    ("status",),
    ("get", "suppressed", "-o", "json"),
    ("doctor", "-o", "json"),
    ("options", "get"),
    ("acl", "--role", "reader"),
]
#: Written by click, which writes nothing to what is closed.
HELP = [("--help",), ("get", "nodes", "--help")]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here, which Linux has")
@pytest.mark.parametrize("words", one(WORDS + HELP), ids=" ".join)
def test_output_that_is_full_is_one_line(env: dict[str, str], words: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        assert run_into(full, words, env) == (1, "error: No space left on device\n")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here, which Linux has")
def test_an_error_that_cannot_be_told_has_its_exit_code_at_least(env: dict[str, str]) -> None:
    with FULL.open("wb") as full:
        words = [*COMMAND, "describe", "pod/nobody"]
        ran = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=full, text=True, timeout=50)
    assert (ran.returncode, ran.stdout) == (1, "")


@pytest.mark.parametrize("words", one(WORDS), ids=" ".join)
def test_output_that_is_closed_is_one_line(env: dict[str, str], words: tuple[str, ...]) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *words]
    ran = subprocess.run(closing, env=env, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stderr) == (1, "error: standard output is closed\n")


def test_a_reader_that_has_gone_is_no_error_to_speak_of(env: dict[str, str]) -> None:
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as gone:
        gone.wait(30)
        assert gone.stdin
        assert run_into(gone.stdin, ("get", "events", "-o", "json"), env) == (1, "")


def run_into(output: IO[bytes], words: tuple[str, ...], env: dict[str, str]) -> tuple[int, str]:
    """Run the command with this standard output; return its exit code, and what stands on standard error."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as errors:
        try:
            process = start([*COMMAND, *words], env=env, stdout=output, stderr=writer)
        finally:
            os.close(writer)
        said = errors.read()
    return process.wait(PATIENCE_S), said
