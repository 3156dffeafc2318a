"""Each role as a user with a password on a real server: what it must be able to do, and what it must not."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from redis.exceptions import NoPermissionError, ResponseError

from eventbus.agent.node.factory import open_agent
from eventbus.agent.node.heartbeat import heartbeat
from eventbus.broker import function_library
from eventbus.broker.acl import Role, acl_rules, acl_setuser, functions_used, name_of
from eventbus.broker.build import function_name, library
from eventbus.broker.bus import Bus, change_options, open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.groups import delete_group
from eventbus.broker.health.doctor import examine
from eventbus.broker.health.findings import Severity
from eventbus.broker.health.status import read_status
from eventbus.broker.health.user_checks import check_rights, read_lacking
from eventbus.broker.keys import Keys, bus_key, partition_of
from eventbus.broker.notifications import (
    ExpectedEvent,
    NotifyStore,
    forget_notifier,
    read_expected,
    read_notifier_status,
)
from eventbus.broker.stream_reader import GroupReader
from eventbus.consume.housekeeper import Housekeeper
from eventbus.errors import BusRefused, FunctionsMissing
from eventbus.lifecycle.node_monitor import Pace
from eventbus.lifecycle.runner import open_lifecycle
from eventbus.model.event import Event, ObjectReference
from eventbus.model.kinds import EVENT, NODE
from eventbus.model.list_watch import ListOptions
from eventbus.notify.group_reader import read_groups
from eventbus.notify.rules import parse_rules
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.occurrences import read_occurrences
from eventbus.util.clock import SystemClock
from tests.builders import make_event
from tests.support.api_in_process import serving
from tests.support.harness import settings_of
from tests.support.importing import importing
from tests.support.kubeconfig import write_kubeconfig
from tests.support.notifying import notifying
from tests.waiting import eventually

WEB_0 = ObjectReference("Pod", "default", "web-0", "uid-1", "v1")

As = Callable[[Role], str]


@pytest.fixture
def as_role(any_server_url: str, prefix: str) -> Iterator[As]:
    """Makes users as `eventbus acl` says, and the url with which one of them comes."""
    password = secrets.token_hex(16)
    with make_client(any_server_url) as admin:
        for role in Role:
            words = acl_setuser(role, user=f"{prefix}-{role}", password=password, prefix=prefix)
            admin.execute_command("ACL", "SETUSER", *words)
        yield lambda role: with_user(any_server_url, f"{prefix}-{role}", password)
        admin.acl_deluser(*(f"{prefix}-{role}" for role in Role))


@pytest.fixture
def bus_made(as_role: As, settings: Settings) -> As:
    """The bus as the user of role deploy has made it, once the server's admin has loaded the functions."""
    load_functions(as_role(Role.ADMIN))
    open_bus(as_role(Role.DEPLOY), settings)
    return as_role


@pytest.fixture
def client_of(bus_made: As) -> Iterator[Callable[[Role], Any]]:
    made: list[Any] = []

    def make(role: Role) -> Any:
        made.append(make_client(bus_made(role)))
        return made[-1]

    yield make
    for client in made:
        client.close()


def with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


def load_functions(url: str) -> None:
    with make_client(url) as client:
        function_library.load(client)


def record(url: str, settings: Settings, n: int) -> EventBroadcaster:
    """Record through a broadcaster, as programs do; flushed, and still open."""
    broadcaster = EventBroadcaster(url, settings=settings)
    recorder = broadcaster.new_recorder("test")
    for number in range(n):
        recorder.event(WEB_0, "Warning", "BackOff", f"message {number}")
    assert broadcaster.flush(60)
    return broadcaster


def denied(client: Any, *command: str | bytes) -> bool:
    """Return True if the server refuses *command* for want of a right, and for nothing else."""
    try:
        client.execute_command(*command)
    except NoPermissionError:
        return True
    except ResponseError as problem:
        # of a script; the words differ between versions
        said = ("ACL failure in script", "NOPERM", "script can't access at least one of the keys")
        return any(words in str(problem) for words in said)
    return False


