"""The build hook: adds the git commit to the package, and the SBOM of a release to the wheel."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface[Any]):
    """Called by hatchling before each build of a wheel or an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add `eventbus/commit.txt`, and the file that `EVENTBUS_SBOM` names. An editable install has neither."""
        commit = os.environ.get("EVENTBUS_COMMIT") or _commit(Path(self.root))
        # an sdist has the file already
        if commit and version != "editable":
            self._folder = tempfile.TemporaryDirectory()
            file = Path(self._folder.name) / "commit.txt"
            file.write_text(f"{commit}\n", "ascii")
            build_data["force_include"][str(file)] = "eventbus/commit.txt"
        if self.target_name == "wheel" and (sbom := os.environ.get("EVENTBUS_SBOM")):
            build_data["sbom_files"].append(sbom)


def _commit(root: Path) -> str:
    """Return the commit that is checked out in *root*, or "" if that is no repository of its own."""
    if not (root / ".git").exists():
        return ""
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, or a repository of another user
        return ""
