"""The spool against a real server: what a dead process has left is in the stream once, whoever sends it, and when."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.keys import Keys
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import PRODUCER_LIFE_MS, SPOOLED_LIFE_MS, Transport
from eventbus.cli.commands.spool import send_spooled
from eventbus.errors import BusUnavailable
from eventbus.model.encoding.wire import pack_events, unpack_batch
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.losses import Losses
from eventbus.record.spool import adopter, journal
from eventbus.record.spool.journal import (
    BATCHES,
    UNREADABLE,
    SpoolFolder,
    State,
    check_folder,
    folders,
    holds,
    list_spool,
    read_file,
)
from eventbus.record.spool.records import Header, KeptBatch, ProducerIdentity, Stamp, encode, encode_file
from eventbus.record.spool.spool import BusName
from eventbus.settings import Settings, SpoolWhen
from eventbus.util.clock import SystemClock
from tests.acceptance.programs import environment, run
from tests.starting import Piped, start_piped
from tests.support.harness import frozen, messages, own_server, read_incoming, settings_of, uids
from tests.thin import one
from tests.waiting import PATIENCE_S, eventually

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server that the tests here freeze, one after the other."""
    with own_server(tmp_path_factory.mktemp("s")) as server:
        yield server


@pytest.fixture
def url(server: EmbeddedServer) -> str:
    return server.url or ""


@pytest.fixture
def root(short_path: Path) -> Path:
    return short_path / "spool"


@pytest.fixture
def env(url: str, prefix: str, root: Path) -> dict[str, str]:
    return environment(url, prefix, spool=str(root), flush_s="60")


Start = Callable[..., Piped]


@pytest.fixture
def start(env: dict[str, str]) -> Iterator[Start]:
    """Starts programs that record so many events; they end with the test."""
    with ExitStack() as stack:

        def start(count: int, **more: str) -> Piped:
            words = [sys.executable, "-m", "tests.integration.spooling_program", str(count)]
            program = stack.enter_context(start_piped(words, env=env | more))
            stack.callback(program.process.send_signal, signal.SIGKILL)
            assert program.stdout.readline() == b"recorded\n"
            return program

        yield start


def kill(program: Piped) -> None:
    program.process.send_signal(signal.SIGKILL)
    assert program.process.wait() == -signal.SIGKILL


def end(program: Piped) -> str:
    """Have it shut down; returns what it says of that."""
    program.stdin.write(b"end\n")
    said = program.stdout.readline().decode()
    program.process.wait()
    return said


def spooled(root: Path) -> int:
    return sum(read_file(folder).events for folder in folders(root)) if root.exists() else 0


def send(env: dict[str, str], *more: str, code: int = 0) -> int:
    """`eventbus spool send`; returns how many events it says it has sent."""
    done = run("spool", "send", "-o", "json", *more, env=env)
    assert done.returncode == code, done.stderr
    return int(json.loads(done.stdout)["sent"])


def arrived(url: str, prefix: str) -> list[str]:
    """The messages in the stream as numbers, in order; each uid is there once."""
    events = read_incoming(url, settings_of(prefix))
    assert len(set(uids(events))) == len(events)
    return sorted(messages(events), key=int)


def numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


# -- who is killed while Redis is away --------------------------------------------------------------------------------


def test_without_trouble_nothing_is_written(start: Start, root: Path, url: str, prefix: str) -> None:
    program = start(50)
    assert end(program) == "True {}\n"
    assert not root.exists() or not os.listdir(root)
    assert arrived(url, prefix) == numbers(50)


def test_what_was_recorded_while_redis_was_away_from_the_start_is_sent_by_a_command(
    start: Start, root: Path, url: str, prefix: str, env: dict[str, str], server: EmbeddedServer
) -> None:
    with frozen(server.pid):
        program = start(300)
        eventually(lambda: spooled(root) == 300)
        kill(program)
        [found] = list_spool(root)
        assert (found.state, found.events, found.problem) == (State.WAITING, 300, "")
        assert found.pid == program.process.pid
    assert send(env | {"EVENTBUS_PARTITIONS": "4"}) == 300
    assert arrived(url, prefix) == numbers(300)
    assert os.listdir(root) == []
    assert send(env) == 0


