"""Row 39: an import through kills, cut replies, outages of both ends and a forgotten position, 10 000 events."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eventbus import Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from tests.faults import test_failover
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.proxy import Mode
from tests.faults.scene import Scene, until
from tests.faults.test_failover import Pair, replace_master
from tests.support.import_survival import (
    bus_as_source,
    doubles,
    imported,
    missing,
    position_of,
    start_import,
    survive,
    written,
)
from tests.support.kubeconfig import write_kubeconfig
from tests.waiting import reached_while_falling

FAULT = "39 import"
EVENTS, DOWN_S = 10_000, 30

MakeScene = Callable[..., Scene]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

pair = test_failover.pair  # a fixture


@pytest.mark.timeout(900)
def test_each_event_and_repeat_of_another_bus_is_stored_once(
    scene: MakeScene, embedded_url: str, prefix: str, tmp_path: Path, note: Note
) -> None:
    with bus_as_source(embedded_url, f"{prefix}c", tmp_path) as source:
        survived = survive(
            source,
            scene(hold=False),
            lambda path, port: write_kubeconfig(path, f"http://127.0.0.1:{port}"),
            events=EVENTS,
            down_s=DOWN_S,
        )
    note(FAULT, survived.verdict, f"{survived.cuts} replies were cut")
    survived.assert_good()


@pytest.mark.parametrize(
    ("breakage", "crash", "breaks_first"),
    [
        ("known-events-are-written-again", "kill:import:written:1", False),
        ("the-position-goes-first", "kill:import:taken:1", True),
        ("a-gone-position-is-skipped", "", False),
    ],
)
def test_control_an_import_without_protection(
    scene: MakeScene,
    embedded_url: str,
    prefix: str,
    tmp_path: Path,
    note_control: NoteControl,
    breakage: str,
    crash: str,
    breaks_first: bool,
) -> None:
    here = scene(hold=False)
    with bus_as_source(embedded_url, f"{prefix}c", tmp_path) as source:
        config = write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{source.port}")
        source.record(range(50))
        first = start_import(here, config, crash=crash, breakage=(breakage,) if breaks_first else ())
        until(lambda: imported(here.bus) == source.held())
        until(lambda: position_of(here.bus))
        if crash:
            source.record(range(50, 100))
            until(lambda: first.ended)
        else:
            first.kill()
            source.record(range(50, 100))
            source.forget()  # which repeats the first event
        second = start_import(here, config, breakage=() if breaks_first else (breakage,))
        until(lambda: "is active now" in second.said)
        wanted, number = source.held(), 100
        while set(imported(here.bus)) <= wanted.keys():  # later ones show that the worker is past those
            source.record([number])
            number += 1
    verdict = Verdict(missing=missing(here.bus, wanted), double=doubles(written(here.bus)))
    note_control(FAULT, verdict, breakage.replace("-", " "))


def fail_over(pair: Pair, url: str, prefix: str, folder: Path, *breakage: str) -> Verdict:
    """Let a replica take over that lacks the last hundred events that a worker has written."""
    scene, replica, link, line = pair
    with bus_as_source(url, f"{prefix}c", folder) as source:
        config = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{source.port}")
        start_import(scene, config, breakage=breakage, url=line.url)
        source.record(range(100))
        until(lambda: imported(scene.bus) == source.held())
        version = scene.keys.version_of("events")
        with make_client(replica.url or "") as there:
            until(lambda: there.get(version) == scene.client.get(version))
        link.mode = Mode.BLACK_HOLE
        source.record(range(100, 200))
        until(lambda: imported(scene.bus) == source.held())
        taken_over = replace_master(pair)
        source.record(range(200, 300))
        wanted, bus = source.held(), open_bus(replica.url or "", Settings(prefix=scene.prefix))
        still_s = 10 if breakage else 60
        reached_while_falling(lambda: not missing(bus, wanted), lambda: missing(bus, wanted), still_s, (Exception,))
        recovery_s = time.monotonic() - taken_over
        return Verdict(accepted=len(wanted), missing=missing(bus, wanted), recovery_s=recovery_s)


def test_events_that_a_replica_lacks_are_imported_again(
    pair: Pair, embedded_url: str, prefix: str, tmp_path: Path, note: Note
) -> None:
    verdict = fail_over(pair, embedded_url, prefix, tmp_path)
    note(f"{FAULT}, failover", verdict)
    assert verdict.clean, verdict


def test_control_a_failover_that_the_importer_does_not_notice(
    pair: Pair, embedded_url: str, prefix: str, tmp_path: Path, note_control: NoteControl
) -> None:
    verdict = fail_over(pair, embedded_url, prefix, tmp_path, "lost-writes-are-not-noticed")
    note_control(f"{FAULT}, failover", verdict, "lost writes are not noticed")
