"""Somebody who knows kubectl, and has read no page, finds out why web-0 fails."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventbus import (
    LEASE,
    NODE,
    EventBroadcaster,
    Lease,
    LeaseSpec,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    ObjectReference,
    ObjectStore,
    Settings,
)
from eventbus.broker.bus import open_bus
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.util.clock import SystemClock
from tests.acceptance.both_ways import environment_of
from tests.acceptance.programs import environment, run
from tests.acceptance.terminal import Terminal
from tests.support.both_ways import BOTH
from tests.thin import one
from tests.waiting import PATIENCE_S, eventually

WEB_0 = ObjectReference("Pod", "default", "web-0", "6f1f0b0a", "v1")
N1 = ObjectReference("Node", "", "n1", "", "v1")
CAUSE = "Back-off restarting failed container web"


@pytest.fixture(params=one(BOTH))
def env(request: pytest.FixtureRequest, embedded_url: str, prefix: str) -> Iterator[dict[str, str]]:
    with environment_of(request, Settings(redis_url=embedded_url, prefix=prefix), worker_block_ms="50") as env:
        yield env


@pytest.fixture
def of_workers(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, worker_block_ms="50")


def record(url: str, prefix: str) -> None:
    """A pod that is pulled, started, and then fails five times; beside it others that are well."""
    with EventBroadcaster(url, settings=Settings(prefix=prefix)) as broadcaster:
        kubelet = broadcaster.new_recorder("kubelet", "n1")
        kubelet.event(WEB_0, "Normal", "Pulled", "Container image already present on machine")
        for _ in range(5):
            kubelet.event(WEB_0, "Warning", "BackOff", CAUSE)
        kubelet.event(ObjectReference("Pod", "default", "db-0"), "Normal", "Started", "Started container db")
        kubelet.event(ObjectReference("Pod", "shop", "cart-0"), "Normal", "Started", "Started container cart")
        kubelet.event(N1, "Normal", "NodeReady", "Node n1 status is now: NodeReady")
        assert broadcaster.flush(60)


#: What `record` records.
RECORDED = 9


@contextmanager
def storing(url: str, prefix: str) -> Iterator[None]:
    """A sink worker in this process: unlike a process of its own it records no life that may wait behind it."""
    runner = sink_worker(bus=open_bus(url, Settings(prefix=prefix)), clock=SystemClock(), block_ms=50)
    runner.start()
    try:
        yield
    finally:
        runner.stop(PATIENCE_S)


def seen(env: dict[str, str]) -> int:
    """How many events are stored, each as often as it was seen."""
    listed = json.loads(run("events", "-A", "-o", "json", env=env).stdout)
    return sum(event["count"] for event in listed["items"])


@pytest.fixture
def stored(
    env: dict[str, str], of_workers: dict[str, str], embedded_url: str, prefix: str, tmp_path: Path
) -> Iterator[dict[str, str]]:
    record(embedded_url, prefix)
    with storing(embedded_url, prefix):
        eventually(lambda: seen(env) == RECORDED)
        yield env


@pytest.fixture(scope="module")
def recorded(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The prefix of a bus that has all of `record`, for tests that only read."""
    prefix = f"t{secrets.token_hex(6)}"
    env = environment(embedded_url, prefix, worker_block_ms="50")
    record(embedded_url, prefix)
    with storing(embedded_url, prefix):
        eventually(lambda: seen(env) == RECORDED)
    return prefix


@pytest.fixture(params=one(BOTH))
def told(request: pytest.FixtureRequest, embedded_url: str, recorded: str) -> Iterator[dict[str, str]]:
    with environment_of(request, Settings(redis_url=embedded_url, prefix=recorded)) as env:
        yield env


@pytest.mark.parametrize(
    "words",
    [
        ("describe", "pod", "web-0"),
        ("describe", "pod/web-0"),
        ("describe", "po/web-0"),
        ("describe", "pods", "web-0"),
        ("describe", "pod", "web"),
        ("describe", "-n", "default", "pod", "web-0"),
        ("describe", "pod", "web-0", "-A"),
        ("events", "--for", "pod/web-0"),
        ("events", "--for=pods/web-0", "--types=Warning"),
        ("events", "-A"),
        ("get", "events"),
    ],
    ids=" ".join,
)
def test_why_web_0_fails_is_found(told: dict[str, str], words: tuple[str, ...]) -> None:
    found = run(*words, env=told)
    assert found.returncode == 0
    (line,) = [line for line in found.stdout.splitlines() if CAUSE in line and "Warning" in line]
    assert "BackOff" in line
    if "get" not in words:
        assert "(x5 over " in line


def test_the_page_tells_since_when_how_often_and_who_says_so(told: dict[str, str]) -> None:
    lines = run("describe", "pod", "web-0", env=told).stdout.splitlines()
    starts = ["Name:         web-0", "Namespace:    default", "Kind:         Pod", "API Version:  v1"]
    assert lines[:4] == starts
    assert "UID:          6f1f0b0a" in lines
    assert "Reasons:      Warning  BackOff x5" in lines
    assert "              Normal   Pulled x1" in lines
    assert "Sources:      kubelet on n1" in lines
    assert lines[lines.index("Events:") + 1].split() == ["Type", "Reason", "Age", "From", "Message"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("pod", "cart-0"), "did you mean pod/cart-0 -n shop?"),
        (("deploy", "web-0"), "did you mean pod/web-0?"),
        (("pod", "nobody"), "no event about it is stored"),
    ],
    ids=" ".join,
)
def test_where_nothing_is_known_it_says_where_to_look(told: dict[str, str], words: tuple[str, ...], hint: str) -> None:
    ran = run("describe", *words, env=told)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert hint in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.fixture
