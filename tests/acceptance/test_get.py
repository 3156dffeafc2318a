"""`eventbus get events|nodes|leases` as processes: kubectl's flags, columns and forms, and what goes beyond them.

What is expected comes from kubectl's rules (printers.go, get.go), not from what the commands print.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eventbus import (
    NODE,
    EventBroadcaster,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    ObjectReference,
    ObjectStore,
    Settings,
)
from eventbus.model.objects.cluster import NodeAddress, NodeSystemInfo
from tests.acceptance.both_ways import environment_of
from tests.acceptance.programs import Program, run
from tests.support.both_ways import BOTH
from tests.thin import one
from tests.waiting import eventually


@pytest.fixture(params=one([pytest.param(3, id="3 partitions"), pytest.param(1, id="1 partition")]))
def settings(request: pytest.FixtureRequest, embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=100, partitions=request.param)


@pytest.fixture(params=one(BOTH))
def env(request: pytest.FixtureRequest, settings: Settings) -> Iterator[dict[str, str]]:
    with environment_of(request, settings) as env:
        yield env


@pytest.fixture
def store(settings: Settings) -> Iterator[ObjectStore]:
    with ObjectStore.open(settings=settings) as store:
        yield store


@pytest.fixture
def _events(store: ObjectStore, settings: Settings) -> None:
    now = datetime.now(UTC)
    with EventBroadcaster(settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("kubelet")
        for minutes, kind, name, event_type, reason in (
            (90, "Pod", "web-0", "Normal", "Pulled"),
            (60, "Pod", "web-1", "Warning", "BackOff"),
            (30, "Job", "web-0", "Normal", "Completed"),
            (10, "Pod", "web-0", "Warning", "BackOff"),
        ):
            about = ObjectReference(kind, "default", name)
            recorder.past_eventf(about, now - timedelta(minutes=minutes), event_type, reason, "text")
        broadcaster.flush()
        eventually(lambda: len(store.list().items) == 4)


@pytest.fixture
def _nodes(store: ObjectStore) -> None:
    nodes = store.objects(NODE)
    ready = NodeCondition("Ready", "True")
    info = NodeSystemInfo(kubelet_version="v1.32.0", os_image="Debian", container_runtime_version="containerd://2")
    nodes.create(
        Node(
            metadata=ObjectMeta(name="a", labels={"zone": "x", "node-role.kubernetes.io/control-plane": ""}),
            status=NodeStatus(conditions=(ready,), addresses=(NodeAddress("InternalIP", "10.0.0.1"),), node_info=info),
        )
    )
    unknown = NodeCondition("Ready", "Unknown")
    nodes.create(
        Node(metadata=ObjectMeta(name="b"), spec=NodeSpec(unschedulable=True), status=NodeStatus(conditions=(unknown,)))
    )
    nodes.create(Node(metadata=ObjectMeta(name="c", labels={"zone": "y"})))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


def listed(env: dict[str, str], *arguments: str) -> list[list[str]]:
    found = run("get", *arguments, env=env)
    assert (found.returncode, found.stderr) == (0, "")
    return [cells(line) for line in found.stdout.splitlines()]


# -- nodes and leases ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_nodes")
def test_what_is_named_is_shown_alone_and_what_is_not_there_is_said(env: dict[str, str]) -> None:
    for words in (("nodes", "b"), ("node/b",), ("no", "node/b")):
        alone = json.loads(run("get", *words, "-o", "json", env=env).stdout)
        assert (alone["kind"], alone["metadata"]["name"]) == ("Node", "b")
    assert run("get", "node", "b", "-o", "jsonpath={.metadata.name}", env=env).stdout == "b"
    assert [row[0] for row in listed(env, "nodes", "c", "a")] == ["NAME", "c", "a"]
    both = json.loads(run("get", "nodes", "c", "a", "-o", "json", env=env).stdout)
    assert [item["metadata"]["name"] for item in both["items"]] == ["c", "a"]
    some = run("get", "nodes", "x", "a", "-o", "name", env=env)
    assert (some.returncode, some.stdout) == (1, "node/a\n")
    assert some.stderr == 'Error from server (NotFound): nodes "x" not found\n'
    lease = run("get", "lease", "x", env=env)
    assert lease.stderr == 'Error from server (NotFound): leases.coordination.k8s.io "x" not found\n'
    watched = run("get", "nodes", "x", "-w", env=env)
    assert (watched.returncode, watched.stdout, watched.stderr) == (1, "", some.stderr)


@pytest.mark.usefixtures("_nodes")
def test_labels_are_shown_in_columns(env: dict[str, str]) -> None:
    header, *rows = listed(env, "nodes", "-L", "zone,node-role.kubernetes.io/control-plane", "--show-labels", "b", "c")
    assert header[-3:] == ["ZONE", "CONTROL-PLANE", "LABELS"]
    assert [row[-3:] for row in rows] == [["<none>", "<none>", "<none>"], ["y", "<none>", "zone=y"]]


@pytest.mark.usefixtures("_events")
def test_an_event_is_got_by_its_name(env: dict[str, str], store: ObjectStore) -> None:
    name = store.list().items[0].metadata.name
    for words in (("events", name), (f"ev/{name}",), (f"event/{name}",), (f"events/{name}",)):
        assert run("get", *words, "-o", "name", env=env).stdout == f"event/{name}\n"


# -- events --------------------------------------------------------------------------------------------------------


#: Arguments → the reasons of what is shown.
ASKED: list[tuple[tuple[str, ...], list[str]]] = [
    ((), ["Pulled", "BackOff", "Completed", "BackOff"]),
    (("--field-selector", "type=Warning"), ["BackOff", "BackOff"]),
    (("--field-selector", "reason!=BackOff,involvedObject.kind=Pod"), ["Pulled"]),
    (("--field-selector", "involvedObject.kind=Pod,involvedObject.name=web-0"), ["Pulled", "BackOff"]),
    (("-l", "a=b"), []),
    (("-l", "!a"), ["Pulled", "BackOff", "Completed", "BackOff"]),
    (("--for", "pods/web-0"), ["Pulled", "BackOff"]),
    (("--for", "po/web-0", "--field-selector", "type=Normal"), ["Pulled"]),
    (("--for", "jobs.batch/web-0"), ["Completed"]),
    (("--types", "Warning,NORMAL", "--since", "40m"), ["Completed", "BackOff"]),
    (("--types", "normal"), ["Pulled", "Completed"]),
    (("--until", "40m"), ["Pulled", "BackOff"]),
    (("--since", "70m", "--until", "20m"), ["BackOff", "Completed"]),
    (("--sort-by", ".reason"), ["BackOff", "BackOff", "Completed", "Pulled"]),
    (("--sort-by", "{.lastTimestamp}"), ["Pulled", "BackOff", "Completed", "BackOff"]),
    (("--chunk-size", "1"), ["Pulled", "BackOff", "Completed", "BackOff"]),
]


@pytest.mark.usefixtures("_events")
def test_what_is_asked_for_is_what_is_shown(env: dict[str, str]) -> None:
    for arguments, expected in ASKED:
        found = json.loads(run("get", "ev", *arguments, "-o", "json", env=env).stdout)
        assert [event["reason"] for event in found["items"]] == expected, arguments


@pytest.mark.usefixtures("_events")
def test_groups_count_by_reason_and_kind(env: dict[str, str]) -> None:
    header, *rows = listed(env, "events", "--group")
    assert header == ["LAST SEEN", "TYPE", "REASON", "KIND", "OBJECTS", "EVENTS", "COUNT"]
    assert [row[1:] for row in rows] == [
        ["Normal", "Pulled", "Pod", "1", "1", "1"],
        ["Normal", "Completed", "Job", "1", "1", "1"],
        ["Warning", "BackOff", "Pod", "2", "2", "2"],
    ]
    assert rows[-1][0] == "10m"
    refused = run("get", "events", "--group", "-w", env=env)
    assert (refused.returncode, "--group" in refused.stderr) == (2, True)


# -- watching ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_nodes")
def test_a_watch_tells_what_comes_in_changes_and_leaves(
    env: dict[str, str], store: ObjectStore, tmp_path: Path
) -> None:
    nodes = store.objects(NODE)
    arguments = ("get", "nodes", "-w", "-l", "zone=x", "--output-watch-events")
    with Program(*arguments, env=env, folder=tmp_path) as program:
        eventually(lambda: "a" in program.out)
        nodes.patch("b", {"metadata": {"labels": {"zone": "x"}}})
        nodes.patch("b", {"spec": {"unschedulable": None}})
        nodes.patch("b", {"metadata": {"labels": {"zone": "y"}}})
        nodes.delete("a")
        eventually(lambda: program.out.count("DELETED") == 2)
        program.signal(signal.SIGINT)
        assert program.wait() in (0, 130)
        rows = [cells(line) for line in program.out.splitlines()]
    assert rows[0][:2] == ["EVENT", "NAME"]
    told = [row[:2] for row in rows[1:]]
    assert [row for row in told if row[1] == "b"] == [["ADDED", "b"], ["MODIFIED", "b"], ["DELETED", "b"]]
    assert [row for row in told if row[1] == "a"] == [["ADDED", "a"], ["DELETED", "a"]]


@pytest.mark.usefixtures("_nodes")
def test_one_object_is_watched_by_its_name(env: dict[str, str], store: ObjectStore, tmp_path: Path) -> None:
    with Program("get", "nodes", "c", "-w", "--output-watch-events", env=env, folder=tmp_path) as program:
        eventually(lambda: "ADDED" in program.out)
        store.objects(NODE).delete("a")
        store.objects(NODE).delete("c")
        eventually(lambda: "DELETED" in program.out)
    assert [cells(line)[:2] for line in program.out.splitlines()[1:]] == [["ADDED", "c"], ["DELETED", "c"]]


@pytest.mark.usefixtures("_nodes")
def test_watch_only_leaves_out_the_list_and_templates_see_what_happened(
    env: dict[str, str], store: ObjectStore, tmp_path: Path
) -> None:
    template = 'jsonpath={.type} {.object.metadata.name}{"\\n"}'
    arguments = ("get", "nodes", "--watch-only", "--output-watch-events", "-o", template)
    with Program(*arguments, env=env, folder=tmp_path) as program:
        eventually(lambda: _patched(store) and program.out)
        store.objects(NODE).delete("c")
        eventually(lambda: "DELETED c\n" in program.out)
    *changes, end = program.out.splitlines()
    assert (set(changes), end) == ({"MODIFIED c"}, "DELETED c")


def _patched(store: ObjectStore) -> bool:
    """Write until the watch, which may not have begun, has seen it."""
    store.objects(NODE).patch("c", {"metadata": {"annotations": {"at": str(time.time_ns())}}})
    return True
