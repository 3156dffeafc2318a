"""Freeze the formats of this build, as `make freeze VERSION=0.1.0` does when a release is made.

A folder has `frozen.json`: the version, build and formats; every key of a bus as DUMP writes it, with its type and
time to live; the events and objects that a reader sees; and the count of each object when all is processed. Beside it
is a spool, whose events were not sent. `tests/integration/test_frozen_formats.py` reads every such folder.

Needs Redis 7.0 on PATH: later servers restore what it dumps, and not the other way round.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redis import Redis

from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.event import ObjectReference
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Options, Settings, SpoolWhen
from tests.acceptance.programs import Program, environment, run
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
FORMATS = ROOT / "tests" / "vectors" / "formats"
PREFIX = "eb"
#: Events do not expire, however old the folder is.
OPTIONS = Options(event_ttl_s=10 * 365 * 86_400)
RULES = """
route: {receiver: chat, group_by: [name], group_wait: 0s, resolve_after: 30d, repeat_interval: 30d}
receivers:
- {name: chat, webhook_configs: [{url: "https://127.0.0.1:8443/"}]}
"""
OBJECTS = """
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {zone: a}}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: leader, namespace: shop},
 spec: {holderIdentity: one, leaseDurationSeconds: 15}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {color: blue}}
---
{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: shop}, data: {key: c2VjcmV0}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop},
 spec: {nodeName: node-1, containers: [{name: web, image: "host:", command: [/bin/true]}]}}
"""
KINDS = ("nodes", "leases", "configmaps", "secrets", "pods")


def freeze(folder: Path, server: EmbeddedServer) -> dict[str, Any]:
    """Write a folder with a bus on this server, which is stopped for the spool. Returns: what `frozen.json` has."""
    folder.mkdir(parents=True)
    url, recorded = str(server.url), Counter[str]()
    env = environment(url, PREFIX, webhook_allow_hosts="127.0.0.1")
    bus = open_bus(url, Settings(prefix=PREFIX), options=OPTIONS)
    client: Any = make_client(url)
    with tempfile.TemporaryDirectory() as work:
        (rules := Path(work) / "rules.yaml").write_text(RULES)
        done = run("create", "-f", str(write(Path(work) / "objects.yaml", OBJECTS)), env=env)
        assert done.returncode == 0, done.stderr
        client.xadd(bus.keys[0].incoming, {"n": 1, "to": 1, "at": 0, "b": b"\xc1"})  # no batch: a dead letter
        workers = (("sink",), ("log",), ("lifecycle",), ("notify", "--since", "1h", "--rules", str(rules)))
        exporting = ("export", "--name", "archive", "--to", f"file:{work}/archive.jsonl", "--from", "beginning")
        with ExitStack() as ends:
            started = [
                ends.enter_context(Program("worker", *words, env=env, folder=Path(work)))
                for words in (*workers, exporting)
            ]
            recorded.update(record(url, "stored"))
            eventually(lambda: counted(url) == recorded)
            eventually(lambda: client.xlen(bus.keys[0].dead) > 0)
            eventually(lambda: client.keys(f"{PREFIX}:{{0}}:notify:*"), within_s=30)
            eventually(lambda: client.keys(f"{PREFIX}:{{0}}:export:*"))
            for worker in started:
                assert worker.stop() == 0
        seen = {"events": events(url), "objects": objects(env)}
        recorded.update(record(url, "waiting"))
        settings = Settings(prefix=PREFIX, spool=str(folder / "spool"), spool_when=SpoolWhen.ALWAYS, flush_s=0.5)
        with EventBroadcaster(url, settings=settings) as broadcaster:
            recorder = broadcaster.new_recorder("frozen")
            recorded.update(recorded_to(recorder, "spooled-0"))
            assert broadcaster.flush(60)
            keys = {name.decode("latin-1"): dumped(client, name) for name in sorted(client.keys("*"))}
            client.close()
            server.stop()
            recorded.update(recorded_to(recorder, "spooled-1"))
    version = json.loads(run("version", "-o", "json", env=env).stdout)["clientVersion"]
    frozen = {"version": version, **seen, "counts": dict(recorded), "keys": keys}
    (folder / "frozen.json").write_text(json.dumps(frozen, indent=1) + "\n", "utf-8")
    return frozen


def write(path: Path, text: str) -> Path:
    """Write a file and return its path."""
    path.write_text(text, "utf-8")
    return path


def record(url: str, name: str) -> Counter[str]:
    """Record repeats, similar and long events, so that batches of both codecs are sent. Returns: events by object."""
    with EventBroadcaster(url, settings=Settings(prefix=PREFIX)) as broadcaster:
        recorder = broadcaster.new_recorder("frozen")
        for i in range(20):
            about = ObjectReference("Pod", "shop", f"{name}-{i % 4}", f"uid-{name}-{i % 4}", "v1")
            if i % 4 == 3:
                recorder.eventf(about, "Normal", "Similar", "attempt %s of many", i)
            else:
                recorder.event(about, "Warning" if i % 4 else "Normal", "Repeated", "the same long message " * 10)
        assert broadcaster.flush(60)
        recorder.event(ObjectReference("Pod", "shop", f"{name}-0", f"uid-{name}-0", "v1"), "Normal", "Alone", "short")
        assert broadcaster.flush(60)
    return Counter({f"{name}-0": 6, f"{name}-1": 5, f"{name}-2": 5, f"{name}-3": 5})


def recorded_to(recorder: EventRecorder, name: str) -> Counter[str]:
    """Record an event about a pod. Returns: its name."""
    recorder.event(ObjectReference("Pod", "shop", name, f"uid-{name}", "v1"), "Normal", "Spooled", "m")
    return Counter([name])


def dumped(client: Any, name: bytes) -> dict[str, Any]:
    """Return a key's value as DUMP writes it, its type, and the milliseconds until it expires, or 0."""
    payload = base64.b64encode(client.dump(name)).decode("ascii")
    return {"type": client.type(name).decode(), "ttl_ms": max(client.pttl(name), 0), "dump": payload}


