"""Measures this machine: by psutil, and by files that psutil does not read."""

from __future__ import annotations

import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from eventbus.util.extras import extra_needed

#: The limits of Linux; other systems have no such files.
_LOADS, _THREADS_MAX = Path("/proc/loadavg"), Path("/proc/sys/kernel/threads-max")
_PID_MAX, _BOOT_ID = Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/random/boot_id")
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_SYSTEM_UUID = Path("/sys/class/dmi/id/product_uuid")
#: The largest pid_max of Linux on 64 bits, if it cannot be read.
_MOST_PIDS = 4_194_304


class Memory(msgspec.Struct, frozen=True):
    """Bytes."""

    total: int
    available: int


class Disk(msgspec.Struct, frozen=True):
    """Bytes of the file system that holds the state folder. *free*: the bytes that a user may still write."""

    total: int
    free: int


class Machine:
    """The machine that this process runs on. Each call measures; any may raise OSError.

    Args:   state_dir: a folder on the disk that is measured.
    Raises: ConfigError: eventbus[agent] is not installed.
    """

    def __init__(self, state_dir: Path) -> None:
        with extra_needed("agent"):
            import psutil
        self._psutil = psutil
        self._state_dir = state_dir

    def hostname(self) -> str:
        return socket.gethostname()

    def addresses(self) -> tuple[str, ...]:
        """Those by which others may reach it, IPv4 first; loopback and link-local addresses are none."""
        addresses = [
            address.address.partition("%")[0]
            for addresses in self._psutil.net_if_addrs().values()
            for address in addresses
            if address.family in (socket.AF_INET, socket.AF_INET6)
        ]
        far = [
            text
            for text in dict.fromkeys(addresses)
            if not text.startswith(("127.", "169.254.", "fe80:")) and text != "::1"
        ]
        return tuple(sorted(far, key=lambda address: ":" in address))

    def cpus(self) -> int:
        return os.cpu_count() or 1

    def memory(self) -> Memory:
        """Measure the memory; caches count as available."""
        memory = self._psutil.virtual_memory()
        return Memory(total=memory.total, available=memory.available)

    def disk(self) -> Disk:
        """Measure the disk of the state folder, or of the nearest folder above it that exists."""
        folder = self._state_dir
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        usage = self._psutil.disk_usage(str(folder))
        return Disk(total=usage.total, free=usage.free)

    def pids(self) -> tuple[int, int]:
        """Return the number of processes, and the limit of the kernel. Source: kubelet `stats/pidlimit`."""
        loads = _read(_LOADS).split()
        used = int(loads[3].partition("/")[2]) if len(loads) > 3 else len(self._psutil.pids())
        return used, min(int(_read(bound) or _MOST_PIDS) for bound in (_PID_MAX, _THREADS_MAX))

    def boot_id(self) -> str:
        """Return an id that changes with each boot; if the system has none, the boot time."""
        return _read(_BOOT_ID) or f"{self._psutil.boot_time():.0f}"


class Identity(msgspec.Struct, frozen=True):
    """The facts that stay the same while the machine runs."""

    machine_id: str
    system_uuid: str
    kernel: str
    os_image: str
    operating_system: str
    architecture: str
    agent: str  #: our own version
    runtime: str  #: the program that runs processes


#: Go's names of architectures, as in Kubernetes' labels.
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "i686": "386"}


def local_identity() -> Identity:
    """This machine's."""
    version = metadata.version("eventbus")
    machine, system = platform.machine().lower(), platform.system()
    return Identity(
        machine_id=next(filter(None, map(_read, _MACHINE_IDS)), ""),
        system_uuid=_read(_SYSTEM_UUID),
        kernel=platform.release(),
        os_image=_os_image(system),
        operating_system=system.lower() or sys.platform,
        architecture=_ARCHITECTURES.get(machine, machine),
        agent=f"v{version}",
        runtime=f"process://{version}",
    )


def _os_image(system: str) -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{system} {platform.version()}"[:128]


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:  # it is not there, or not for us
        return ""
