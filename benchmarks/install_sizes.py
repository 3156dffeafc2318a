"""The size of an installation with each extra: `python -m benchmarks.install_sizes [EXTRA…]`. It downloads packages.

MB on disk as pip writes them into an empty folder, without the files that Python compiles, and the number of packages.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print("| extra | MB | packages |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder, "wheels")
        _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
        wheel = next(wheels.glob("*.whl"))
        for extra in extras or ["", *project["optional-dependencies"]]:
            target = Path(folder, extra or "none")
            _pip("install", "--no-compile", "--target", str(target), f"{wheel}[{extra}]" if extra else str(wheel))
            size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
            packages = len(list(target.glob("*.dist-info")))
            print(f"| {f'`{extra}`' if extra else 'none'} | {size / 1e6:.0f} | {packages} |", flush=True)


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1:])
