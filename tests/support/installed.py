"""Environments in which eventbus is installed from its wheel, with the packages that it asks for and no others.

No network is needed: packages come from the running environment, which has the versions of constraints.txt. The
requirements are walked as an installer walks them, and the files of each package are linked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from configparser import ConfigParser
from importlib.metadata import Distribution, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


class Installed(NamedTuple):
    """An environment: its folder, interpreter and console command."""

    folder: Path
    python: Path
    eventbus: Path


def build(folder: Path, target: str = "wheel", source: Path = ROOT) -> Path:
    """Build the *target* of *source*, `wheel` or `sdist`, into *folder* and return it."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(words, cwd=source, check=True, capture_output=True, timeout=100)
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def install(wheel: Path, folder: Path, *extras: str) -> Installed:
    """Make an environment in *folder* with *wheel* and what it requires, and with these *extras* of it."""
    venv.create(folder, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", scheme))
    with zipfile.ZipFile(wheel) as files:
        files.extractall(packages)
        for name in files.namelist():
            _take_compiled(ROOT / name, packages / name)
        (metadata,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
    eventbus = Distribution.at(packages / metadata.partition("/")[0])
    for required in requirements(eventbus, extras):
        _link(required, packages)
    python, command = folder / "bin" / "python", folder / "bin" / "eventbus"
    scripts = ConfigParser()
    scripts.read_string(eventbus.read_text("entry_points.txt") or "")
    module, _, function = scripts["console_scripts"]["eventbus"].partition(":")
    command.write_text(f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    command.chmod(0o755)
    return Installed(folder, python, command)


def requirements(wanted: Distribution, extras: tuple[str, ...] = ()) -> list[Distribution]:
    """Return the distributions that *wanted* needs with *extras*, those that they need in turn included."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(wanted, extra) for extra in ("", *extras)]
    while queue:
        needing, extra = queue.pop()
        if (key := (canonicalize_name(needing.name), extra)) in seen:
            continue
        seen.add(key)
        for line in needing.requires or ():
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            # eventbus[all] names other extras of eventbus
            needed = wanted if name == canonicalize_name(wanted.name) else found.setdefault(name, distribution(name))
            queue += [(needed, more) for more in ("", *requirement.extras)]
    return list(found.values())


def _take_compiled(ours: Path, installed: Path) -> None:
    """Link the compiled module of *ours* to that of *installed*, if it is the same: to compile takes a second."""
    compiled = Path(cache_from_source(str(ours)))
    if ours.suffix != ".py" or not compiled.exists() or ours.read_bytes() != installed.read_bytes():
        return
    times = ours.stat()
    os.utime(installed, ns=(times.st_atime_ns, times.st_mtime_ns))  # a compiled module names its source's
    target = Path(cache_from_source(str(installed)))
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(compiled)


def _link(package: Distribution, packages: Path) -> None:
    for file in package.files or ():
        if ".." in file.parts:
            continue  # a script in bin
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(Path(str(file.locate())))
