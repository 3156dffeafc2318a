"""Objects of every kind: read, written and watched with the rules and the words of the API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar

import msgspec
import pytest

from eventbus.broker.bus import Bus
from eventbus.broker.keys import version_in
from eventbus.errors import AlreadyExists, Conflict, Expired, InvalidObject, NotFound
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import EVENT, LEASE, NODE, Kind
from eventbus.model.list_watch import ListOptions, VersionMatch, WatchEvent, WatchEventType
from eventbus.model.objects.cluster import Lease, LeaseSpec, Node, NodeCondition, NodeSpec, NodeStatus
from eventbus.model.selectors import InvalidSelector
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store import scan
from eventbus.store.object_store import ObjectStore
from eventbus.store.reader import StoreWatch
from eventbus.store.writer import ObjectWriter
from tests.builders import make_reference
from tests.support.api_in_process import serving
from tests.support.harness import bus_with, settings_of, stored_events
from tests.thin import one
from tests.waiting import eventually

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.fixture(params=one([4, 1]), ids="{} partitions".format)
def settings(request: pytest.FixtureRequest, prefix: str) -> Settings:
    return settings_of(prefix, partitions=request.param)


@pytest.fixture
def bus(embedded_url: str, settings: Settings) -> Bus:
    return bus_with(embedded_url, settings, burst=100_000)


#: For tests that hold whichever way a program goes to the bus.
over_both = pytest.mark.parametrize("store", ["redis", "http"], indirect=True)


@pytest.fixture
def store(bus: Bus, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    """Over Redis; with `over_both` through an API worker, too."""
    if getattr(request, "param", "redis") == "http":
        with serving(bus) as url, ObjectStore.open(url) as store:
            yield store
        return
    client = bus.client()
    with ObjectStore(bus, client) as store:
        yield store
    client.close()


@pytest.fixture
def nodes(store: ObjectStore) -> ObjectWriter[Node]:
    return store.objects(NODE)


@pytest.fixture
def leases(store: ObjectStore) -> ObjectWriter[Lease]:
    return store.objects(LEASE)


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings, bus: Bus) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        yield broadcaster


def node(name: str = "n1", *, unschedulable: bool = False, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(unschedulable=unschedulable))


def lease(name: str = "n1", namespace: str = "kube-node-lease", holder: str | None = None) -> Lease:
    return Lease(metadata=ObjectMeta(name=name, namespace=namespace), spec=LeaseSpec(holder_identity=holder))


def names(items: Any) -> list[str]:
    return sorted(found.metadata.name for found in items)


def version(found: Any) -> int:
    return int(found.metadata.resource_version)


# -- writing and reading -------------------------------------------------------------------------------------------


def test_a_created_object_has_uid_creation_time_and_version_and_is_read_as_it_was_written(
    nodes: ObjectWriter[Node],
) -> None:
    ready = NodeCondition("Ready", "True", datetime.now(UTC), None, "KubeletReady", "fine")
    wanted = msgspec.structs.replace(node(app="web"), status=NodeStatus({"cpu": "4"}, {}, (ready,)))
    before = datetime.now(UTC).replace(microsecond=0)
    made = nodes.create(wanted)
    assert made.metadata.uid
    assert made.metadata.creation_timestamp
    assert before <= made.metadata.creation_timestamp <= datetime.now(UTC)
    assert version(made) > 0
    assert nodes.get("n1") == made
    assert (made.spec, made.status, made.metadata.labels) == (wanted.spec, wanted.status, {"app": "web"})
    assert (made.kind, made.api_version) == ("Node", "v1")


@over_both
def test_what_is_missing_or_there_already_is_worded_as_by_the_api_server(
    nodes: ObjectWriter[Node], leases: ObjectWriter[Lease]
) -> None:
    with pytest.raises(NotFound, match=r'^nodes "n1" not found$'):
        nodes.get("n1")
    with pytest.raises(NotFound, match=r'^leases\.coordination\.k8s\.io "n1" not found$'):
        leases.delete("n1", "kube-node-lease")
    for write in (nodes.update, nodes.update_status):
        with pytest.raises(NotFound, match=r'^nodes "n1" not found$'):
            write(node())
    nodes.create(node())
    with pytest.raises(AlreadyExists, match=r'^nodes "n1" already exists$'):
        nodes.create(node())


@over_both
def test_an_update_at_an_old_version_is_a_conflict_and_without_a_version_goes_over_what_is_there(
    nodes: ObjectWriter[Node],
) -> None:
    first = nodes.create(node())
    second = nodes.update(msgspec.structs.replace(first, spec=NodeSpec(unschedulable=True)))
    assert version(second) > version(first)
    with pytest.raises(Conflict, match=f'^Operation cannot be fulfilled on nodes "n1": {MODIFIED}$'):
        nodes.update(first)
    third = nodes.update(node(app="web"))
    assert third == nodes.get("n1")
    assert (third.metadata.uid, third.metadata.creation_timestamp) == (
        first.metadata.uid,
        first.metadata.creation_timestamp,
    )
    assert (third.spec.unschedulable, third.metadata.labels) == (False, {"app": "web"})


@over_both
def test_an_update_that_changes_nothing_is_not_written(nodes: ObjectWriter[Node]) -> None:
    made = nodes.create(node())
    assert nodes.update(made) == made
    assert nodes.update(node()) == made
    assert nodes.patch("n1", {}) == made


def test_status_and_the_rest_are_written_apart(nodes: ObjectWriter[Node], leases: ObjectWriter[Lease]) -> None:
    nodes.create(node())
    reported = msgspec.structs.replace(node(app="x"), status=NodeStatus({"cpu": "4"}))
    with_status = nodes.update_status(reported)
    assert (with_status.status.capacity, with_status.metadata.labels) == ({"cpu": "4"}, {})
    with_labels = nodes.update(node(app="x"))
    assert (with_labels.status.capacity, with_labels.metadata.labels) == ({"cpu": "4"}, {"app": "x"})
    patch = {"metadata": {"labels": {"app": "y"}}, "status": {"capacity": {"cpu": "8"}}}
    assert nodes.patch("n1", patch, status=True).metadata.labels == {"app": "x"}
    assert nodes.patch("n1", {"status": {"capacity": None}}).status.capacity == {"cpu": "8"}
    with pytest.raises(InvalidObject, match="no status"):
        leases.update_status(lease())


@over_both
def test_a_merge_patch_sets_and_takes_out_and_can_ask_for_a_version(leases: ObjectWriter[Lease]) -> None:
    made = leases.create(lease(holder="a"))
    patched = leases.patch("n1", {"metadata": {"labels": {"a": "b"}}, "spec": {"holderIdentity": None}}, made_in(made))
    assert (patched.metadata.labels, patched.spec.holder_identity) == ({"a": "b"}, None)
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}}
    with pytest.raises(Conflict):
        leases.patch("n1", stale, made_in(made))
    with pytest.raises(InvalidObject, match="the name of the object"):
        leases.patch("n1", {"metadata": {"name": "n2"}}, made_in(made))
    with pytest.raises(InvalidObject, match=r"Lease is invalid: spec\.leaseDurationSeconds: Expected `int"):
        leases.patch("n1", {"spec": {"leaseDurationSeconds": "x"}}, made_in(made))


def made_in(found: Any) -> str:
    return str(found.metadata.namespace)


def test_an_object_is_deleted_at_its_version_or_any(nodes: ObjectWriter[Node]) -> None:
    made = nodes.create(node())
    with pytest.raises(Conflict, match=MODIFIED):
        nodes.delete("n1", version="12")
    nodes.delete("n1", version=made.metadata.resource_version)
    with pytest.raises(NotFound):
        nodes.get("n1")
    assert nodes.create(node()).metadata.uid != made.metadata.uid


@over_both
def test_a_name_is_generated_behind_its_beginning(nodes: ObjectWriter[Node]) -> None:
    made = [nodes.create(Node(metadata=ObjectMeta(generate_name="node-"))) for _ in range(5)]
    assert len({found.metadata.name for found in made}) == 5
    assert all(found.metadata.name.startswith("node-") and len(found.metadata.name) == 10 for found in made)


#: An object that cannot be a Node, and what is said of it.
BREAKING: list[tuple[Any, str]] = [
    (node(""), 'Node "" is invalid: metadata.name: Required value: name or generateName is required'),
    (node("A b"), 'Node "A b" is invalid: metadata.name: Invalid value: "A b": a lowercase RFC 1123 subdomain'),
    (Node(metadata=ObjectMeta(name="n", namespace="x")), "metadata.namespace: Forbidden: not allowed on this type"),
    (Node(metadata=ObjectMeta(name="n", resource_version="1")), "resourceVersion should not be set on objects"),
    (node(big="x" * 300_000), "Request entity too large: limit is 262144 bytes"),
    (lease(), "a Node must be a Node, is Lease"),
]


def test_what_breaks_a_rule_is_refused(nodes: ObjectWriter[Any]) -> None:
    for found, problem in BREAKING:
        with pytest.raises(InvalidObject) as refused:
            nodes.create(found)
        assert problem in str(refused.value)
    assert nodes.list().items == ()


def test_a_lease_needs_a_namespace(leases: ObjectWriter[Lease]) -> None:
    said = r'Lease\.coordination\.k8s\.io "n1" is invalid: metadata\.namespace: Required value'
    with pytest.raises(InvalidObject, match=said):
        leases.create(lease(namespace=""))


@over_both
def test_a_recorded_event_is_found_by_its_name_and_deleted(
    store: ObjectStore, broadcaster: EventBroadcaster, bus: Bus
) -> None:
    broadcaster.new_recorder("c").event(make_reference(), "Normal", "Said", "x")
    eventually(lambda: len(stored_events(bus)) == 1)
    (event,) = store.objects(EVENT).list().items
    assert store.get("default", event.metadata.name) == event
    store.delete("default", event.metadata.name)
    with pytest.raises(NotFound, match=f'^events "{event.metadata.name}" not found$'):
        store.objects(EVENT).get(event.metadata.name, "default")


# -- kinds ---------------------------------------------------------------------------------------------------------


class Rack(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of the user's own."""

    kind: ClassVar[str] = "Rack"
    api_version: ClassVar[str] = "example.com/v1"
    metadata: ObjectMeta = ObjectMeta()
    row_number: int = 0


