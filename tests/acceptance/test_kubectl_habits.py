"""What kubectl's users type by habit, word by word, against a bus with events, a node and a lease."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.store.object_store import ObjectStore
from tests.acceptance.both_ways import OPERATOR, over_http
from tests.acceptance.programs import Program, environment, run
from tests.support.api_worker import api_worker
from tests.support.both_ways import BOTH
from tests.thin import one
from tests.waiting import eventually

MANIFEST = """\
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: 2024-01-01T00:00:00Z}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader}
spec: {holderIdentity: n1}
"""

#: Typed words → what stands on standard output, in this order.
WORKS: dict[str, tuple[str, ...]] = {
    "get events": ("LAST SEEN", "BackOff"),
    "get events -o=name": ("event/web-0.",),
    "get events -oname": ("event/web-0.",),
    "get -o name events": ("event/web-0.",),
    "get -n default ev -w=false": ("BackOff",),
    "get ev --watch=false --no-headers=true": ("BackOff",),
    "get all": ("LAST SEEN", "BackOff", "NAME", "n1", "HOLDER", "leader"),
    "get all node/n1 lease/leader": ("n1", "leader"),
    "get events,nodes": ("BackOff", "n1"),
    "get no,leases -o=name": ("node/n1", "lease.coordination.k8s.io/leader"),
    "get node/n1 lease/leader": ("n1", "leader"),
    "get events,no -ojsonpath={.items[*].kind}": ("Event", "Node"),
    "get nodes -A": ("n1",),
    "get nodes -n default": ("n1",),
    "events --since 1h": ("BackOff",),
    "events --sort-by=.reason -o=name": ("event/web-0.", "event/web-1."),
    "events --for pod/web-0 -w=false": ("BackOff",),
    "describe pods": ("web-0", "Events:", "web-1"),
    "describe po web-0": ("web-0", "BackOff"),
    "wait --for=condition=Ready node/n1": ("node/n1 condition met",),
    "wait --for=condition=Ready nodes --all -oname": ("node/n1",),
    "wait --for=delete node/gone": ("node/gone condition met",),
    "wait --for=delete node/a,b=c\\d": ("node/a,b=c\\d condition met",),
    "delete lease/gone --ignore-not-found=true": (),
    "get nodes --show-labels=false": ("n1",),
    "api-resources": ("NAME", "nodes"),
    "version": ("Client Version",),
    "version --client": ("Client Version",),
    "version --client -o yaml": ("clientVersion:", "gitVersion: "),
    "get node/gone --ignore-not-found": (),
    "get nodes gone n1 --ignore-not-found=true": ("n1",),
    "get node/gone lease/leader --ignore-not-found": ("leader",),
    "help get": ("Usage: eventbus get",),
    "config get-contexts": ("CURRENT",),
    "config view": ("contexts:",),
    "--namespace=default get ev": ("BackOff",),
}

#: Typed words → exit code, and what the last line on standard error tells.
SAYS: dict[str, tuple[int, str]] = {
    "get deploy": (2, "eventbus get events --for deployment/NAME"),
    "get ing": (2, "Events of an ingress: eventbus get events --for ingress/NAME"),
    "get deploy,nodes": (2, "the store holds no deploy"),
    "get node/gone --ignore-not-found=false": (1, 'nodes "gone" not found'),
    "get all -w": (2, "you may only specify a single resource type"),
    "get node/n1 lease/gone": (1, 'leases.coordination.k8s.io "gone" not found'),
    "events -o custom-columns=WHY:.reason": (2, "For more forms, use kubectl with `eventbus worker api`"),
    "get events --context nowhere": (2, 'context "nowhere" does not exist'),
    "-n elsewhere get node/gone": (1, 'nodes "gone" not found'),
    "wait --for=condition=Ready=False node/n1 --timeout=0s": (1, "timed out waiting for the condition on nodes/n1"),
    "wait --for=condition=Complete job/x": (2, "eventbus events --for job/NAME -w"),
    "wait --for=jsonpath={.spec.holderIdentity}=n1 lease leader": (2, "kubectl wait lease/leader --for=jsonpath="),
    "wait --for=nothing node/n1": (2, "is none of condition="),
    "delete node/gone": (1, 'nodes "gone" not found'),
    "delete pod/web --force --grace-period=5": (2, "cannot be specified together"),
    "edit pod/web-0": (2, "There is no `eventbus edit`. Use `kubectl edit`, through `eventbus worker api`"),
    "get events -o jsonpath={range.items[*]}{end}": (2, "kubectl get events -o jsonpath="),
    "explain event.reason": (2, "`kubectl explain`, through `eventbus worker api`"),
}


@pytest.fixture(scope="module", params=one(BOTH))
def env(
    request: pytest.FixtureRequest, embedded_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    folder: Path = tmp_path_factory.mktemp("habits")
    prefix, config = f"habits-{request.param}", str(folder / "config.json")
    settings = Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=100)
    with ObjectStore.open(settings=settings) as store, EventBroadcaster(settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("kubelet")
        recorder.event(ObjectReference("Pod", "default", "web-0"), "Warning", "BackOff", "restarting")
        recorder.event(ObjectReference("Pod", "default", "web-1"), "Normal", "Started", "up")
        eventually(lambda: len(store.list().items) == 2)
    manifest = folder / "objects.yaml"
    manifest.write_text(MANIFEST)
    with ExitStack() as stack:
        found = environment(embedded_url, prefix, config=config)
        if request.param == "http":
            # For the worker's own life: what waits for nobody is told with every answer.
            stack.enter_context(Program("worker", "sink", env=found, folder=folder))
            worker = stack.enter_context(api_worker(embedded_url, prefix, folder, "--grant", OPERATOR))
            found = over_http(worker.url, config=config)
        created = run("create", "-f", str(manifest), env=found)
        assert created.stdout == "node/n1 created\nlease.coordination.k8s.io/leader created\n", created.stderr
        yield found


@pytest.mark.parametrize("words", WORKS)
def test_works(words: str, env: dict[str, str]) -> None:
    done = run(*words.split(" "), env=env)
    assert done.returncode == 0, done.stderr
    at = 0
    for text in WORKS[words]:
        at = done.stdout.find(text, at)
        assert at >= 0, (text, done.stdout)


@pytest.mark.parametrize("words", SAYS)
def test_leads_on(words: str, env: dict[str, str]) -> None:
    done = run(*words.split(" "), env=env)
    code, told = SAYS[words]
    assert done.returncode == code, done.stderr
    assert told in done.stderr.splitlines()[-1]


def test_get_all_looks_for_a_name_among_all_kinds(env: dict[str, str]) -> None:
    done = run("get", "all", "n1", "-o", "name", env=env)
    assert (done.returncode, done.stdout) == (1, "node/n1\n")
    missing = ["events", "leases.coordination.k8s.io", "pods", "configmaps", "secrets"]
    missing += ["silences.eventbus.dev", "acknowledgements.eventbus.dev"]
    assert done.stderr.splitlines() == [f'Error from server (NotFound): {kind} "n1" not found' for kind in missing]


def test_what_exists_is_not_created_again(env: dict[str, str], tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    again.write_text(MANIFEST)
    done = run("create", "-f", str(again), env=env)
    assert (done.returncode, done.stderr.count("(AlreadyExists)")) == (1, 2)
    again.write_text("[nothing")
    assert run("create", "-f", str(again), env=env).returncode == 2


def test_wait_is_told_what_comes_and_what_goes(env: dict[str, str], tmp_path: Path) -> None:
    late = tmp_path / "late.yaml"
    late.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: late}\n")
    with Program("wait", "--for=create", "node/late", "--timeout=1h", env=env, folder=tmp_path) as program:
        assert run("create", "-f", str(late), env=env).returncode == 0
        assert program.wait() == 0
        assert program.out == "node/late condition met\n"
    with Program("wait", "--for=delete", "node/late", "--timeout=1h", env=env, folder=tmp_path) as program:
        assert run("delete", "node", "late", env=env).returncode == 0
        assert program.wait() == 0


def test_what_get_prints_create_takes(env: dict[str, str], tmp_path: Path) -> None:
    printed = tmp_path / "printed.yaml"
    printed.write_text(run("get", "lease/leader", "-o", "yaml", env=env).stdout.replace("name: leader", "name: second"))
    made = json.loads(run("create", "-f", str(printed), "-o", "json", env=env).stdout)
    assert (made["metadata"]["name"], made["spec"]["holderIdentity"]) == ("second", "n1")


def test_times_are_those_of_the_reader(env: dict[str, str]) -> None:
    done = run("describe", "lease", "leader", env=env | {"TZ": "Asia/Tokyo"}, afresh=True)
    assert "+0900" in done.stdout


def test_buses_have_names_and_a_namespace_each(env: dict[str, str], tmp_path: Path) -> None:
    chosen = ("EVENTBUS_URL", "EVENTBUS_REDIS_URL", "EVENTBUS_PREFIX", "EVENTBUS_STATE_DIR")
    nameless = {name: text for name, text in env.items() if name not in chosen}
    nameless |= {"EVENTBUS_CONFIG": str(tmp_path / "config.json")}
    bus: tuple[str, ...] = ("--redis-url", env["EVENTBUS_REDIS_URL"], "--prefix", env["EVENTBUS_PREFIX"])
    if "EVENTBUS_URL" in env:
        bus = ("--url", env["EVENTBUS_URL"])
    assert run("config", "current-context", env=nameless).returncode == 2
    made = run("config", "set-context", "one", *bus, env=nameless)
    assert made.stdout == 'Context "one" created.\n'
    run("config", "set-context", "two", *bus, "-n", "elsewhere", env=nameless)
    assert run("config", "use-context", "one", env=nameless).stdout == 'Switched to context "one".\n'

    assert "BackOff" in run("get", "ev", env=nameless).stdout
    assert "in elsewhere namespace" in run("get", "ev", "--context", "two", env=nameless).stderr
    assert "in elsewhere namespace" in run("--context=two", "get", "ev", env=nameless).stderr
    assert "BackOff" in run("--context=two", "get", "ev", "-n", "default", env=nameless).stdout
    assert "in shop namespace" in run("-n", "shop", "get", "ev", "--context", "two", env=nameless).stderr
    assert "in elsewhere namespace" in run("get", "ev", env=nameless | {"EVENTBUS_CONTEXT": "two"}).stderr
    run("config", "set-context", "--current", "-n", "shop", env=nameless)
    assert "in shop namespace" in run("get", "ev", env=nameless).stderr
    assert run("config", "get-contexts", "-o", "name", env=nameless).stdout == "one\ntwo\n"
    assert run("config", "delete-context", "one", env=nameless).returncode == 0
    assert run("config", "current-context", env=nameless).returncode == 2


@pytest.mark.parametrize("bus", ["--redis-url=htp://redis-1/0", "--url=events.example.com"])
def test_a_slip_in_the_url_of_a_context_is_refused_at_once(bus: str, env: dict[str, str], tmp_path: Path) -> None:
    ours = env | {"EVENTBUS_CONFIG": str(tmp_path / "config.json")}
    made = run("config", "set-context", "prod", bus, env=ours)
    assert (made.returncode, made.stdout) == (2, "")
    assert " must be http" in made.stderr or "valid are redis://" in made.stderr
    assert not (tmp_path / "config.json").exists()


def test_a_named_context_wins_over_the_environment_and_the_current_one_gives_way(
    env: dict[str, str], tmp_path: Path
) -> None:
    ours = env | {"EVENTBUS_CONFIG": str(tmp_path / "config.json")}
    run("config", "set-context", "away", "--redis-url", "redis://:secret@127.0.0.1:1/0", env=ours)
    run("config", "use-context", "away", env=ours)
    assert "BackOff" in run("get", "ev", env=ours).stdout
    assert run("get", "ev", "--context=away", env=ours).returncode == 1
    shown = run("config", "view", env=ours).stdout
    assert ("secret" in shown, "redis://@127.0.0.1:1/0" in shown) == (False, True)
    assert "secret" in run("config", "view", "--raw", env=ours).stdout
    assert (tmp_path / "config.json").stat().st_mode & 0o077 == 0
    run("config", "set-context", "queried", "--redis-url", "redis://127.0.0.1:1/0?password=secret", env=ours)
    assert "secret" not in run("config", "view", env=ours).stdout.replace(":secret@", "")
    assert "secret" not in run("config", "get-contexts", env=ours).stdout


def test_contexts_that_cannot_be_read_say_so(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    broken = env | {"EVENTBUS_CONFIG": str(tmp_path / "config.json"), "EVENTBUS_CONTEXT": "one"}
    done = run("get", "ev", env=broken)
    assert (done.returncode, done.stderr.startswith("error: the contexts in ")) == (2, True)
    assert run("version", env=broken).returncode == 0


def test_what_a_file_no_longer_says_is_taken_away(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    secret = "{{apiVersion: v1, kind: Secret, metadata: {{name: keys}}, data: {{{}}}}}"
    node = "{{apiVersion: v1, kind: Node, metadata: {{name: n7}}, spec: {{taints: [{{{}}}]}}}}"

    def write(data: str, taint: str) -> None:
        file.write_text(secret.format(data) + "\n---\n" + node.format(taint))

    def held() -> tuple[list[str], list[str]]:
        one = json.loads(run("get", "secret/keys", "-o", "json", env=env).stdout)
        other = json.loads(run("get", "node/n7", "-o", "json", env=env).stdout)
        return sorted(one["data"]), sorted(other["spec"]["taints"][0])

    write("a: aGk=, b: aGk=", "key: k, effect: NoSchedule, value: v")
    assert run("create", "-f", str(file), env=env).returncode == 0
    assert run("apply", "-f", str(file), env=env).stdout == "secret/keys unchanged\nnode/n7 unchanged\n"
    assert held() == (["a", "b"], ["effect", "key", "value"])
    write("a: aGk=", "key: k, effect: NoSchedule")
    assert run("apply", "-f", str(file), env=env).stdout == "secret/keys configured\nnode/n7 configured\n"
    assert held() == (["a"], ["effect", "key"])
    assert "aGk" not in json.dumps(json.loads(run("get", "secret/keys", "-o", "json", env=env).stdout)["metadata"])
