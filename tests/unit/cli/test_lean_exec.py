"""What of `eventbus exec` is run without the whole command, and what is left to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.cli.lean_exec import Asked, read

PLAIN = {
    "true": Asked(("true",)),
    "-- make -j2": Asked(("make", "-j2")),
    "make -- -j2": Asked(("make", "--", "-j2")),
    "--object Job/backup -n ops -- ./backup.sh --all": Asked(("./backup.sh", "--all"), "Job/backup", "ops"),
    "--object=Service/web --namespace= serve": Asked(("serve",), "Service/web", ""),
    "--keep-stderr less": Asked(("less",), read_stderr=False),
    "--read-stderr -- less": Asked(("less",), read_stderr=True),
}
LEFT = [
    *(
        "",
        "--",
        "--help",
        "--restart always -- true",
        "--backoff-base 1 true",
        "--context prod true",
        "--objcet a/b true",
    ),
    *("--object web true", "--object a/b/c true", "--object a_/b true", "-n Shop true", "-n", "--object", "-nops true"),
    *("--read-stderr=false true", "bin/", "-n=ops true", "--objcet a/b true"),
]


def words(text: str) -> list[str]:
    return text.split(" ") if text else []


@pytest.mark.parametrize("typed", PLAIN)
def test_what_is_plain_is_read(typed: str) -> None:
    assert read(words(typed), {"HOME": "/nobody"}) == PLAIN[typed]


@pytest.mark.parametrize("typed", LEFT)
def test_what_is_wrong_or_more_is_left_to_the_whole_command(typed: str) -> None:
    assert read(words(typed), {"HOME": "/nobody"}) is None


def test_the_namespace_of_the_environment_counts_and_contexts_take_the_whole_command(tmp_path: Path) -> None:
    assert read(["true"], {"HOME": "/nobody", "EVENTBUS_NAMESPACE": "ops"}) == Asked(("true",), namespace="ops")
    assert read(["true"], {"HOME": "/nobody", "EVENTBUS_CONTEXT": "prod"}) is None
    (tmp_path / "eventbus").mkdir()
    (tmp_path / "eventbus" / "config.json").write_text("{}")
    assert read(["true"], {"XDG_CONFIG_HOME": str(tmp_path)}) is None