RACK = Kind(
    name="Rack",
    plural="racks",
    namespaced=True,
    type=Rack,
    fields={"rowNumber": lambda rack: str(rack.row_number)},
)


def test_a_kind_of_the_users_own_is_stored_selected_and_watched(bus: Bus) -> None:
    client = bus.client()
    with ObjectStore(bus, client) as store:
        racks = store.objects(RACK)
        watch = racks.watch(ListOptions(resource_version=racks.list().resource_version))
        made = racks.create(Rack(metadata=ObjectMeta(name="a", namespace="x"), row_number=3))
        racks.create(Rack(metadata=ObjectMeta(name="b", namespace="x"), row_number=4))
        assert next(iter(watch)).object == made
        watch.stop()
        assert names(racks.list(ListOptions(field_selector="rowNumber=4")).items) == ["b"]
        assert names(racks.list(ListOptions(field_selector="metadata.name=b,metadata.namespace=x")).items) == ["b"]
        assert racks.patch("a", {"rowNumber": 5}, "x").row_number == 5
        with pytest.raises(NotFound, match=r'^racks\.example\.com "c" not found$'):
            racks.get("c", "x")
        assert racks.kind.encode(made)["apiVersion"] == "example.com/v1"
    client.close()


def test_a_kind_with_a_spec_counts_its_changes_in_the_generation(store: ObjectStore) -> None:
    shape = msgspec.defstruct("Job", [("spec", int, 0), ("status", int, 0)], bases=(Rack,), frozen=True, kw_only=True)
    job: Kind[Any] = Kind(name="Rack", plural="jobs", namespaced=True, type=shape, has_status=True)
    jobs = store.objects(job)
    made = jobs.create(shape(metadata=ObjectMeta(name="a", namespace="x", generation=7), spec=1))
    assert made.metadata.generation == 1
    assert jobs.patch("a", {"metadata": {"labels": {"a": "b"}, "generation": 9}}, "x").metadata.generation == 1
    assert jobs.patch("a", {"status": 3}, "x", status=True).metadata.generation == 1
    assert jobs.patch("a", {"spec": 2}, "x").metadata.generation == 2
    assert jobs.get("a", "x").metadata.generation == 2


