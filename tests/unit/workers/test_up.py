"""The options of `eventbus up`, and where it cannot run."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventbus.errors import ConfigError
from eventbus.workers import up_run
from eventbus.workers.up import up


def test_elsewhere_than_on_linux_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(ConfigError, match=r"`eventbus up` needs Linux.*eventbus worker sink"):
        up.main([], standalone_mode=False)


class WouldRun(Exception):
    """The lines that it would run."""


def test_a_procfile_that_nobody_named_is_left_alone_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def would_run(_settings: Any, commands: dict[str, str], *_others: Any, **_more: Any) -> None:
        raise WouldRun(commands)

    monkeypatch.setattr(up_run, "UpRun", would_run)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Procfile").write_text("web: echo never")
    unnamed, named = (CliRunner().invoke(up, words) for words in ([], ["--procfile", "Procfile"]))
    assert [ended.exception.args[0] for ended in (unnamed, named) if ended.exception] == [{}, {"web": "echo never"}]
    assert ("add --procfile Procfile" in unnamed.stderr, named.stderr) == (True, "")
