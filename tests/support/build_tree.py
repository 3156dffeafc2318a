"""Another build: a copy of the package with a change in it, whose processes are of another code tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import eventbus
from tests.starting import STRICT
from tests.waiting import PATIENCE_S

#: What a later build may add: a codec (3) that no earlier one reads, used by producers as soon as the bus says so.
_NEW_CODEC = {
    "model/formats.py": (
        ("\nCODECS: Final[tuple[int, ...]] = (CODEC_NONE, CODEC_LZ4, CODEC_SERIES)",
         "\nCODECS: Final[tuple[int, ...]] = (0, 1, 2, 3)"),
    ),
    "model/encoding/wire.py": (
        ("    if codec not in BASELINE_CODECS:", "    if codec not in (0, 1, 3):"),
        ("    if codec == CODEC_LZ4:", "    if codec in (1, 3):"),
        ("return PackedEvents(CODEC_LZ4, len(events), compressed)",
         "return PackedEvents(3 if 3 in codecs else CODEC_LZ4, len(events), compressed)"),
    ),
}  # fmt: skip


class BuildTree:
    """The package in *folder*, a copy of ours if *changed*: with another comment in its Lua, and one codec more.

    Its processes find the bus at *url* under *prefix*; what they write to stderr goes to files in *folder*.
    """

    def __init__(self, folder: Path, *, changed: bool) -> None:
        self.folder = folder
        ours = Path(eventbus.__file__).parent
        shutil.copytree(ours, folder / "eventbus", ignore=shutil.ignore_patterns("__pycache__"))
        if changed:
            self._change("broker/lua/library.lua", (("-- Shared by all functions", "-- shared by all functions"),))
            for name, changes in _NEW_CODEC.items():
                self._change(name, changes)
        self.build = self.python("from eventbus.broker.build import build; print(build())").strip()

    def _change(self, name: str, changes: Sequence[tuple[str, str]]) -> None:
        file = self.folder / "eventbus" / name
        text = file.read_text("utf-8")
        for right, wrong in changes:
            assert text.count(right) == 1, f"{name}: {right!r} is not there, or not once"
            text = text.replace(right, wrong)
        file.write_text(text, "utf-8")

    def environ(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return *env* for a process of this tree."""
        return {**os.environ, **STRICT, **env, "PYTHONPATH": str(self.folder), "PYTHONUNBUFFERED": "1"}

    def python(self, script: str, env: Mapping[str, str] | None = None) -> str:
        """Run a script to its end. Returns: its output."""
        words = [sys.executable, "-P", "-c", script]
        return subprocess.run(
            words, env=self.environ(env or {}), check=True, capture_output=True, text=True, timeout=PATIENCE_S
        ).stdout

    def run(self, *words: str, env: Mapping[str, str], code: int = 0) -> str:
        """Run `eventbus *words*` to its end, which comes with *code*. Returns: what it has written."""
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "eventbus", *words],
            env=self.environ(env),
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return ran.stdout + ran.stderr

    def start(self, words: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a Python of this tree with *words*; all that it writes goes to *log*."""
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", *words],
                env=self.environ(env),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