@over_both
def test_nodes_and_leases_have_no_generation_as_in_kubernetes(
    nodes: ObjectWriter[Node], leases: ObjectWriter[Lease]
) -> None:
    nodes.create(node())
    assert nodes.patch("n1", {"spec": {"unschedulable": True}}).metadata.generation == 0
    leases.create(lease())
    assert leases.patch("n1", {"spec": {"holderIdentity": "me"}}, "kube-node-lease").metadata.generation == 0


# -- listing -------------------------------------------------------------------------------------------------------


def test_lists_select_by_namespace_labels_and_fields(nodes: ObjectWriter[Node], leases: ObjectWriter[Lease]) -> None:
    nodes.create(node("a", app="web"))
    nodes.create(node("b", app="db", unschedulable=True))
    nodes.create(node("c"))
    for namespace in ("x", "xy"):
        leases.create(lease("l", namespace))

    def found(**asked: Any) -> str:
        return "".join(names(nodes.list(ListOptions(**asked)).items))

    assert found() == "abc"
    assert found(label_selector="app") == "ab"
    assert found(label_selector="app in (db),!x") == "b"
    assert found(field_selector="metadata.name=c") == "c"
    assert found(field_selector="spec.unschedulable=true") == "b"
    assert found(field_selector="spec.unschedulable!=true", label_selector="app=web") == "a"
    assert [one.metadata.namespace for one in leases.list(ListOptions(namespace="x")).items] == ["x"]
    assert len(leases.list(ListOptions(field_selector="metadata.name=l")).items) == 2
    with pytest.raises(InvalidSelector, match=r"^field label not supported: spec\.x$"):
        found(field_selector="spec.x=1")
    with pytest.raises(InvalidSelector, match="unable to parse requirement"):
        found(label_selector="a in")