def test_what_a_living_process_holds_is_left_to_it(
    start: Start, root: Path, url: str, prefix: str, env: dict[str, str], server: EmbeddedServer
) -> None:
    with frozen(server.pid):
        program = start(100)
        eventually(lambda: spooled(root) == 100)
        [found] = list_spool(root)
        assert found.state is State.HELD
    assert send(env) == 0
    end(program)
    assert arrived(url, prefix) == numbers(100)


def test_the_next_process_sends_it_by_itself(
    start: Start, root: Path, url: str, prefix: str, server: EmbeddedServer
) -> None:
    with frozen(server.pid):
        program = start(200)
        eventually(lambda: spooled(root) == 200)
        kill(program)
    with EventBroadcaster(url, settings=settings_of(prefix, spool=str(root), flush_s=PATIENCE_S)) as broadcaster:
        broadcaster.new_recorder("c").event(ObjectReference("Pod", "d", "x"), "Normal", "Counted", "200")
        eventually(lambda: len(arrived(url, prefix)) == 201)
    assert arrived(url, prefix) == numbers(201)
    eventually(lambda: os.listdir(root) == [])


def test_a_folder_that_another_process_removes_meanwhile_is_not_listed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "1-2-3").mkdir(mode=0o700, parents=True)
    root.chmod(0o700)

    def remove(folder: Path) -> None:
        folder.rmdir()
        check_folder(folder)

    monkeypatch.setattr(journal, "check_folder", remove)
    assert list_spool(root) == []


