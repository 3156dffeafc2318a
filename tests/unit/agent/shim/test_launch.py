"""What shims ask the kernel is vital to them: a kernel that refuses is heard."""

from __future__ import annotations

import pytest

from eventbus.agent.shim import launch


def test_a_kernel_that_refuses_to_adopt_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_SET_CHILD_SUBREAPER", 9999)
    with pytest.raises(OSError, match="cannot have orphans as children, prctl refuses: Invalid argument"):
        launch.become_subreaper()


def test_a_kernel_that_refuses_to_kill_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_SET_DEATH_SIGNAL", 9999)
    with pytest.raises(OSError, match="cannot die with the parent, prctl refuses: Invalid argument"):
        launch.die_with(1)