@over_both
def test_a_page_goes_on_where_anything_lies_behind_it_selected_or_not(nodes: ObjectWriter[Node]) -> None:
    """As in the API server, which reads no further than the page is long."""
    for name, app in (("a", "web"), ("b", "db"), ("c", "db")):
        nodes.create(node(name, app=app))
    first = ListOptions(limit=1, label_selector="app=web")
    page = nodes.list(first)
    rest = nodes.list(msgspec.structs.replace(first, continue_=page.continue_))
    assert (names(page.items), bool(page.continue_)) == (["a"], True)
    assert (names(rest.items), rest.continue_) == ([], "")
    last = nodes.list(ListOptions(limit=2, label_selector="app=db"))
    assert (names(last.items), last.continue_) == (["b", "c"], "")


@over_both
def test_pages_are_as_long_as_asked_and_together_are_everything_once(nodes: ObjectWriter[Node]) -> None:
    for i in range(11):
        nodes.create(node(f"n{i:02}", app="web" if i % 2 else "db"))
    for selector, expected in (("", 11), ("app=web", 5)):
        options, pages = ListOptions(limit=3, label_selector=selector), []
        while True:
            page = nodes.list(options)
            pages.append(page)
            if not page.continue_:
                break
            options = msgspec.structs.replace(options, continue_=page.continue_)
        assert [len(page.items) for page in pages] == [3] * (expected // 3) + [expected % 3] * bool(expected % 3)
        assert len(set(names(item for page in pages for item in page.items))) == expected
        assert len({page.resource_version for page in pages}) == 1
    assert nodes.list(ListOptions(limit=11)).continue_ == ""


@over_both
def test_a_continued_list_expires_with_the_store_and_nonsense_is_refused(nodes: ObjectWriter[Node], bus: Bus) -> None:
    for i in range(4):
        nodes.create(node(f"n{i}"))
    page = nodes.list(ListOptions(limit=1))
    with bus.client() as client:
        for keys in bus.keys:
            client.set(keys.version_of("nodes"), "2 0")
    with pytest.raises(Expired, match="The provided continue parameter is too old"):
        nodes.list(ListOptions(limit=1, continue_=page.continue_))
    with pytest.raises(InvalidObject, match="continue key is not valid"):
        nodes.list(ListOptions(limit=1, continue_="x"))


@over_both
def test_versions_of_a_list(nodes: ObjectWriter[Node], bus: Bus) -> None:
    nodes.create(node("a"))
    listed = nodes.list()

    def found(asked: str, match: VersionMatch = VersionMatch.UNSET) -> list[str]:
        return names(nodes.list(ListOptions(resource_version=asked, version_match=match)).items)

    for asked in ("", "0", listed.resource_version):
        assert found(asked) == ["a"]
    assert found(listed.resource_version, VersionMatch.EXACT) == ["a"]
    nodes.create(node("b"))
    assert found(listed.resource_version) == ["a", "b"]
    assert found(listed.resource_version, VersionMatch.NOT_OLDER_THAN) == ["a", "b"]
    with pytest.raises(Expired):
        found(listed.resource_version, VersionMatch.EXACT)
    ahead = "-".join(str(int(part) + 10**9) for part in listed.resource_version.split("-"))
    with pytest.raises(Expired, match="Too large resource version"):
        found(ahead)
    for asked, match in (("", VersionMatch.EXACT), ("0", VersionMatch.EXACT), ("", VersionMatch.NOT_OLDER_THAN)):
        with pytest.raises(InvalidObject, match="resourceVersionMatch"):
            found(asked, match)


def test_what_is_no_version_is_invalid_rather_than_expired(nodes: ObjectWriter[Node]) -> None:
    for version in ("abc", "-1", "1.5", "1_0", "1-", "9" * 30):
        for ask in (nodes.list, nodes.watch):
            with pytest.raises(InvalidObject, match=f'^resourceVersion: Invalid value: "{version}": '):
                ask(ListOptions(resource_version=version))


def test_the_version_of_another_bus_is_expired(nodes: ObjectWriter[Node]) -> None:
    for ask in (nodes.list, nodes.watch):
        with pytest.raises(Expired):
            ask(ListOptions(resource_version="1-2-3"))


# -- watching ------------------------------------------------------------------------------------------------------


def told(watch: StoreWatch[Any], n: int) -> list[str]:
    """The next *n* events, as `ADDED a`."""
    found = []
    for event in watch:
        found.append(f"{event.type} {event.object.metadata.name if event.object is not None else ''}".strip())
        if len(found) == n:
            break
    return found


@over_both
def test_a_watch_tells_what_comes_into_the_selection_changes_in_it_and_leaves_it(nodes: ObjectWriter[Node]) -> None:
    options = ListOptions(label_selector="app=web", resource_version=nodes.list().resource_version)
    early = nodes.watch(options)
    nodes.create(node("other", app="db"))
    nodes.create(node("a", app="web"))
    nodes.patch("a", {"spec": {"unschedulable": True}})
    nodes.patch("a", {"metadata": {"labels": {"app": "db"}}})
    nodes.patch("a", {"spec": {"unschedulable": False}})
    nodes.patch("a", {"metadata": {"labels": {"app": "web"}}})
    nodes.delete("a")
    expected = ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]
    late = nodes.watch(options)  # reads all of it from the stream itself
    for watch in (early, late):
        assert told(watch, 5) == expected
        watch.stop()


