"""The folder of an agent: who has it."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from eventbus.agent.pods.factory import open_pods
from eventbus.agent.pods.options import PodOptions
from eventbus.errors import ConfigError
from eventbus.settings import Settings


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (errno.ENOLCK, "No locks available.*on a disk of this machine"),
        (errno.EAGAIN, "an agent, pid 17, has the pods of"),
        (errno.EACCES, "an agent, pid 17, has the pods of"),
    ],
    ids=["a-disk-without-locks", "held", "held-as-some-systems-say-it"],
)
def test_a_folder_that_cannot_be_held_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int, said: str
) -> None:
    def lockf(_file: int, _how: int) -> None:
        raise OSError(problem, "No locks available")

    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "agent.lock").write_text("17")
    monkeypatch.setattr(fcntl, "lockf", lockf)
    with pytest.raises(ConfigError, match=said):
        open_pods(PodOptions(), Settings(state_dir=str(tmp_path)), labels={}, standalone=True, environ={})
