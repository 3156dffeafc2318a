"""3 recorders over HTTP, through 2 API workers behind a balancer that cuts replies; one worker is killed twice.

`make test` has few of the events, `make test-long` all.
"""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment
from tests.faults.proxy import Mode, Proxy
from tests.support.api_in_process import serving
from tests.support.ports import free_port
from tests.thin import one
from tests.waiting import eventually

PRODUCERS = 3
#: Of each producer.
EVENTS = pytest.mark.parametrize("events", [600, pytest.param(20_000, marks=pytest.mark.volume)])

#: Records argv[1] events about 40 objects, with messages that repeat and messages that do not.
PRODUCER = """
import os, sys
from eventbus import EventBroadcaster, FullBuffer, ObjectReference, Settings

events = int(sys.argv[1])
settings = Settings(url=os.environ["EVENTBUS_URL"], buffer_full=FullBuffer.WAIT, buffer_wait_s=100, flush_s=100)
with EventBroadcaster(settings=settings) as broadcaster:
    recorder = broadcaster.new_recorder("producer", host=sys.argv[2])
    for i in range(events):
        pod = ObjectReference("Pod", "default", f"web-{i % 40}", f"uid-{i % 40}", "v1")
        if i % 10:
            recorder.eventf(pod, "Normal", "Repeated", "message %d", i % 50)
        else:
            recorder.eventf(pod, "Warning", "Unique", "message %d", i)
print(broadcaster.losses.counts, file=sys.stderr)
assert "redis" not in sys.modules
sys.exit(1 if broadcaster.losses.counts else 0)
"""


class Balancer(Proxy):
    """Each line leads to the next of *ports* in turn; replies are cut now and then."""

    def __init__(self, ports: list[int], *, seed: int) -> None:
        super().__init__("", seed=seed, cut_every=15)
        self._ports = itertools.cycle(ports)

    @property
    def upstream(self) -> str:
        """Of the next line."""
        return f"http://127.0.0.1:{next(self._ports)}"

    @upstream.setter
    def upstream(self, _given: str) -> None:
        pass

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def published(bus: Bus) -> int:
    with bus.client() as client:
        return sum(int(client.hget(keys.incoming_meta, "events") or 0) for keys in bus.keys)


def kill_when(due: Callable[[], bool], start: Callable[[], Program], worker: Program, port: int) -> Program:
    """Kill the worker when it is time, and start it anew on the same port."""
    eventually(due)
    worker.kill()
    anew = start()
    eventually(lambda: answers(port))
    return anew


@EVENTS
@pytest.mark.parametrize("partitions", one([4, 1]))
def test_all_is_counted_nothing_lost_nothing_doubled(
    embedded_url: str, prefix: str, tmp_path: Path, partitions: int, events: int
) -> None:
    settings = Settings(prefix=prefix, worker_block_ms=100, partitions=partitions)
    bus = open_bus(embedded_url, settings, options=Options(burst=10**6))
    env = environment(embedded_url, prefix, worker_block_ms="100")
    ports = [free_port(), free_port()]
    log = tmp_path / "log"
    with ExitStack() as stack:

        def start(port: int) -> Program:
            words = ("worker", "api", "--listen", f"127.0.0.1:{port}")
            return stack.enter_context(Program(*words, env=env, folder=tmp_path))

        workers = [start(port) for port in ports]
        command = ("worker", "log", "--format", "json", "--output", str(log))
        readers = [
            stack.enter_context(Program(*words, env=env, folder=tmp_path)) for words in (command, ("worker", "sink"))
        ]
        eventually(lambda: all(map(answers, ports)) and has_groups(bus))
        before = published(bus)
        balancer = Balancer(ports, seed=7)
        stack.enter_context(balancer)
        balancer.mode = Mode.CUT_REPLY
        producing = [
            subprocess.Popen(
                [sys.executable, "-c", PRODUCER, str(events), f"host-{n}"],
                env=env | {"EVENTBUS_URL": balancer.http_url, "EVENTBUS_REDIS_URL": "redis://127.0.0.1:1/0"},
            )
            for n in range(PRODUCERS)
        ]
        for share in (4, 2):
            due = before + PRODUCERS * events // share
            workers[0] = kill_when(lambda: published(bus) >= due, lambda: start(ports[0]), workers[0], ports[0])  # noqa: B023
        assert [producer.wait(150) for producer in producing] == [0] * PRODUCERS
        assert balancer.cuts > 0
        eventually(lambda: waits(bus) == 0)
        assert counted(bus) == PRODUCERS * events
        for program in readers:
            assert program.stop() == 0
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    ours = [line for line in lines if line["source"]["component"] == "producer"]
    assert Counter(line["source"]["host"] for line in ours) == {f"host-{n}": events for n in range(PRODUCERS)}
    assert len({line["metadata"]["uid"] for line in ours}) == PRODUCERS * events


def has_groups(bus: Bus) -> bool:
    with bus.client() as client:
        groups = {info["name"]: info["consumers"] for info in client.xinfo_groups(bus.keys[-1].incoming)}
    return groups.get(b"log") == groups.get(b"sink") == 1


def waits(bus: Bus) -> int:
    """Entries that some group has not finished with."""
    with bus.client() as client:
        found = [client.xinfo_groups(keys.incoming) for keys in bus.keys]
    return sum(info["pending"] + (info["lag"] or 0) for infos in found for info in infos)


def counted(bus: Bus) -> int:
    """What the counts in the store add up to, of the producers' events."""
    with bus.client() as client:
        items = ObjectStore(bus, client).list().items
    return sum(event.count for event in items if event.source.component == "producer")


def test_without_numbers_a_cut_reply_doubles(embedded_url: str, prefix: str) -> None:
    """The control: the same line, and a client that sends again what was not answered, in JSON and without a key."""
    assert doubled(embedded_url, prefix, {}) > 0


def test_with_a_key_each_the_same_client_doubles_nothing(embedded_url: str, prefix: str) -> None:
    assert doubled(embedded_url, prefix, {"Idempotency-Key": "request-%d"}) == 0


def doubled(url: str, prefix: str, headers: dict[str, str]) -> int:
    """How many events lie in the stream more than once after 100 requests of 10, each sent until it was answered."""
    bus = open_bus(url, Settings(prefix=prefix))
    with serving(bus) as api, Balancer([int(api.rpartition(":")[2])], seed=7) as balancer:
        balancer.mode = Mode.CUT_REPLY
        for n in range(100):
            body = json.dumps(
                [
                    {"involvedObject": {"kind": "Job", "name": "j"}, "reason": "Ran", "message": f"{n}-{i}"}
                    for i in range(10)
                ]
            )
            said = {"Content-Type": "application/json"} | {name: text % n for name, text in headers.items()}
            while not sent(balancer.port, body, said):
                pass
        assert balancer.cuts > 0
    from eventbus.model.encoding.wire import unpack_batch, unpack_wire

    with bus.client() as client:
        batches = [unpack_batch(fields[b"b"]) for _, fields in client.xrange(bus.keys[0].incoming)]
    found = Counter(unpack_wire(packed).message for batch in batches for packed in batch.events)
    assert len(found) == 1000
    return sum(n > 1 for n in found.values())


def sent(port: int, body: str, headers: dict[str, str]) -> bool:
    """Whether it was answered."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        line.request("POST", "/eventbus/v1/record", body, headers)
        return line.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        line.close()
