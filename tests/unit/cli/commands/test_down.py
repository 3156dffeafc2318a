"""`eventbus down`, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from eventbus.broker.embedded import server_process
from eventbus.cli.commands.down import down


def test_an_up_of_another_container_is_named_without_a_process_to_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "other_user_of", lambda _directory: 0)
    done = CliRunner().invoke(down, ["--state-dir", str(tmp_path)])
    assert str(done.exception) == (
        f"`eventbus up` (in a container) keeps the server in {tmp_path} running: end that one, there"
    )
