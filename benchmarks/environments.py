"""Environments of the peers, made at bench time and kept in `.state/bench`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.peers import Peer

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".state" / "bench"


class NotInstalled(Exception):
    """This peer cannot be measured here; the message says why, in a line."""


def python_of(peer: Peer) -> Path:
    """The interpreter of the peer's environment, which is made if it is missing or for other packages.

    Raises: NotInstalled.
    """
    if peer.server == "nats" and not shutil.which("nats-server"):
        raise NotInstalled("no nats-server on PATH (Debian: apt install nats-server)")
    folder = STATE / "env" / peer.module
    python, made, wanted = folder / "bin" / "python", folder / "packages", "\n".join(peer.packages)
    if made.exists() and made.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *peer.packages], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotInstalled(f"cannot be installed: {last[:160]}")
    made.write_text(wanted)
    return python