def test_a_producer_a_worker_and_a_reader_work_together(bus_made: As, settings: Settings) -> None:
    with record(bus_made(Role.PRODUCER), settings, 20), EventBroadcaster(bus_made(Role.WORKER), settings=settings) as w:
        w.start_recording_to_sink()
        bus = open_bus(bus_made(Role.READER), settings)
        client = bus.client()
        store = ObjectStore(bus, client)
        eventually(lambda: len(store.list("default", kind="pod", name="web-0").items) >= 9)
        watch = store.objects(EVENT).watch(ListOptions(resource_version=store.list().resource_version, timeout_s=60))
        record(bus_made(Role.PRODUCER), settings, 1).shutdown()
        change = next(iter(watch), None)
        watch.stop()
        client.close()
        assert change is not None


def test_a_worker_collects_series_and_writes_their_counts(bus_made: As, settings: Settings) -> None:
    with EventBroadcaster(bus_made(Role.PRODUCER), settings=settings) as producer:
        recorder = producer.new_events_recorder("example.com/test")
        for _ in range(3):
            recorder.eventf(WEB_0, None, "Warning", "BackOff", "Restarting", "x")
        assert producer.flush(60)
    with EventBroadcaster(bus_made(Role.WORKER), settings=settings) as worker:
        worker.start_recording_to_sink()
        bus = open_bus(bus_made(Role.WORKER), settings)
        with bus.client() as client:
            index: Any = bus.keys[0].index_refresh
            eventually(lambda: client.zrange(index, 0, -1))
            assert bus.functions(client, 0).refresh(bus.options, client.zrange(index, 0, -1), 2**42) == 1
            assert [event.times_seen for event in ObjectStore(bus, client).list().items] == [3]


def test_an_agent_keeps_a_node_that_a_worker_watches(bus_made: As, settings: Settings) -> None:
    agent = open_agent(open_bus(bus_made(Role.AGENT), settings), name="n1")
    lifecycle = open_lifecycle(open_bus(bus_made(Role.WORKER), settings), identity="w1", pace=Pace(period_s=0.2))
    bus = open_bus(bus_made(Role.READER), settings)
    client = bus.client()
    nodes = ObjectStore(bus, client).objects(NODE)
    agent.start()
    lifecycle.start()
    try:
        eventually(lambda: agent.loop_health()[0].counts["renewals"])
        with heartbeat("batch", every_s=0.2, for_s=1, url=bus_made(Role.AGENT), settings=settings):
            eventually(lambda: {node.metadata.name for node in nodes.list().items} == {"n1", "batch"})
        status = read_status(open_bus(bus_made(Role.METRICS), settings), make_client(bus_made(Role.METRICS)))
        assert status.lifecycle is not None
        assert (status.lifecycle.holder, status.lifecycle.alive) == ("w1", True)
    finally:
        agent.stop(30)
        lifecycle.stop(30)
    assert nodes.list().items == ()
    client.close()


def test_a_producer_waits_at_shutdown_for_the_stream_that_a_worker_makes_anew(
    any_server_url: str, bus_made: As, settings: Settings
) -> None:
    producer = record(bus_made(Role.PRODUCER), settings, 1)
    bus = open_bus(bus_made(Role.WORKER), settings)
    with make_client(any_server_url) as admin:
        admin.delete(bus.keys[0].incoming)
    producer.new_recorder("c").event(WEB_0, "Normal", "Waits", "")
    closing = threading.Thread(target=producer.shutdown, args=(60,))
    closing.start()
    outbox = producer._outbox
    eventually(lambda: outbox._closing.happened)
    failures = outbox._failures
    eventually(lambda: outbox._failures > failures + 1)  # it may not make the stream, and tries again
    with bus.client() as worker:
        bus.open_partition(worker, 0)
    closing.join(60)
    assert producer.shutdown()
    assert "unsent" not in producer.losses.counts
    with make_client(any_server_url) as admin:
        assert admin.xlen(bus.keys[0].incoming) == 1


def test_a_stream_that_a_producer_may_not_make_anew_holds_up_its_own_partition_alone(
    any_server_url: str, as_role: As, prefix: str
) -> None:
    settings = settings_of(prefix, partitions=2)
    load_functions(as_role(Role.ADMIN))
    bus = open_bus(as_role(Role.DEPLOY), settings)
    about = [ObjectReference("Pod", "default", f"web-{n}") for n in range(64)]
    missing, there = (next(each for each in about if partition_of(each, 2) == partition) for partition in (0, 1))
    producer = EventBroadcaster(as_role(Role.PRODUCER), settings=settings)
    recorder = producer.new_recorder("c")
    recorder.event(there, "Normal", "Opens", "")
    assert producer.flush(60)
    with make_client(any_server_url) as admin:
        admin.delete(bus.keys[0].incoming)
    recorder.event(missing, "Normal", "Waits", "")
    eventually(lambda: 0 in producer._outbox._sender._waits.failed_partitions)
    recorder.event(there, "Normal", "Arrives", "")
    there_too = producer._outbox._sender.producers[1]
    try:
        eventually(lambda: there_too.added == 2 and not there_too.pending)
    finally:
        assert not producer.shutdown(0.2)
    assert producer.losses.counts == {"unsent": 1}


