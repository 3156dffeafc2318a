"""Other builds: a copy of the package with a change in it, or an installed wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import eventbus
from tests.starting import STRICT
from tests.support.installed import ROOT, build, install
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


class Build:
    """A build of eventbus for *interpreter*, whose processes find it on *path*.

    Its processes find the bus at *url* under *prefix*; what they write to stderr goes to files in *folder*.
    """

    def __init__(self, folder: Path, *, interpreter: str = sys.executable, path: str = "") -> None:
        self.folder = folder
        self._interpreter, self._path = interpreter, path
        self.build = self.python("from eventbus.broker.build import build; print(build())").strip()

    def environ(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return *env* for a process of this tree."""
        return {**os.environ, **STRICT, **env, "PYTHONPATH": self._path, "PYTHONUNBUFFERED": "1"}

    def python(self, script: str, env: Mapping[str, str] | None = None) -> str:
        """Run a script to its end. Returns: its output."""
        words = [self._interpreter, "-P", "-c", script]
        return subprocess.run(
            words, env=self.environ(env or {}), check=True, capture_output=True, text=True, timeout=PATIENCE_S
        ).stdout

    def run(self, *words: str, env: Mapping[str, str], code: int = 0) -> str:
        """Run `eventbus *words*` to its end, which comes with *code*. Returns: what it has written."""
        ran = subprocess.run(
            [self._interpreter, "-P", "-m", "eventbus", *words],
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
                [self._interpreter, "-P", *words],
                env=self.environ(env),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )


class BuildTree(Build):
    """The package in *folder*, a copy of ours if *changed*: with another comment in its Lua, and one codec more."""

    def __init__(self, folder: Path, *, changed: bool) -> None:
        copy_package(folder, changed=changed)
        super().__init__(folder, path=str(folder))


class BuildWheel(Build):
    """A wheel, installed in an environment in *folder*."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        super().__init__(folder, interpreter=str(install(wheel, folder / "venv").python))


def copy_package(folder: Path, *, changed: bool) -> None:
    """Copy the package into *folder*; see `BuildTree`."""
    shutil.copytree(Path(eventbus.__file__).parent, folder / "eventbus", ignore=shutil.ignore_patterns("__pycache__"))
    if changed:
        _change(folder, "broker/lua/library.lua", (("-- Shared by all functions", "-- shared by all functions"),))
        for name, changes in _NEW_CODEC.items():
            _change(folder, name, changes)


def changed_wheel(folder: Path) -> Path:
    """Build a wheel of the package with the change of `BuildTree`."""
    source = folder / "source"
    copy_package(source, changed=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return build(folder, source=source)


def released_wheel(folder: Path) -> Path | None:
    """Return the wheel of `EVENTBUS_TEST_OLD_WHEEL`, or build that of the last tag before HEAD, if there is one."""
    if given := os.environ.get("EVENTBUS_TEST_OLD_WHEEL"):
        return Path(given).absolute()
    words = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]
    tag = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    if not tag:
        return None
    clone = folder / "clone"
    words = ["git", "clone", "-q", "--branch", tag, f"file://{ROOT}", str(clone)]
    subprocess.run(words, check=True, capture_output=True)
    return build(folder, source=clone)


def _change(folder: Path, name: str, changes: Sequence[tuple[str, str]]) -> None:
    file = folder / "eventbus" / name
    text = file.read_text("utf-8")
    for right, wrong in changes:
        assert text.count(right) == 1, f"{name}: {right!r} is not there, or not once"
        text = text.replace(right, wrong)
    file.write_text(text, "utf-8")
