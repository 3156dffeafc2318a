"""The two locks of `make constraints` agree, and the one of the image has each package that eventbus[all] names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
CURE = "run make constraints"


def pins(name: str) -> set[str]:
    """Return the pins of a lock, with their markers."""
    return {line.rstrip(" \\") for line in (ROOT / name).read_text("utf-8").splitlines() if re.match(r"\w", line)}


def test_the_versions_of_the_image_are_those_of_the_tests() -> None:
    tested = {pin.partition(" ")[0] for pin in pins("constraints.txt")}
    assert {pin.partition(" ")[0] for pin in pins("constraints-runtime.txt")} - tested == set(), CURE


def test_the_image_has_every_package_of_all_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {canonicalize_name(Requirement(line).name) for line in wanted} - {"eventbus"}
    assert names - {pin.partition("==")[0] for pin in pins("constraints-runtime.txt")} == set(), CURE