def test_a_worker_does_all_that_its_threads_do(bus_made: As, settings: Settings) -> None:
    record(bus_made(Role.PRODUCER), settings, 70).shutdown()
    bus = open_bus(bus_made(Role.WORKER), settings)
    client = bus.client(block_ms=50)

    def member(name: str) -> GroupReader:
        return GroupReader(
            bus=bus, client=client, partition=0, group="audit", consumer=name, policy=GroupPolicy.WAIT, start="0"
        )

    dead, heir = member("dead"), member("heir")
    assert dead.open()
    assert dead.read(50, beat=True)
    beats = heir.heartbeats()
    claimed = heir.claim("dead", beats["dead"])
    entry = claimed[0].id
    assert heir.still_own([entry]) == {entry}
    assert heir.isolate(entry, 0)
    assert heir.own_pending()[0].next_position == 0
    assert heir.functions.bury("audit", "heir", entry, "test", 1, b"x")
    heir.ack([delivery.id for delivery in claimed[1:]])
    heir.read(1, beat=True)
    heir.beat()
    heir.leave()
    housekeeper = Housekeeper(bus=bus, clock=SystemClock())
    housekeeper.trim(client, 0)
    housekeeper.sweep(client, 0, now_ms=2**42)
    bus.functions(client, 0).expire(Options(), [b"0" * 14])
    client.close()


def test_a_reader_watches_the_stream(bus_made: As, settings: Settings) -> None:
    seen: list[Event] = []
    with EventBroadcaster(bus_made(Role.READER), settings=settings) as watching:
        watching.start_event_watcher(seen.append)
        record(bus_made(Role.PRODUCER), settings, 3).shutdown()
        eventually(lambda: len(seen) == 3)


def test_a_user_of_a_role_lacks_no_right_of_it(client_of: Callable[[Role], Any], prefix: str) -> None:
    for role in Role:
        assert read_lacking(client_of(role), prefix, f"{prefix}-{role}")[role] == []


def test_a_right_that_is_missing_inside_a_function_is_found(
    any_server_url: str, client_of: Callable[[Role], Any], prefix: str
) -> None:
    client = client_of(Role.WORKER)
    with make_client(any_server_url) as admin:
        rules = [rule.replace(" +zrem", "") for rule in acl_rules(Role.WORKER, prefix)]
        admin.execute_command("ACL", "SETUSER", f"{prefix}-worker", *rules)
    assert "ZREM index_forget" in read_lacking(client, prefix, f"{prefix}-worker")[Role.WORKER]
    assert check_rights(client, prefix, Role.WORKER).severity is Severity.ERROR


def test_the_doctor_names_what_a_user_lacks_for_its_role(client_of: Callable[[Role], Any], prefix: str) -> None:
    assert check_rights(client_of(Role.PRODUCER), prefix, Role.PRODUCER).severity is Severity.OK
    found = check_rights(client_of(Role.PRODUCER), prefix, Role.WORKER)
    assert found.severity is Severity.ERROR
    assert "worker" in found.cure


def test_whoever_fills_no_role_is_told_the_nearest(any_server_url: str, prefix: str) -> None:
    user = f"{prefix}-nobody"
    with make_client(any_server_url) as admin:
        rules = ["reset", "on", ">pw", "-@all", "+acl|whoami", "+acl|dryrun", "+ping", "+client|setname"]
        admin.execute_command("ACL", "SETUSER", user, *rules)
        with make_client(with_user(any_server_url, user, "pw")) as client:
            found = check_rights(client, prefix, None)
        admin.execute_command("ACL", "SETUSER", user, "-acl|dryrun")
        with make_client(with_user(any_server_url, user, "pw")) as client:
            unknown = check_rights(client, prefix, None)
        admin.acl_deluser(user)
    assert (found.severity, "fills no role" in found.message) == (Severity.ERROR, True)
    assert (unknown.severity, "may not ask" in unknown.message) == (Severity.WARNING, True)


