"""Row 34: a primary dies, and its sentinels make a replica the primary: who was given the sentinels goes on there.

One primary, two replicas, three sentinels, all on loopback, made of the embedded server's program.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Harm, Note, NoteControl
from tests.faults.scene import Scene, reached, until
from tests.functions.sentinels import Watched

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


def test_control_who_was_given_the_primary(scene: MakeScene, watched: Watched, note_control: NoteControl) -> None:
    here = scene(server=watched)
    went_on, _ = kill_the_primary(here, watched, watched.server_url(0))
    note_control(DEATH, Harm(not went_on, "nothing more arrives"), "redis:// of the primary")
