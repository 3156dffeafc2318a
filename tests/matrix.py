"""`make test-matrix`: a choice of the tests on each Python and each server that this machine has.

Every Python runs the unit tests, those of the functions and a few of real servers, on the embedded server. Every other
server runs the latter two with the Python of `make install`. Pythons and servers that are missing are named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from eventbus.broker.embedded.server import EmbeddedServer
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: Official images; those that `.ci/container-engine` makes of Debian packages have `local/` before the name.
IMAGES = ("redis:7.0", "redis:7.4", "redis:8", "valkey/valkey:8.1", "valkey/valkey:9")
FUNCTIONS = (
    *("every_server", "publish", "correlate_and_store", "put", "remove", "trim", "claim", "bury", "replay", "expire"),
    *("open", "checkpoint"),
)
INTEGRATION = ("broadcaster", "consumer", "object_store", "watchers", "export", "acl", "informers")
#: With a server: record, correlate, store, watch, export, take over, rights of users.
SERVER_TESTS = (
    *(f"tests/functions/test_{name}.py" for name in FUNCTIONS),
    *(f"tests/integration/test_{name}.py" for name in INTEGRATION),
)


class Row(NamedTuple):
    """A line of the table at the end."""

    name: str
    result: str


def main() -> int:
    """Run the tests; return 1 if any of them fails, or if an interpreter or server that was asked for is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help="only this version, as 3.14; can be repeated")
    parser.add_argument("--server", action="append", help="only this image or program, as redis:8; can be repeated")
    parser.add_argument("--no-pythons", action="store_true", help="only servers")
    parser.add_argument("--no-servers", action="store_true", help="only Pythons")
    options, pytest_options = parser.parse_known_args()
    rows: list[Row] = []
    for version in [] if options.no_pythons else options.python or PYTHONS:
        rows.append(Row(f"Python {version}", on_python(version, pytest_options)))
    for server in [] if options.no_servers else options.server or ("redis-server", "valkey-server", *IMAGES):
        rows.append(Row(server, on_server(server, pytest_options)))
    print("\n".join(("", *(f"{row.name:20} {row.result}" for row in rows))))
    asked = options.python or options.server
    return int(any(row.result == "FAILED" or (asked and "not found" in row.result) for row in rows))


def on_python(version: str, options: list[str]) -> str:
    """Run the tests on the Python of this version, in an environment of its own. Returns: the result."""
    interpreter = find_python(version)
    if interpreter is None:
        return "not found"
    folder = ROOT / ".state" / "matrix" / version
    python = folder / "bin" / "python"
    stamp, locked = folder / "installed", ROOT / "constraints.txt"
    if not stamp.exists() or stamp.stat().st_mtime < locked.stat().st_mtime:
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([interpreter, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([*pip, "--require-hashes", "-r", str(locked)], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
        stamp.touch()
    return run(f"Python {version}", python, ("tests/unit", *SERVER_TESTS), options, "")


def find_python(version: str) -> str | None:
    """Return an interpreter of this version: on PATH, or of pyenv, whose shims run only those that are selected."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_pyenv = map(str, pyenv.glob(f"{version}.*/bin/python{version}"))
    asked = "import sys; print('{}.{}'.format(*sys.version_info))"
    for candidate in filter(None, (shutil.which(f"python{version}"), *of_pyenv, sys.executable)):
        answer = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return candidate
    return None


def on_server(name: str, options: list[str]) -> str:
    """Run the tests of servers on a program of PATH or an image. Returns: the result."""
    with ExitStack() as stack:
        if ":" in name:
            image = find_image(name)
            if image is None:
                return "not found"
            url = stack.enter_context(container(image))
        else:
            program = shutil.which(name)
            if program is None:
                return "not found"
            server = EmbeddedServer(Path(stack.enter_context(tempfile.TemporaryDirectory())), binary=Path(program))
            url = server.start()
            stack.callback(server.stop)
        with Redis.from_url(url) as client:
            info = client.info("server")
        version = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
        result = run(f"{name}, {version}", Path(sys.executable), SERVER_TESTS, options, url)
    return f"{result} ({version})"


def find_image(name: str) -> str | None:
    """Return the image, as it is or as `.ci/container-engine` made it, or None; nothing is pulled."""
    if shutil.which("docker") is None:
        return None
    for image in (name, f"local/{name.rpartition('/')[2]}"):
        if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0:
            return image
    return None


@contextmanager
def container(image: str) -> Iterator[str]:
    """Run a server in a container. Yields: its url."""

    def docker(*words: str) -> str:
        return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout.strip()

    started = docker("run", "--detach", "--rm", "--publish", "127.0.0.1::6379", image)
    try:
        url = f"redis://{docker('port', started, '6379/tcp').splitlines()[0]}/0"
        with Redis.from_url(url) as client:
            eventually(lambda: answers(client))
        yield url
    finally:
        docker("stop", "--time", "1", started)


def answers(client: Redis) -> bool:
    """Return True if the server answers a ping."""
    try:
        return bool(client.ping())
    except RedisError:
        return False


def run(name: str, python: Path, tests: tuple[str, ...], options: list[str], url: str) -> str:
    """Run pytest. Returns: `passed` or `FAILED`."""
    print(f"\n== {name}", flush=True)
    env = {**os.environ, "EVENTBUS_TEST_REDIS_URL": url} if url else os.environ
    # tests of one kind of server start containers of their own, and are not part of the choice
    words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not volume and not container"]
    done = subprocess.run([*words, *tests, *options], cwd=ROOT, env=env, check=False)
    return "FAILED" if done.returncode else "passed"


if __name__ == "__main__":
    sys.exit(main())