def test_every_dry_run_is_of_a_call_that_the_server_knows(server_url: str, prefix: str) -> None:
    """The administrator may do everything; what is refused then is refused for its form, and proves nothing."""
    with make_client(server_url) as admin:
        roles = read_lacking(admin, prefix, "default")
    assert all(lacking == [] for lacking in roles.values())


@pytest.mark.parametrize("role", [Role.METRICS, Role.DEPLOY])
def test_metrics_read_every_number(bus_made: As, settings: Settings, role: Role) -> None:
    record(bus_made(Role.PRODUCER), settings, 5).shutdown()
    bus = open_bus(bus_made(role), settings)
    client = bus.client()
    status = read_status(bus, client)
    now = datetime.now(UTC)
    assert read_occurrences(bus, client, now, now).rows == (), "no worker has counted any; the role may look"
    client.close()
    assert status.counters["published"] == 5
    assert [(group.name, group.lag, group.lag_exact) for group in status.groups] == [("sink", 5, True)]
    (partition,) = status.partitions
    levels = (partition.incoming, partition.changes, partition.dead, partition.stored, partition.records)
    assert None not in [level.used for level in (*levels, status.memory)]


def _expected(bus: Bus) -> list[ExpectedEvent]:
    with bus.client() as client:
        return read_expected(bus, client)


def test_a_notifier_reads_events_and_keeps_its_state(
    bus_made: As, settings: Settings, any_server_url: str, prefix: str
) -> None:
    bus = open_bus(bus_made(Role.NOTIFIER), settings)
    rules = "route: {receiver: a, group_wait: 0s}\nreceivers: [{name: a}]\nexpect:\n"
    rules += '- {name: job, matchers: [\'kind="Job",name="db",reason="Done"\'], every: 500ms}'
    with (
        notifying(bus, rules) as notifier,
        record(bus_made(Role.PRODUCER), settings, 1),
        EventBroadcaster(bus_made(Role.WORKER), settings=settings) as w,
    ):
        w.start_recording_to_sink()
        eventually(lambda: notifier.loop_health()[0].gauges.get("groups") == 1)
        eventually(lambda: notifier.loop_health()[0].gauges.get("missing_events") == 1)
        eventually(lambda: not any(state.reports for state in _expected(bus)))  # it was recorded
        client = open_bus(bus_made(Role.METRICS), settings).client()
        status = read_notifier_status(bus, client)
        client.close()
        worker = open_bus(bus_made(Role.WORKER), settings).client()  # as an API worker
        eventually(lambda: read_groups(bus, worker, lambda alert: alert.fires, 10)[0])
        worker.close()
    assert status is not None
    assert (status.holder, [file.hash for file in status.files]) == ("one", [parse_rules(rules).hash])
    with make_client(any_server_url) as admin:
        refused = [line["object"] for line in admin.acl_log(1_000) if line["username"] == f"{prefix}-notifier"]
    assert refused == []


def test_an_importer_writes_events_and_its_lease(
    bus_made: As, settings: Settings, any_server_url: str, prefix: str, tmp_path: Path
) -> None:
    cluster = open_bus(any_server_url, replace(settings, prefix=f"{prefix}c"))
    bus = open_bus(bus_made(Role.IMPORTER), settings)
    with ObjectStore.of(cluster) as store, serving(cluster) as url:
        events = store.objects(EVENT)
        event = events.create(make_event())
        with importing(bus, write_kubeconfig(tmp_path / "config", url)) as importer:
            eventually(lambda: importer.loop_health()[0].counts["written"] == 1)
            events.update(replace(event, count=2))
            eventually(lambda: importer.loop_health()[0].counts["written"] == 2)
        assert importer.loop_health()[0].counts["failures"] == 0
    with make_client(any_server_url) as admin:
        refused = [line["object"] for line in admin.acl_log(1_000) if line["username"] == f"{prefix}-importer"]
    assert refused == []


def test_metrics_may_call_the_doctor(bus_made: As, settings: Settings) -> None:
    findings = {finding.check: finding for finding in examine(bus_made(Role.METRICS), settings, role=Role.METRICS)}
    assert findings["acl"].severity is Severity.OK
    assert findings["functions"].severity is Severity.OK
    assert findings["server"].severity is Severity.OK
    assert "prefix" in findings["bus"].message


