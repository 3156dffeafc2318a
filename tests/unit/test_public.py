"""What the package shows to who looks at it, and the command that it is."""

from __future__ import annotations

import subprocess
import sys

import eventbus


def test_dir_shows_what_is_public_and_nothing_else() -> None:
    assert [name for name in dir(eventbus) if not name.startswith("__")] == sorted(eventbus.__all__)
    assert all(hasattr(eventbus, name) for name in dir(eventbus))


def test_the_package_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "eventbus", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("eventbus ")
