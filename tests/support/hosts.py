"""Several hosts on one machine: each has its own network, name, processes, and its own view of /etc, /opt and /var/lib.

They are namespaces of the kernel. Linux and root are needed, or a sudo that asks for no password.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.waiting import PATIENCE_S, eventually

ROOT: Final = Path(__file__).resolve().parents[2]
_SUDO: Final = () if os.geteuid() == 0 else ("sudo", "-n")
_APART: Final = ("unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
#: Its arguments: name, folder of its own, what is to be at /opt/eventbus, lines for /etc/hosts, paths all may read.
_SET_UP: Final = r"""
hostname "$1"; own=$2; hosts=$4
mount -t tmpfs tmpfs "$own"
mkdir "$own/home" "$own/kept"
for place in etc opt var/lib; do
  mkdir -p "$own/$place/upper" "$own/$place/work"
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=$own/$place/upper,workdir=$own/$place/work" "/$place"
done
program=$3; shift 4
mkdir -p /opt/eventbus; mount --bind "$program" /opt/eventbus
printf '%s\n' "$hosts" >> /etc/hosts
# A home that only its owner may enter: put what is needed of it where it was, in an empty folder that all may enter.
kept=$own/kept/
for path in "$@"; do
  kept=${kept}x; mkdir "$kept"; mount --rbind "$path" "$kept"
done
kept=$own/kept/
for path in "$@"; do
  kept=${kept}x; above=$(dirname "$path"); closed=
  while [ -d "$path" ] && [ "$above" != / ]; do
    case $(stat -c %A "$above") in *[xt]) ;; *) closed=$above ;; esac
    above=$(dirname "$above")
  done
  [ "$closed" ] && mount -t tmpfs -o mode=755 tmpfs "$closed"
  [ -d "$path" ] || { mkdir -p "$path"; mount --rbind "$kept" "$path"; }
done
ip link set lo up
echo ready
exec sleep infinity
"""


def why_none() -> str:
    """Return why there can be no hosts here; '': there can."""
    if missing := [name for name in ("unshare", "nsenter", "ip", "setpriv", "useradd") if _which(name) is None]:
        return f"hosts of their own need {', '.join(missing)}"
    tried = subprocess.run([*_SUDO, *_APART, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces to be had: {tried.stderr.strip()}" if tried.returncode else ""


class Host:
    """One host, from `start` to `die`; its processes go with it."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name = name
        self.address = address
        self.home = folder / name / "home"
        self._folder = folder / name
        self._process: subprocess.Popen[str] | None = None
        self._pid = 0
        self._launched: list[subprocess.Popen[bytes]] = []

    def start(self, hosts: str) -> None:
        """Start it. *hosts*: lines for /etc/hosts."""
        self._folder.mkdir()
        words = [*_SUDO, *_APART, "sh", "-euc", _SET_UP, "sh", self.name, str(self._folder), sys.prefix, hosts]
        process = subprocess.Popen(
            [*words, sys.base_prefix, str(ROOT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._process = process
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        self._pid = _last_child(process.pid)

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._pid

    def run(self, script: str, *, env: Mapping[str, str] | None = None, code: int = 0) -> str:
        """Run *script* in its home as root, by sh -eu; return what it has printed. It must end with *code*."""
        ran = subprocess.run(
            self._words(script, env or {}), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert ran.returncode == code, f"{self.name}: {script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def launch(self, script: str, output: Path, *, env: Mapping[str, str] | None = None) -> None:
        """Have *script* run as long as the host; what it writes is in *output*."""
        with output.open("wb") as file:
            self._launched.append(subprocess.Popen(self._words(script, env or {}), stdout=file, stderr=file))

    def put(self, path: str, text: str) -> None:
        """Write a file."""
        quoted = f"mkdir -p \"$(dirname '{path}')\"; cat > '{path}'"
        subprocess.run(self._words(quoted, {}), input=text, text=True, check=True)

    def _words(self, script: str, env: Mapping[str, str]) -> list[str]:
        inside = ("nsenter", "--target", str(self._pid), "--mount", "--uts", "--net", "--pid")
        clean = {"HOME": str(self.home), "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | dict(
            env
        )
        settings = [f"{name}={value}" for name, value in clean.items()]
        return [*_SUDO, *inside, "env", "-i", *settings, "sh", "-euc", f'cd "$HOME"; {script}']

    def die(self) -> None:
        """Kill it and everything on it, at once."""
        if self._process is not None:
            if self._pid:  # 0 would be our own process group
                subprocess.run([*_SUDO, "kill", "-KILL", str(self._pid)], check=False)
            self._process.communicate()
            for process in self._launched:
                process.wait(PATIENCE_S)
            self._process = None


class Hosts:
    """Hosts in one network, the first of them also its switch. A context manager."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._hosts = [Host(name, f"10.77.0.{number}", folder) for number, name in enumerate(names, 1)]

    def __enter__(self) -> Self:
        lines = "\n".join(f"{host.address} {host.name}" for host in self._hosts)
        try:
            for host in self._hosts:
                host.start(lines)
            switch, *others = self._hosts
            switch.run(f"ip link add lan type bridge; ip address add {switch.address}/24 dev lan; ip link set lan up")
            for host in others:
                link = f"ip link add {host.name} netns {switch.pid} type veth peer name eth0 netns {host.pid}"
                subprocess.run([*_SUDO, *link.split()], check=True)
                switch.run(f"ip link set {host.name} master lan up")
                host.run(f"ip address add {host.address}/24 dev eth0; ip link set eth0 up")
        except BaseException:
            self._end()
            raise
        return self

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for host in self._hosts:
            host.die()


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _last_child(pid: int) -> int:
    """Return the process at the end of the line of children: what runs inside, by its number outside."""
    found = pid

    def child() -> int:
        return int((Path(f"/proc/{found}/task/{found}/children").read_text().split() or ["0"])[0])

    eventually(child)
    while following := child():
        found = following
    return found