def objects(embedded_url: str, prefix: str) -> None:
    """A node and a lease, in the store themselves."""
    with ObjectStore.open(embedded_url, settings=Settings(prefix=prefix)) as store:
        ready = NodeCondition("Ready", "False", reason="KubeletNotReady", message="PLEG is \x1b[31mnot healthy")
        metadata = ObjectMeta(name="n1", labels={"zone": "a", "node-role.kubernetes.io/worker": ""})
        status = NodeStatus(conditions=(ready,), capacity={"cpu": "4"})
        store.objects(NODE).create(Node(metadata=metadata, spec=NodeSpec(unschedulable=True), status=status))
        held = ObjectMeta(name="n1", namespace="leases", annotations={"by": "hand"})
        store.objects(LEASE).create(Lease(metadata=held, spec=LeaseSpec(holder_identity="host-7")))


@pytest.mark.usefixtures("objects")
def test_an_object_that_is_stored_itself_needs_no_events(env: dict[str, str]) -> None:
    for words in (("node", "n1"), ("no/n1", "-n", "shop"), ("nodes", "n"), ("node/n1", "-A")):
        ran = run("describe", *words, env=env)
        assert (ran.returncode, ran.stderr) == (0, "")
        lines = [line.split() for line in ran.stdout.splitlines()]
        assert lines[0] == ["Name:", "n1"]
        assert ["Roles:", "worker"] in lines
        assert ["zone=a"] in lines
        assert ["Unschedulable:", "true"] in lines
        assert [
            "Ready",
            "False",
            "<unknown>",
            "<unknown>",
            "KubeletNotReady",
            "PLEG",
            "is",
            r"\x1b[31mnot",
            "healthy",
        ] in lines
        assert ["cpu:", "4"] in lines
        assert lines[-1] == ["Events:", "<none>"]
        assert "Namespace:" not in ran.stdout, "a node is in none"
    lease = run("describe", "lease", "n1", "-n", "leases", env=env).stdout
    for line in ("Namespace:          leases", "Annotations:        by: hand", "Spec:", "  Holder Identity:  host-7"):
        assert line in lease.splitlines()
    plain = json.loads(run("describe", "lease", "n1", "-A", "-o", "json", env=env).stdout)
    assert plain["object"]["spec"] == {"holderIdentity": "host-7"}
    assert plain["events"] == []
    lost = run("describe", "lease", "n1", env=env)
    assert lost.returncode == 1
    assert "did you mean lease/n1 -n leases?" in lost.stderr


@pytest.mark.usefixtures("objects")
def test_a_stored_object_and_its_events_are_one_page(stored: dict[str, str]) -> None:
    page = run("describe", "node", "n1", env=stored).stdout
    assert page.count("Name:") == 1
    assert "Namespace:" not in page
    assert "NodeReady" in page
    assert "Unschedulable:" in page
    assert "Labels:" not in run("describe", "pod", "web-0", env=stored).stdout, "a pod is known by its events alone"


def test_what_waits_behind_a_list_that_is_not_empty_is_told_as_well(
    env: dict[str, str], of_workers: dict[str, str], embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    asked = (("get", "events"), ("get", "events", "-o", "json"), ("events",), ("describe", "pod/web-0"))
    record(embedded_url, prefix)
    with storing(embedded_url, prefix):
        eventually(lambda: seen(env) == RECORDED)
    assert [run(*words, env=env).stderr for words in asked] == [""] * 4, "nothing waits"
    record(embedded_url, prefix)
    for words in asked:
        ran = run(*words, env=env)
        assert "web-0" in ran.stdout
        assert ran.stderr == (
            "9 events wait to be recorded, but no sink worker is alive: start one with `eventbus worker sink`\n"
        )


def test_json_is_for_scripts(told: dict[str, str]) -> None:
    described = json.loads(run("describe", "pod/web-0", "-o", "json", env=told).stdout)
    assert described["reasons"][0] == {"type": "Warning", "reason": "BackOff", "events": 1, "seen": 5}
    assert {event["reason"] for event in described["events"]} == {"BackOff", "Pulled"}
    listed = json.loads(run("events", "-o", "json", env=told).stdout)
    assert listed["kind"] == "List"
    # an object without a namespace has its events in default
    assert {event["involvedObject"]["name"] for event in listed["items"]} == {"web-0", "db-0", "n1"}


def test_events_are_followed_until_ctrl_c(stored: dict[str, str]) -> None:
    with Terminal("events", "--for", "pod/web-0", "-w", env=stored) as terminal:
        terminal.wait_for(CAUSE)
        for kind, reason in (("Pod/db-0", "Unrelated"), ("Pod/web-0", "Killing")):
            ran = run("record", kind, "--reason", reason, "--message", "Stopping container", env=stored)
            assert ran.returncode == 0, ran.stderr
        terminal.wait_for("Killing")
        terminal.interrupt()
        assert terminal.wait() == 130
    assert "Unrelated" not in terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "it names no node (spec.nodeName), and nothing here chooses one"),
        ({"nodeName": "n9"}, "no node n9 is registered"),
        ({"nodeName": "n1"}, "the agent of node n1 has not taken it: does it have --pods-from-bus default?"),
    ],
    ids=["no-node", "no-such-node", "no-agent-that-takes-it"],
)
def test_a_pod_that_nobody_starts_says_why(env: dict[str, str], tmp_path: Path, spec: dict[str, str], why: str) -> None:
    containers = [{"name": "main", "command": ["/bin/true"]}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": spec | {"containers": containers}}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    assert run("apply", "-f", str(tmp_path / "pod.json"), env=env).returncode == 0

    found = run("describe", "pod/job", env=env)
    assert (found.returncode, found.stderr) == (0, f"job waits: {why}\n")
