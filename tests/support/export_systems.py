"""The systems of all sinks, as a test of whole workers needs them: stopped, started again, and what they hold."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import nats.errors
import psycopg

from eventbus import Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.model.event import Event
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment
from tests.faults.proxy import Mode, Proxy
from tests.support.api_server import ApiServer, serving
from tests.support.kafka_server import KafkaServer, StoredMessagesApart
from tests.support.kubeconfig import TOKEN, write_kubeconfig
from tests.support.nats_server import NatsServer, StoredMessages
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer
from tests.support.s3_server import S3Store
from tests.support.strict_stores import STRICT_STORES
from tests.support.syslog_server import SyslogServer
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving

#: The stores with a strict stand-in.
STORES = ("otlp", "elasticsearch", "clickhouse", "splunk")
#: The names of them.
SYSTEMS = ("postgres", "kubernetes", "webhook", "webhook-batch", "file", "nats", "kafka", "syslog", "s3", *STORES)
#: Of the replies of a batch, one in so many is cut off, when the request has had its effect.
CUT_BATCHES = 25


class System(msgspec.Struct, kw_only=True):
    """One of them. *held*: the count of every event that it has, by name; {} while it cannot be asked.

    *deliveries*: how often each delivery id was written; None: the system upserts, and holds each event once.
    """

    url: str
    held: Callable[[], Mapping[str, int]]
    stop: Callable[[], object]
    start: Callable[[], object]
    env: Mapping[str, str] = {}
    deliveries: Callable[[], Counter[str]] | None = None


@contextmanager
def running(name: str, folder: Path, *, events: int) -> Iterator[System]:
    """The system called *name*, whose replies are cut now and then: some four times in a round of *events*."""
    makers: dict[str, Callable[[], AbstractContextManager[System]]] = {
        "postgres": lambda: _postgres(CUT_BATCHES),
        "kubernetes": lambda: _kubernetes(folder, events // 4),
        "webhook": lambda: _webhook(events // 4),
        "webhook-batch": _webhook_batch,
        "file": lambda: _file(folder),
        "nats": _nats,
        "kafka": _kafka,
        "syslog": _syslog,
        "s3": _s3,
        **{store: partial(_store, store) for store in STORES},
    }
    with makers[name]() as system:
        yield system


@contextmanager
def _postgres(cut_every: int) -> Iterator[System]:
    server = PostgresServer()
    try:
        url = server.start()

        def held() -> dict[str, int]:
            try:
                with psycopg.connect(url) as connection:
                    return dict(connection.execute("SELECT name, count FROM eventbus_events").fetchall())
            except psycopg.Error:
                return {}

        with _cut(server.port, cut_every) as line:
            reached = f"postgresql://tester@127.0.0.1:{line.port}/postgres"
            env = {"EVENTBUS_POSTGRES_PASSWORD": server.password}
            yield System(url=reached, held=held, stop=server.stop, start=server.restart, env=env)
    finally:
        server.close()


@contextmanager
def _kubernetes(folder: Path, cut_every: int) -> Iterator[System]:
    # The workers' events about themselves have a namespace of their own.
    api = ApiServer(token=TOKEN, namespaces=("default", "eventbus-system"))

    def held() -> dict[str, int]:
        return {name: found["count"] for (_, name), found in api.objects.copy().items()}

    with serving(api) as url, _cut(int(url.rpartition(":")[2]), cut_every) as line:
        config = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{line.port}")
        yield System(url=f"kubernetes:{config}", held=held, stop=lambda: _stop(line), start=lambda: _start(line))


class _HangingUp(Endpoint):
    """Of the requests that it takes, it hangs up on one in *cut_every* without an answer; *away*, it takes none."""

    def __init__(self, cut_every: int) -> None:
        super().__init__()
        self.away = False
        self._cut_every = cut_every
        self._random = random.Random(7)

    def answer(self, delivery: Delivery) -> Answer:
        if self.away:
            return Answer(0)
        answer = super().answer(delivery)
        return Answer(0) if self._random.randrange(self._cut_every) == 0 else answer


@contextmanager
def _webhook(cut_every: int) -> Iterator[System]:
    """A request an event: so many that a proxy in between would be most of the test."""
    endpoint = _HangingUp(cut_every)

    def go() -> None:
        endpoint.away = True

    def come() -> None:
        endpoint.away = False

    with receiving(endpoint) as port:
        yield _webhook_system(endpoint, port, "structured", stop=go, start=come)


@contextmanager
def _webhook_batch() -> Iterator[System]:
    endpoint = Endpoint()
    with receiving(endpoint) as port, _cut(port, CUT_BATCHES) as line:
        yield _webhook_system(endpoint, line.port, "batch", stop=lambda: _stop(line), start=lambda: _start(line))


def _webhook_system(
    endpoint: Endpoint, port: int, mode: str, *, stop: Callable[[], object], start: Callable[[], object]
) -> System:
    seen = 0
    deliveries, counts = Counter[str](), dict[str, int]()

    def read() -> None:
        nonlocal seen
        new, seen = endpoint.deliveries[seen:], len(endpoint.deliveries)
        for request in new:
            found = json.loads(request.body)
            for cloud_event in found if isinstance(found, list) else [found]:
                event = cloud_event["data"]
                deliveries[cloud_event["id"]] += 1
                assert cloud_event["id"] == f"{event['metadata']['uid']}/{event['count']}"
                counts[event["metadata"]["name"]] = event["count"]

    def held() -> dict[str, int]:
        read()
        return counts

    def delivered() -> Counter[str]:
        read()
        return deliveries

    env = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1", "EVENTBUS_WEBHOOK_MODE": mode}
    url = f"http://127.0.0.1:{port}/hook"
    return System(url=url, held=held, env=env, deliveries=delivered, stop=stop, start=start)


@contextmanager
def _store(name: str) -> Iterator[System]:
    store = STRICT_STORES[name]()
    with receiving(store.service) as port, _cut(port, CUT_BATCHES) as line:
        yield System(
            url=store.url(line.port),
            held=lambda: store.counts,
            env={"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"} | store.environ,
            deliveries=lambda: store.repeats,
            stop=lambda: _stop(line),
            start=lambda: _start(line),
        )


@contextmanager
def _nats() -> Iterator[System]:
    server = NatsServer()
    messages = StoredMessages(server)

    def held() -> dict[str, int]:
        with suppress(OSError, nats.errors.Error):  # it is away, or has no stream yet
            messages.read()
        return messages.counts

    try:
        server.start()
        with _cut(server.port, CUT_BATCHES) as line:
            url = f"nats://127.0.0.1:{line.port}"
            yield System(url=url, held=held, deliveries=lambda: messages.ids, stop=server.stop, start=server.start)
    finally:
        server.close()


@contextmanager
def _kafka() -> Iterator[System]:
    server = KafkaServer()
    messages = StoredMessagesApart(server.address)

    def held() -> dict[str, int]:
        messages.read()
        return messages.counts

    try:
        with _cut(server.port, CUT_BATCHES) as line:
            server.advertise(line.port)
            yield System(
                url=f"kafka://127.0.0.1:{line.port}",
                held=held,
                deliveries=lambda: messages.ids,
                stop=lambda: _stop(line),
                start=lambda: _start(line),
            )
    finally:
        server.close()


@contextmanager
def _syslog() -> Iterator[System]:
    server = SyslogServer(reset_every=CUT_BATCHES)
    try:
        yield System(
            url=f"syslog://127.0.0.1:{server.port}",
            held=lambda: server.counts,
            deliveries=lambda: server.repeats,
            stop=server.stop,
            start=server.start,
        )
    finally:
        server.close()
    assert not server.mistakes, server.mistakes[:3]


@contextmanager
def _s3() -> Iterator[System]:
    store = S3Store()
    with receiving(store) as port, _cut(port, CUT_BATCHES) as line:
        yield System(
            url=f"s3+http://127.0.0.1:{line.port}/events?every=0s",
            held=lambda: store.counts,
            env={"EVENTBUS_S3_ACCESS_KEY_ID": "key", "EVENTBUS_S3_SECRET_ACCESS_KEY": "secret"},
            deliveries=lambda: store.repeats,
            stop=lambda: _stop(line),
            start=lambda: _start(line),
        )
    assert not store.mistakes, store.mistakes[:3]


@contextmanager
def another_bus(url: str, prefix: str, folder: Path) -> Iterator[System]:
    """A second bus, whose API worker receives the events of bus *prefix* as log records, and is killed by `stop`.

    *held* has the names of the first bus: its events have one object each.
    """
    port, second = free_port(), f"{prefix}other"
    first_bus, second_bus = (open_bus(url, Settings(redis_url=url, prefix=each)) for each in (prefix, second))
    env = environment(url, second, worker_block_ms="100")
    folder = folder / "other"
    folder.mkdir()
    workers: list[Program] = []

    def start() -> None:
        command = ("worker", "api", "--listen", f"127.0.0.1:{port}")
        workers.append(stack.enter_context(Program(*command, env=env, folder=folder)))

    def held() -> dict[str, int]:
        names = {event.involved_object.name: event.metadata.name for event in _events_of(first_bus)}
        return {names[event.involved_object.name]: event.count for event in _events_of(second_bus)}

    with ExitStack() as stack:
        stack.enter_context(Program("worker", "sink", env=env, folder=folder))
        start()
        line = stack.enter_context(_cut(port, CUT_BATCHES))
        yield System(
            url=f"otlp://127.0.0.1:{line.port}",
            held=held,
            env={"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"},
            stop=lambda: workers[-1].kill(),
            start=start,
        )


def _events_of(bus: Bus) -> list[Event]:
    """Return the events about the pods of the scenario."""
    client = bus.client()
    try:
        found = ObjectStore(bus, client).list("default").items
        return [event for event in found if event.involved_object.name.startswith("pod-")]
    finally:
        client.close()


@contextmanager
def _file(folder: Path) -> Iterator[System]:
    """Its folder goes and comes back: nothing else can be cut."""
    here, away = folder / "lines", folder / "lines-away"
    here.mkdir()
    path = here / "events.jsonl"

    def lines() -> list[dict[str, object]]:
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # the last may be half written
        return [json.loads(line) for line in whole]

    def held() -> dict[str, int]:
        return {line["event"]["metadata"]["name"]: line["event"]["count"] for line in lines()}  # type: ignore[index]

    yield System(
        url=f"file:{path}?fsync=never",
        held=held,
        stop=lambda: here.rename(away),
        start=lambda: away.rename(here),
        deliveries=lambda: Counter(str(line["deliveryId"]) for line in lines()),
    )


@contextmanager
def _cut(port: int, cut_every: int) -> Iterator[Proxy]:
    with Proxy(f"tcp://127.0.0.1:{port}", seed=7, cut_every=cut_every) as line:
        line.mode = Mode.CUT_REPLY
        yield line


def _stop(line: Proxy) -> None:
    line.mode = Mode.REFUSE
    line.hang_up()


def _start(line: Proxy) -> None:
    line.mode = Mode.CUT_REPLY
