"""Rows 2 and 8, the producer's half: killed at every step, and on a line that loses replies and requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.conftest import LONG, Note, NoteControl
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import Scene, until

KILLED = "2 producer killed"
NETWORK = "8 network"

MakeScene = Callable[..., Scene]
MakeProxy = Callable[..., Proxy]


@pytest.fixture
def proxy(seed: int) -> Iterator[MakeProxy]:
    """Makes lines that end with the test."""
    made: list[Proxy] = []

    def make(upstream: str, **given: Any) -> Proxy:
        made.append(Proxy(upstream, seed=seed, **given))
        return made[-1].__enter__()

    yield make
    for each in made:
        each.__exit__()


def kill_two(scene: Scene, crash: str, *breakage: str) -> float:
    """Two producers die one after the other, a third one lives."""
    scene.worker()
    for _ in range(2):
        victim = scene.producer(crash=f"kill:{crash}", rate=5_000, breakage=breakage)
        assert victim.wait() == -signal.SIGKILL
    died = time.monotonic()
    assert scene.producer(count=1_000, breakage=breakage, flush_s=3).wait() == 0
    return died


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param("publish:5", marks=pytest.mark.long),
        pytest.param("published:5", marks=pytest.mark.short),
        pytest.param("publish:40", marks=pytest.mark.long),
    ],
)
def test_what_was_acknowledged_outlives_its_producer(scene: MakeScene, crash: str, note: Note) -> None:
    here = scene()
    died = kill_two(here, crash)
    verdict = here.verdict(since=died)
    note(KILLED, verdict)
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_every_start_is_the_same_producer(scene: MakeScene, note_control: NoteControl) -> None:
    here = scene()
    kill_two(here, "published:5", "same-producer-id")
    note_control(KILLED, here.verdict(), "one producer id")


# -- 8 -----------------------------------------------------------------------------------------------------------


def on_a_bad_line(
    scene: Scene, proxy: MakeProxy, mode: Mode, *, producer: tuple[str, ...] = (), worker: tuple[str, ...] = ()
) -> float:
    """Producers and workers speak through a line that is bad for a while. Returns when it was good again."""
    line = proxy(scene.url, cut_every=8)
    # What is lost to a worker is a reply with entries in it; the others are short.
    workers_line = proxy(scene.url, cut_every=4, cut_bytes=1000 if mode is Mode.CUT_REPLY else 0)
    scene.worker(url=workers_line.url, breakage=worker)
    producing = scene.producer(url=line.url, rate=3_000 if LONG else 1_000, breakage=producer)
    until(lambda: producing.acknowledged > 5)
    line.mode = workers_line.mode = mode
    seconds = 8.0 if LONG else 1.5
    time.sleep(seconds)
    if mode in (Mode.CUT_REPLY, Mode.CUT_REQUEST):
        until(lambda: line.cuts >= 3 and workers_line.cuts >= 2)
    line.mode = workers_line.mode = Mode.PASS
    good = time.monotonic()
    producing.signal(signal.SIGTERM)
    assert producing.wait() == 0
    assert not producing.losses
    return good


MODES = [
    pytest.param(Mode.CUT_REPLY, marks=pytest.mark.short),
    pytest.param(Mode.CUT_REQUEST, marks=[pytest.mark.short, pytest.mark.volume]),
    *(
        pytest.param(mode, marks=pytest.mark.long)
        for mode in Mode
        if mode not in (Mode.PASS, Mode.CUT_REPLY, Mode.CUT_REQUEST)
    ),
]


@pytest.mark.parametrize("mode", MODES)
def test_a_bad_line_loses_and_doubles_nothing(scene: MakeScene, proxy: MakeProxy, mode: Mode, note: Note) -> None:
    here = scene()
    good = on_a_bad_line(here, proxy, mode)
    verdict = here.verdict(since=good)
    note(f"{NETWORK}: {mode}", verdict)
    assert verdict.accepted == here.producers[0].end["recorded"]
    assert verdict.clean, verdict


@pytest.mark.volume
@pytest.mark.short
def test_control_a_retry_under_a_fresh_number(scene: MakeScene, proxy: MakeProxy, note_control: NoteControl) -> None:
    here = scene()
    on_a_bad_line(here, proxy, Mode.CUT_REPLY, producer=("retry-renumbers",))
    note_control(f"{NETWORK}: {Mode.CUT_REPLY}", here.verdict(), "retries renumbered")


CONTROLS = [
    pytest.param(Mode.CUT_REQUEST, ("no-retry",), marks=pytest.mark.long),
    pytest.param(Mode.BLACK_HOLE, ("impatient", "no-retry"), marks=pytest.mark.long),
    pytest.param(Mode.REFUSE, ("no-retry",), marks=pytest.mark.long),
    pytest.param(Mode.DELAY, ("impatient", "retry-renumbers"), marks=pytest.mark.long),
    pytest.param(Mode.DRIP, ("impatient", "retry-renumbers"), marks=pytest.mark.long),
]


@pytest.mark.parametrize(("mode", "breakage"), CONTROLS)
def test_control_a_bad_line_and_calls_that_are_not_repeated_as_they_were(
    scene: MakeScene, proxy: MakeProxy, mode: Mode, breakage: tuple[str, ...], note_control: NoteControl
) -> None:
    here = scene()
    on_a_bad_line(here, proxy, mode, producer=breakage)
    verdict = here.verdict()
    verdict.lost += here.producers[0].end["recorded"] - verdict.accepted
    note_control(f"{NETWORK}: {mode}", verdict, breakage[-1])


@pytest.mark.long
def test_control_a_worker_that_does_not_look_what_it_was_given(
    scene: MakeScene, proxy: MakeProxy, note_control: NoteControl
) -> None:
    here = scene()
    on_a_bad_line(here, proxy, Mode.CUT_REPLY, worker=("own-pending-is-not-read",))
    note_control(f"{NETWORK}: {Mode.CUT_REPLY}", here.verdict(still_s=4), "own pending not read")