def test_nobody_asks_for_what_it_may_not(bus_made: As, any_server_url: str, settings: Settings, prefix: str) -> None:
    """Each refusal would be a line in the ACL log, and those that matter would drown in them."""
    for role in Role:
        bus = open_bus(bus_made(role), settings)
        if role in (Role.METRICS, Role.DEPLOY):
            examine(bus_made(role), settings, role=role)
        if role is Role.WORKER:
            with bus.client() as client:
                Housekeeper(bus=bus, clock=SystemClock()).trim(client, 0)
    with make_client(any_server_url) as admin:
        lines = [(line["username"], line["object"]) for line in admin.acl_log(1_000)]
    assert [line for line in lines if line[0].startswith(prefix)] == []


def test_deploy_sets_options_and_deletes_groups(bus_made: As, settings: Settings, prefix: str) -> None:
    bus = open_bus(bus_made(Role.DEPLOY), settings)
    client = bus.client()
    options, version, _ = change_options(client, prefix, lambda _: Options(burst=7))
    assert (options.burst, version) == (7, 2)
    bus.open_partition(client, 0, "billing", GroupPolicy.DROP, "0")
    assert delete_group(bus, client, "billing") == 1
    assert [group.name for group in read_status(bus, client).groups] == ["sink"]
    client.close()


def test_the_user_of_a_notifier_forgets_its_state(bus_made: As, settings: Settings) -> None:
    bus = open_bus(bus_made(Role.NOTIFIER), settings)
    with bus.client() as client:
        notifier = NotifyStore(bus=bus, client=client, consumer="one")
        notifier.acquire("rules")
        assert notifier.settle({"aone": b"\x91\xa3one"}, {"position:0": "7"}, life_ms=60_000)
        assert forget_notifier(bus, client)
        assert read_notifier_status(bus, client) is None


def test_an_admin_loads_functions_and_lists_them(client_of: Callable[[Role], Any]) -> None:
    client = client_of(Role.ADMIN)
    assert not denied(client, "FUNCTION", "LIST")
    assert function_library.load(client) is False
    with pytest.raises(ResponseError, match="already exists"):
        client.function_load(library())


def test_an_admin_backs_up_and_reloads_users(client_of: Callable[[Role], Any]) -> None:
    admin = client_of(Role.ADMIN)
    for words in ("BGREWRITEAOF", "ACL LOAD", "LASTSAVE", "INFO persistence", "CONFIG GET dir"):
        assert not denied(admin, *words.split()), words


def test_no_role_but_deploy_makes_a_bus(as_role: As, settings: Settings) -> None:
    load_functions(as_role(Role.ADMIN))
    for role in set(Role) - {Role.DEPLOY}:
        with pytest.raises(BusRefused):
            open_bus(as_role(role), settings)
        with make_client(as_role(role)) as client:
            assert denied(client, "HSET", bus_key(settings.prefix), "options", "{}"), role


def test_a_bus_without_functions_is_refused_with_the_admins_command(
    any_server_url: str, as_role: As, settings: Settings
) -> None:
    with make_client(any_server_url) as admin:
        admin.function_flush()
    with pytest.raises(FunctionsMissing, match="run `eventbus functions load` of this version as a user of role admin"):
        open_bus(as_role(Role.DEPLOY), settings)
    load_functions(as_role(Role.ADMIN))
    assert open_bus(as_role(Role.DEPLOY), settings).partitions == 1