def test_a_folder_that_another_process_has_emptied_is_not_reported_as_left(
    root: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir(mode=0o700)
    monkeypatch.setattr(journal, "list_spool", lambda _root: [SpoolFolder(name="1-2-3", state=State.WAITING)])
    result = CliRunner().invoke(send_spooled, ["--dir", str(root)], env=env)
    assert (result.exit_code, result.output) == (0, "0 events sent\n")


def test_of_several_that_send_at_once_each_batch_is_sent_by_one(
    start: Start, root: Path, url: str, prefix: str, env: dict[str, str], server: EmbeddedServer
) -> None:
    with frozen(server.pid):
        programs = [start(300) for _ in range(2)]
        eventually(lambda: spooled(root) == 600)
        for program in programs:
            kill(program)
    with ThreadPoolExecutor(3) as pool:
        sent = list(pool.map(lambda _: send(env), range(3)))
    assert sum(sent) == 600
    assert sorted(arrived(url, prefix), key=int) == sorted(numbers(300) * 2, key=int)
    assert os.listdir(root) == []


@pytest.mark.parametrize("crash", one(["published:1", "publish:1", "published:2", "respool:1"]))
def test_a_sender_that_is_killed_leaves_the_rest_to_the_next(
    start: Start, root: Path, url: str, prefix: str, env: dict[str, str], server: EmbeddedServer, crash: str
) -> None:
    with frozen(server.pid):
        program = start(1_000)  # the bus was never reached: they have to be numbered, and written anew, by who sends
        eventually(lambda: spooled(root) == 1_000)
        kill(program)
    killed = run("spool", "send", env=env | {"EVENTBUS_CRASH": f"kill:{crash}"})
    assert killed.returncode == -signal.SIGKILL
    assert spooled(root) > 0
    send(env)
    assert arrived(url, prefix) == numbers(1_000)
    assert os.listdir(root) == []


# -- the end of a process, forks -------------------------------------------------------------------------------------


def test_what_is_not_sent_in_time_at_the_end_is_kept_and_said(
    start: Start, root: Path, url: str, prefix: str, env: dict[str, str], server: EmbeddedServer
) -> None:
    with frozen(server.pid):
        program = start(100, EVENTBUS_FLUSH_S="0.3")
        assert end(program) == "False {}\n"
        assert spooled(root) == 100
    assert send(env) == 100
    assert arrived(url, prefix) == numbers(100)


def test_a_second_end_keeps_no_event_again(root: Path) -> None:
    broadcaster = EventBroadcaster("redis://127.0.0.1:1/0", settings=Settings(spool=str(root)))
    recorder = broadcaster.new_recorder("test")
    for number in range(3):
        recorder.event(f"Order/{number}", "Normal", "Paid", "17.00 EUR")
    ends = [broadcaster.shutdown(0.2) for _ in range(2)]
    assert spooled(root) == 3
    assert ends == [False, False]


def test_a_child_lets_go_of_its_parents_spool_and_has_its_own(
    root: Path, url: str, prefix: str, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopter, "EVERY_S", 3600)  # else this process may adopt the child's event first
    settings = settings_of(prefix, spool=str(root))
    about = ObjectReference("Pod", "d", "x")
    with EventBroadcaster(url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        with frozen(server.pid):
            recorder.event(about, "Normal", "Counted", "0")
            eventually(lambda: spooled(root) == 1)
            [ours] = folders(root)
            pid = os.fork()
            if pid == 0:
                recorder.event(about, "Normal", "Counted", "1")
                while spooled(root) < 2:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
            assert holds(ours)
            states = {each.name: each.state for each in list_spool(root)}
            assert states.pop(ours.name) is State.HELD
            assert list(states.values()) == [State.WAITING]
        assert broadcaster.flush(60)
        assert send(environment(url, prefix, spool=str(root))) == 1
    assert arrived(url, prefix) == ["0", "1"]
    assert os.listdir(root) == []


# -- what it costs and what there is no room for ---------------------------------------------------------------------


def test_always_writes_before_it_sends_and_leaves_nothing(url: str, prefix: str, root: Path) -> None:
    settings = settings_of(prefix, spool=str(root), spool_when=SpoolWhen.ALWAYS, partitions=4)
    with EventBroadcaster(url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("c")
        for i in range(3_000):
            recorder.event(ObjectReference("Pod", "d", f"web-{i % 9}"), "Normal", "Counted", str(i))
        assert broadcaster.flush(60)
        assert [each.state for each in list_spool(root)] == [State.HELD]
        eventually(lambda: spooled(root) == 0)
    assert arrived(url, prefix) == numbers(3_000)
    assert os.listdir(root) == []


def test_beyond_its_bound_events_are_in_memory_only_and_said_to_be(
    root: Path, url: str, prefix: str, server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(prefix, spool=str(root), spool_bytes=20_000, buffer_events=1_000)
    broadcaster = EventBroadcaster(url, settings=settings)
    recorder = broadcaster.new_recorder("c")
    with caplog.at_level(logging.ERROR), frozen(server.pid):
        for i in range(500):
            recorder.event(ObjectReference("Pod", "d", "x"), "Normal", "Counted", f"{i} " + "x" * 500)
        eventually(lambda: "in memory only" in caplog.text)
        more = itertools.count()

        def refused() -> bool:
            """Record one more; return whether any was counted as refused for a full spool.

            The log tells of a full spool a moment before the buffer counts by it.
            """
            recorder.event(ObjectReference("Pod", "d", "x"), "Normal", "Counted", str(next(more)))
            return "spool_full" in broadcaster.losses.counts

        for _ in range(3_000):  # more than memory holds, even if all of the 500 are taken out of it to be sent
            refused()
        eventually(refused)
        assert not broadcaster.shutdown(0.2)
        counts = broadcaster.losses.counts
        kept = spooled(root)
        assert sum(counts.values()) + kept == 500 + next(more)
        assert set(counts) <= {"spool_full", "dropped"}
        assert sum(path.stat().st_size for path in root.rglob(BATCHES)) <= 20_000
    assert send(environment(url, prefix, spool=str(root))) == kept


def test_a_spool_that_will_not_do_is_said_and_the_events_are_sent(
    root: Path, url: str, prefix: str, server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    with EventBroadcaster(url, settings=settings_of(prefix, spool=str(root))) as broadcaster, frozen(server.pid):
        broadcaster.new_recorder("c").event(ObjectReference("Pod", "d", "x"), "Normal", "Counted", "0")
        eventually(lambda: "nothing is kept on disk: the spool will not use" in caplog.text)
    assert arrived(url, prefix) == ["0"]


# -- how long Redis knows a producer ---------------------------------------------------------------------------------


def test_redis_remembers_a_spooling_producer_for_30_days_and_for_2_hours_after_a_clean_end(
    url: str, prefix: str, root: Path
) -> None:
    pattern = Keys(prefix, 0).producer + b"*"
    with make_client(url) as client:
        with EventBroadcaster(url, settings=settings_of(prefix, spool=str(root))) as broadcaster:
            broadcaster.new_recorder("c").event(ObjectReference("Pod", "d", "x"), "Normal", "Counted", "0")
            assert broadcaster.flush(60)
            [key] = client.scan_iter(pattern, count=10_000)
            assert SPOOLED_LIFE_MS - 60_000 < client.pttl(key) <= SPOOLED_LIFE_MS
        assert PRODUCER_LIFE_MS - 60_000 < client.pttl(key) <= PRODUCER_LIFE_MS


def lay_down(
    root: Path,
    url: str,
    prefix: str,
    *,
    days: int,
    boot: str = "another boot",
    name: str = "1-1-000000",
    partitions: int = 1,
) -> None:
    """A folder as a process has left it that many days ago: two batches of one event each."""
    with make_client(url) as client:
        bus_id = client.hget(f"{prefix}:{{0}}:bus", "id") or b""
    packed = read_packed(url, prefix)
    accepted = Stamp(time.time_ns() // 1_000_000 - days * DAY_MS, 0)
    identity = ProducerIdentity("00000000000000aa", "a-secret-of-old-")
    batches = [KeptBatch(0, identity, first, "", accepted, (), pack_events([packed])) for first in (1, 2)]
    folder = root / name
    folder.mkdir(mode=0o700, parents=True)
    root.chmod(0o700)
    (folder / "lock").touch(0o600)
    header = Header(bus_id.decode(), url, prefix, partitions, boot, "host", 1, 1)
    (folder / BATCHES).write_bytes(encode_file(header, batches))


def read_packed(url: str, prefix: str) -> bytes:
    """Any event on the wire."""

    with EventBroadcaster(url, settings=settings_of(prefix)) as broadcaster:
        broadcaster.new_recorder("c").event(ObjectReference("Pod", "d", "x"), "Normal", "Counted", "0")
    with make_client(url) as client:
        [(_, fields)] = client.xrange(Keys(prefix, 0).incoming, count=1)
    return unpack_batch(fields[b"b"]).events[0]


@pytest.mark.parametrize(("days", "uncertain"), [(29, ""), (31, "1 event uncertain")])
def test_after_a_reboot_the_wall_clock_says_whether_redis_may_have_forgotten(
    url: str, prefix: str, root: Path, days: int, uncertain: str
) -> None:
    open_bus_of(url, prefix)
    lay_down(root, url, prefix, days=days)
    done = run("spool", "send", env=environment(url, prefix, spool=str(root)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 events sent\n"
    assert (uncertain in done.stderr) if uncertain else ("uncertain" not in done.stderr)
    assert len(arrived(url, prefix)) == 3


@pytest.mark.parametrize("moment", ["connect", "stop"])
def test_events_stay_if_their_sender_loses_redis_or_is_stopped_before_it_sends(
    url: str, prefix: str, root: Path, moment: str
) -> None:
    open_bus_of(url, prefix)
    lay_down(root, url, prefix, days=0)
    settings, clock = Settings(prefix=prefix, spool=str(root)), SystemClock()
    bus = open_bus(url, settings)

    def connect() -> Transport:
        if moment == "connect":
            raise BusUnavailable("refused")
        made.stop()
        return RedisTransport(bus)

    made = adopter.Adopter(
        root=root,
        name_bus=lambda: BusName(url, prefix, bus.id, bus.partitions),
        connect=connect,
        settings=settings,
        clock=clock,
        losses=Losses(clock),
    )
    with pytest.raises(BusUnavailable):
        made.adopt()
    assert [each.events for each in list_spool(root)] == [2]
    assert send(environment(url, prefix, spool=str(root))) == 2


def open_bus_of(url: str, prefix: str) -> None:
    open_bus(url, Settings(prefix=prefix))


# -- what others have put there --------------------------------------------------------------------------------------


def test_bad_files_harm_nobody_and_are_named(url: str, prefix: str, root: Path) -> None:
    open_bus_of(url, prefix)
    lay_down(root, url, prefix, days=0)
    whole = (root / "1-1-000000" / BATCHES).read_bytes()
    bad = {"garbage": b"\0\1\2" * 50, "newer": b"EBSPOOL9\n" + whole[9:], "spoiled": whole + encode_garbage()}
    bad |= {"torn": whole[:-3], "empty": b""}
    for name, data in bad.items():
        (root / name).mkdir(mode=0o700)
        (root / name / "lock").touch(0o600)
        (root / name / BATCHES).write_bytes(data)
    (root / "open").mkdir(mode=0o755)
    (root / "open").chmod(0o755)
    (root / "a file").touch()
    env = environment(url, prefix, spool=str(root))
    listed = {each["name"]: each for each in json.loads(run("spool", "list", "-o", "json", env=env).stdout)}
    assert {name for name, each in listed.items() if each["state"] == "unreadable"} == {
        "garbage",
        "newer",
        "spoiled",
        "open",
        "a file",
    }
    assert listed["torn"]["problem"].startswith("cut off at byte")
    done = run("spool", "send", env=env)
    assert done.returncode == 1, done.stdout
    # Of three copies of two batches each is in the stream once: they have the same numbers.
    assert len(arrived(url, prefix)) == 3
    assert sorted(os.listdir(root)) == ["a file", "garbage", "newer", "open", "spoiled"]
    assert os.listdir(root / "spoiled") == [UNREADABLE]
    finding = json.loads(run("doctor", "-o", "json", env=env).stdout)["findings"][-1]
    assert (finding["check"], finding["severity"]) == ("spool", "warning")
    assert "garbage: no spool file" in finding["message"]


def test_a_folder_that_cannot_be_sent_does_not_hold_up_the_others(url: str, prefix: str, root: Path) -> None:
    open_bus_of(url, prefix)
    lay_down(root, url, prefix, days=0, name="0-1-000000", partitions=2)
    lay_down(root, url, prefix, days=0)
    done = run("spool", "send", env=environment(url, prefix, spool=str(root)))
    assert done.returncode == 1
    assert "0-1-000000 is for a bus of 2 partitions" in done.stderr
    assert "sent 2 events" in done.stderr
    assert os.listdir(root) == ["0-1-000000"]


def encode_garbage() -> bytes:
    return encode(Header("", "", "", 0, "", "", 0, 0))[:-1] + b"\xff"


def test_what_was_recorded_for_another_bus_is_sent_only_if_told(url: str, prefix: str, root: Path) -> None:
    open_bus_of(url, prefix)
    lay_down(root, url, prefix, days=0)
    other = environment(url, prefix + "x", spool=str(root))
    done = run("spool", "send", env=other)
    assert done.returncode == 1
    assert "it is for another bus: --any-bus sends it to this one" in done.stderr
    assert send(other, "--any-bus") == 2
    assert len(arrived(url, prefix + "x")) == 2