def test_ctrl_c_while_a_watch_begins_does_not_keep_the_store_from_closing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.objects(NODE).watch(ListOptions())
    store.close()


@over_both
def test_a_watch_from_nowhere_first_tells_what_is_there(nodes: ObjectWriter[Node]) -> None:
    nodes.create(node("a"))
    watches = [nodes.watch(ListOptions(resource_version=asked)) for asked in ("", "0")]
    nodes.create(node("b"))
    for watch in watches:
        assert told(watch, 2) == ["ADDED a", "ADDED b"]
        watch.stop()


FROM_NOWHERE = {
    "no version": ListOptions(),
    "with bookmarks": ListOptions(allow_bookmarks=True),
    "initial events": ListOptions(
        send_initial_events=True, allow_bookmarks=True, version_match=VersionMatch.NOT_OLDER_THAN
    ),
}


@pytest.mark.parametrize("written", [0, 4], ids=["quiet", "written while it lists"])
@pytest.mark.parametrize("options", FROM_NOWHERE.values(), ids=FROM_NOWHERE.keys())
def test_a_watch_cut_at_any_place_of_its_beginning_misses_nothing_or_is_expired(
    nodes: ObjectWriter[Node], options: ListOptions, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where objects are written while they are listed, and the list's version is older than some of them."""
    for i in range(5):
        nodes.create(node(f"n{i}"))
    ask: Any = vars(scan)["PendingCalls"]
    to_write = list(range(written))

    def write_and_ask(*asked: Any) -> Any:
        while to_write:
            nodes.patch(f"n{to_write.pop()}", {"metadata": {"labels": {"a": "b"}}})
        return ask(*asked)

    def begin() -> list[WatchEvent[Node]]:
        """Five nodes, then one that is new, and whatever bookmarks there are."""
        with monkeypatch.context() as patched:
            patched.setattr(scan, "PendingCalls", write_and_ask)
            watch = nodes.watch(options)
        events: list[WatchEvent[Node]] = []
        if not nodes.list(ListOptions(field_selector="metadata.name=new")).items:
            nodes.create(node("new"))
        for event in watch:
            events.append(event)
            if _name(event) == "new":
                break
        watch.stop()
        return events

    events = begin()
    versions = {found.metadata.name: found.metadata.resource_version for found in nodes.list().items}
    expired = 0
    for cut in range(1, len(events) + 1):
        told = [(_name(event), _version(event)) for event in events[:cut] if event.object is not None]
        assert len(set(told)) == len(told)
        try:
            rest = nodes.watch(ListOptions(resource_version=events[cut - 1].resource_version, timeout_s=0.2))
        except Expired:
            expired += 1
            continue
        told += [(_name(event), _version(event)) for event in rest]
        rest.stop()
        assert len(set(told)) == len(told)
        assert dict(told) == versions
    assert expired >= 4
    assert not events[-1].resource_version.startswith("unfinished")


def _version(event: WatchEvent[Node]) -> str:
    return event.object.metadata.resource_version if event.object is not None else ""


@over_both
def test_initial_events_end_with_a_bookmark_that_says_so(nodes: ObjectWriter[Node]) -> None:
    nodes.create(node("a"))
    options = ListOptions(send_initial_events=True, allow_bookmarks=True, version_match=VersionMatch.NOT_OLDER_THAN)
    watch = nodes.watch(options)
    first, end = islice(watch, 2)
    watch.stop()
    assert (first.type, first.initial_events_end) == (WatchEventType.ADDED, False)
    assert (end.type, end.initial_events_end) == (WatchEventType.BOOKMARK, True)
    assert end.position == nodes.list().resource_version


@over_both
def test_a_watch_that_wants_no_initial_events_begins_now(nodes: ObjectWriter[Node]) -> None:
    nodes.create(node("a"))
    options = ListOptions(send_initial_events=False, allow_bookmarks=True, version_match=VersionMatch.NOT_OLDER_THAN)
    watches = [nodes.watch(msgspec.structs.replace(options, resource_version=asked)) for asked in ("", "0")]
    nodes.create(node("b"))
    for watch in watches:
        assert told(watch, 1) == ["ADDED b"]
        watch.stop()


def _name(event: WatchEvent[Node]) -> str:
    return event.object.metadata.name if event.object is not None else ""


@over_both
def test_events_that_expire_are_told_as_deleted(store: ObjectStore, broadcaster: EventBroadcaster, bus: Bus) -> None:
    broadcaster.new_recorder("c").event(make_reference(), "Normal", "Said", "x")
    eventually(lambda: len(stored_events(bus)) == 1)
    events = store.objects(EVENT)
    listed = events.list()
    watch = events.watch(ListOptions(resource_version=listed.resource_version))
    with bus.client() as client:
        for partition, keys in enumerate(bus.keys):
            if due := client.zrange(keys.index_expiry, 0, -1):
                bus.functions(client, partition).expire(bus.options, due, 2**42)
    assert told(watch, 1) == [f"DELETED {listed.items[0].metadata.name}"]
    watch.stop()


@over_both
def test_writes_of_another_kind_pass_no_watcher_and_move_no_version(
    nodes: ObjectWriter[Node], leases: ObjectWriter[Lease]
) -> None:
    made = nodes.create(node())
    listed = nodes.list().resource_version
    leases.create(lease())
    assert nodes.list().resource_version == listed == made.metadata.resource_version
    assert version(nodes.create(node("n2"))) == version(made) + 1


@over_both
def test_many_watchers_share_one_reader_a_kind(
    nodes: ObjectWriter[Node], leases: ObjectWriter[Lease], bus: Bus
) -> None:
    at = nodes.list().resource_version
    watches: list[StoreWatch[Any]] = [nodes.watch(ListOptions(resource_version=at)) for _ in range(20)]
    watches += [leases.watch(ListOptions(resource_version=at)) for _ in range(20)]
    with bus.client() as client:
        hubs = [one for one in client.client_list() if one["name"] == "eventbus-hub"]
    assert len(hubs) <= 4  # another test's may be on their way out
    nodes.create(node("a"))
    leases.create(lease("b"))
    assert [told(watch, 1) for watch in watches] == [["ADDED a"]] * 20 + [["ADDED b"]] * 20
    for watch in watches:
        watch.stop()


def test_a_watch_of_a_store_that_was_flushed_is_told_though_nothing_is_written(
    nodes: ObjectWriter[Node], bus: Bus
) -> None:
    nodes.create(node("a"))
    watch = nodes.watch(ListOptions(resource_version=nodes.list().resource_version))
    with bus.client() as client:
        client.delete(*client.keys(f"{bus.prefix}:*"))  # ours alone: the server is shared
    with pytest.raises(Expired, match="too old resource version"):
        told(watch, 1)
    watch.stop()
    assert nodes.list().items == ()


def test_what_is_lost_on_a_quiet_partition_is_told_while_another_is_busy(embedded_url: str, prefix: str) -> None:
    bus = bus_with(embedded_url, settings_of(prefix, partitions=2))
    over = threading.Event()
    with bus.client() as client, bus.client() as busy, ObjectStore(bus, client) as store:
        watch = store.objects(EVENT).watch(
            ListOptions(resource_version=store.objects(EVENT).list().resource_version, timeout_s=60)
        )
        quiet, other = bus.keys

        def write_on() -> None:
            version = version_in(busy.get(other.version_of("events")))
            while not over.wait(0.02):
                version += 1
                busy.xadd(other.changes_of("events"), {"f": version, "at": 1}, id=f"{version}-0")
                busy.set(other.version_of("events"), f"{version} 1")

        writer = threading.Thread(target=write_on)
        writer.start()
        try:
            lost = version_in(client.get(quiet.version_of("events"))) + 5
            client.set(quiet.version_of("events"), f"{lost} 1")
            with pytest.raises(Expired, match="too old resource version"):
                list(watch)
        finally:
            over.set()
            writer.join()
            watch.stop()


def test_a_watch_behind_what_was_trimmed_is_expired(nodes: ObjectWriter[Node], bus: Bus) -> None:
    at = nodes.list().resource_version
    for i in range(8):
        nodes.create(node(f"n{i}"))
    with bus.client() as client:
        for keys in bus.keys:
            client.xtrim(keys.changes_of("nodes"), maxlen=0)
    watch = nodes.watch(ListOptions(resource_version=at))
    with pytest.raises(Expired, match="too old resource version"):
        told(watch, 1)
    watch.stop()
    ahead = "9" * 17
    with pytest.raises(Expired, match="Too large"):
        nodes.watch(ListOptions(resource_version=ahead))


def test_no_reader_is_left_when_nobody_watches(nodes: ObjectWriter[Node], store: ObjectStore) -> None:
    watch = nodes.watch(ListOptions(resource_version=nodes.list().resource_version))
    watch.stop()
    eventually(lambda: not store.hub.is_reading)
    again = nodes.watch(ListOptions(resource_version=nodes.list().resource_version))
    nodes.create(node("a"))
    assert told(again, 1) == ["ADDED a"]
    again.stop()
