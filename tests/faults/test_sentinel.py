"""Row 34: a primary dies, and its sentinels make a replica the primary: who was given the sentinels goes on there.

One primary, two replicas, three sentinels, all on loopback, made of the embedded server's program.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventbus import EventBroadcaster, Settings
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import environment, run
from tests.faults.conftest import Harm, Note, NoteControl
from tests.faults.scene import Scene, reached, until
from tests.functions.sentinels import Watched
from tests.support.harness import read_incoming
from tests.waiting import eventually

DEATH = "34 sentinels, primary killed"

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def watched(short_path: Path) -> Watched:
    return Watched(short_path)


def kill_the_primary(scene: Scene, watched: Watched, url: str) -> tuple[bool, float]:
    """Under load. Returns: whether producers and workers go on afterwards, and when it had failed over."""
    scene.worker(url=url)
    producers = [scene.producer(url=url, rate=800, flush_s=5) for _ in range(2)]
    until(lambda: all(producer.acknowledged > 20 for producer in producers))
    until(lambda: scene.meta("events"))
    watched.kill(0)
    until(watched.has_failed_over)
    taken_over = time.monotonic()
    published, recorded = -1, -1

    def begun() -> bool:
        nonlocal published, recorded
        published, recorded = scene.published, scene.meta("events")
        return True

    until(begun)
    within_s = 60 if url == watched.url else 8
    return reached(lambda: scene.published > published + 500 and scene.meta("events") > recorded, within_s), taken_over


def test_who_was_given_the_sentinels_goes_on_and_nothing_is_lost(
    scene: MakeScene, watched: Watched, note: Note
) -> None:
    here = scene(server=watched)
    went_on, taken_over = kill_the_primary(here, watched, watched.url)
    assert went_on
    new = here.producer(url=watched.url, rate=200)
    until(lambda: new.acknowledged > 5)
    for producer in here.producers:
        producer.signal(signal.SIGTERM)
    for producer in here.producers:
        assert producer.wait() == 0
        assert not producer.losses
    verdict = here.verdict(since=taken_over)
    note(DEATH, verdict)
    assert verdict.clean, verdict


def test_watchers_exports_and_commands_that_were_given_the_sentinels_go_on_too(
    scene: MakeScene, watched: Watched, note: Note
) -> None:
    """A watcher of a group and an export may hear twice what the old primary alone knew to be done; none misses one."""
    here = scene(server=watched)
    exported = here.folder / "exported.jsonl"
    options: dict[str, Any] = {"to": f"file:{exported}?fsync=never", "from": "beginning"}
    here.worker(kind="export", url=watched.url, **options)
    settings, heard = Settings(prefix=here.prefix), set[str]()
    with EventBroadcaster(watched.url, settings=settings) as broadcaster:
        broadcaster.start_event_watcher(lambda event: heard.add(event.metadata.uid), group="heard")
        went_on, taken_over = kill_the_primary(here, watched, watched.url)
        assert went_on
        for producer in here.producers:
            producer.signal(signal.SIGTERM)
            assert producer.wait() == 0
        env = environment(watched.url, here.prefix)
        recorded = run("record", "Pod/web-0", "--reason", "Commanded", "--message", "m", env=env)
        assert recorded.returncode == 0, recorded.stderr
        verdict = here.verdict(since=taken_over)
        note(f"{DEATH}: watchers, exports, commands", verdict)
        assert verdict.clean, verdict
        spoken = {event.metadata.uid for event in read_incoming(watched.url, settings) if event.reason == "Numbered"}
        eventually(lambda: spoken <= heard)
    stored = {
        event.metadata.name: event.count
        for event in ObjectStore(here.bus, here.client).list().items
        if event.reason in ("Numbered", "Commanded")
    }
    assert sum(stored.values()) == len(spoken) + 1
    eventually(lambda: stored.items() <= counts_in(exported).items())
    listed = run("get", "events", "-A", "-o", "json", env=env)
    assert listed.returncode == 0, listed.stderr
    assert stored.keys() <= {item["metadata"]["name"] for item in json.loads(listed.stdout)["items"]}


def counts_in(exported: Path) -> dict[str, int]:
    """Name → count of what was written last about each event; the last line may be half written."""
    events = [json.loads(line)["event"] for line in exported.read_bytes().split(b"\n")[:-1]]
    return {event["metadata"]["name"]: event["count"] for event in events}


def test_control_who_was_given_the_primary(scene: MakeScene, watched: Watched, note_control: NoteControl) -> None:
    here = scene(server=watched)
    went_on, _ = kill_the_primary(here, watched, watched.server_url(0))
    note_control(DEATH, Harm(not went_on, "nothing more arrives"), "redis:// of the primary")