def thaw(client: Redis, keys: Mapping[str, Mapping[str, Any]]) -> None:
    """Restore the keys."""
    for name, value in keys.items():
        client.restore(name.encode("latin-1"), value["ttl_ms"], base64.b64decode(value["dump"]))


def events(url: str) -> list[dict[str, Any]]:
    """Return the stored events as a reader sees them."""
    shown = run("get", "events", "-A", "-o", "json", env=environment(url, PREFIX))
    assert shown.returncode == 0, shown.stderr
    found: list[dict[str, Any]] = json.loads(shown.stdout)["items"]
    return sorted(
        (each for each in found if each["involvedObject"]["kind"] == "Pod"), key=lambda e: e["metadata"]["uid"]
    )


def counted(url: str) -> Counter[str]:
    """Return how often the events of each object are counted."""
    found = Counter[str]()
    for event in events(url):
        found[event["involvedObject"]["name"]] += event["count"]
    return found


def objects(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the stored objects of each kind."""
    shown = {kind: run("get", kind, "-A", "-o", "json", env=env) for kind in KINDS}
    return {kind: json.loads(done.stdout)["items"] for kind, done in shown.items()}


def main() -> int:
    """Freeze into `tests/vectors/formats/VERSION`."""
    (version,) = sys.argv[1:]
    program = shutil.which("redis-server")
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        server = EmbeddedServer(Path(folder), binary=Path(program) if program else None)
        server.start()
        with make_client(str(server.url)) as client:
            found: dict[str, Any] = client.info("server")
        if "valkey_version" in found or not str(found["redis_version"]).startswith("7.0."):
            print("freeze: Redis 7.0 is needed on PATH, as redis-server", file=sys.stderr)
            server.stop()
            return 1
        frozen = freeze(FORMATS / version, server)
    print(f"freeze: {len(frozen['keys'])} keys and {len(frozen['events'])} events in {FORMATS / version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
