"""A Procfile is read as foreman and honcho read it, and what is wrong is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.process.procfile import read_procfile


def test_each_line_is_a_name_and_a_command_in_order(tmp_path: Path) -> None:
    file = tmp_path / "Procfile"
    file.write_text("# programs\n\nweb: ./serve --port=80  # here\nmy-job_2:   echo a: b\n  last:x\n", "utf-8")
    assert list(read_procfile(file).items()) == [
        ("web", "./serve --port=80  # here"),
        ("my-job_2", "echo a: b"),
        ("last", "x"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("web: a\nno colon", r":2: not of the form"),
        ("two words: a", r":1: not of the form"),
        ("web:", r":1: not of the form"),
        ("web: a\n\nweb: b", r":3: the name 'web' is used twice"),
        ("up: a", r":1: the name 'up' is taken"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "Procfile"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=problem):
        read_procfile(file)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_procfile(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_procfile(tmp_path / "binary")