#: What would harm the bus or tell its secrets; {p} is the partition's keys.
HARM: list[tuple[str, set[Role]]] = [
    ("FLUSHALL", set()),
    ("KEYS *", set()),
    ("CONFIG GET requirepass", {Role.ADMIN}),
    ("EVAL 'return_1' 0", set()),
    ("ACL LIST", set()),
    ("SET other 1", set()),
    ("GET other", set()),
    ("DEL {p}incoming", set()),
    ("DEL {p}meta", set()),
    ("XSETID {p}incoming 0-0", {Role.WORKER, Role.DEPLOY}),
    ("HSET {p}meta rv 1", {Role.WORKER, Role.DEPLOY}),
    ("HDEL {p}meta floor:none", {Role.WORKER, Role.DEPLOY}),
    ("XGROUP DESTROY {p}incoming none", {Role.DEPLOY}),
    ("XTRIM {p}incoming MAXLEN 0", {Role.WORKER, Role.DEPLOY}),
    ("XRANGE {p}incoming - +", {Role.WORKER, Role.METRICS, Role.IMPORTER, Role.DEPLOY}),
    ("XREAD STREAMS {p}incoming 0",
     {Role.READER, Role.OPERATOR, Role.NOTIFIER, Role.IMPORTER, Role.WORKER, Role.DEPLOY}),
    ("XREADGROUP GROUP none x STREAMS {p}incoming >", {Role.WORKER}),
    ("MGET {p}object:events:x", {Role.READER, Role.OPERATOR, Role.NOTIFIER, Role.IMPORTER, Role.WORKER, Role.DEPLOY}),
    ("XADD {p}incoming NOMKSTREAM * a b",
     {Role.PRODUCER, Role.AGENT, Role.OPERATOR, Role.NOTIFIER, Role.IMPORTER, Role.WORKER, Role.DEPLOY}),
    ("FCALL REMOVE 7 {p}version:nodes {p}note:nodes {p}index:name:nodes {p}changes:nodes {p}object:nodes:x {p}meta"
     " {p}spoiled x 60000",
     {Role.DEPLOY, Role.WORKER, Role.AGENT, Role.OPERATOR}),
    ("FCALL REMOVE 7 {p}version:robots {p}note:robots {p}index:name:robots {p}changes:robots {p}object:robots:x"
     " {p}meta {p}spoiled x 60000",
     {Role.DEPLOY, Role.WORKER}),
    ("FCALL REMOVE 7 {p}version:silences {p}note:silences {p}index:name:silences {p}changes:silences"
     " {p}object:silences:x {p}meta {p}spoiled x 60000",
     {Role.DEPLOY, Role.WORKER, Role.OPERATOR, Role.NOTIFIER}),
    ("MGET {p}object:nodes:x",
     {Role.READER, Role.AGENT, Role.OPERATOR, Role.NOTIFIER, Role.IMPORTER, Role.WORKER, Role.DEPLOY}),
    ("ZRANGE {p}index:notify -inf +inf BYSCORE", {Role.OPERATOR, Role.NOTIFIER, Role.WORKER, Role.DEPLOY}),
    ("MGET {p}notify:gx", {Role.OPERATOR, Role.NOTIFIER, Role.WORKER, Role.DEPLOY}),
]  # fmt: skip
#: Of what runs programs or is secret, by verb: one role alone.
OPERATED: list[tuple[str, set[Role]]] = [
    ("MGET {p}operated:object:KIND:x", {Role.OPERATOR}),
    ("XREAD STREAMS {p}operated:changes:KIND 0", {Role.OPERATOR}),
    ("ZRANGE {p}operated:index:name:KIND - + BYLEX", {Role.OPERATOR}),
    ("SET {p}operated:object:KIND:x 1", set()),
    ("DEL {p}operated:object:KIND:x", {Role.OPERATOR}),
    ("FCALL REMOVE 7 {p}operated:version:KIND {p}operated:note:KIND {p}operated:index:name:KIND"
     " {p}operated:changes:KIND {p}operated:object:KIND:x {p}meta {p}spoiled x 60000",
     {Role.OPERATOR}),
]  # fmt: skip
HARM += [(line.replace("KIND", kind), roles) for kind in ("pods", "configmaps", "secrets") for line, roles in OPERATED]


def test_harm_is_open_to_those_alone_whose_work_it_is(client_of: Callable[[Role], Any], prefix: str) -> None:
    clients = {role: client_of(role) for role in Role}
    for command, allowed in HARM:
        words = command.replace("{p}", f"{prefix}:{{0}}:").replace("REMOVE", function_name("remove")).split()
        assert {role for role, client in clients.items() if not denied(client, *words)} == allowed, command


def test_nobody_reaches_a_bus_of_another_prefix(client_of: Callable[[Role], Any], prefix: str) -> None:
    other_prefix = f"{prefix}x"
    other = Keys(other_prefix, 0)
    for role in Role:
        client = client_of(role)
        for function in functions_used().values():
            keys = [name_of(other_prefix, other, name) for name in function.keys]
            if keys:
                assert denied(client, "FCALL", function.name, str(len(keys)), *keys), (role, function.name)
        assert denied(client, "XREAD", "STREAMS", other.changes_of("events"), "0")
