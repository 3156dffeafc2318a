"""A producer process: records numbered events, and writes down each one that Redis said it has.

Each event carries a tag of its own in an annotation, which correlation does not look at: `<name>-<number>`. The
accept-log has a line for every acknowledged batch, written at once: producer id, first sequence, numbers. What was
acknowledged and is not in Redis is lost; no other definition is used anywhere.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import msgpack

from eventbus.broker import transport
from eventbus.broker.transport import PublishReply, PublishStatus
from eventbus.errors import EventBusError
from eventbus.model.event import ObjectReference
from eventbus.record import resend
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.record.resend import Producer
from tests.faults.breakages import apply

TAG = "tag"
NAMESPACE = "faults"
#: objects that a producer speaks about, in turn, unless told otherwise
OBJECTS = 20
#: events that a child records
OF_A_CHILD = 500


def tag_of(packed: bytes) -> str:
    """The tag of an event on the wire; empty: it is none of ours."""
    array = msgpack.unpackb(packed)
    annotations = array[16] if len(array) > 16 else None
    return str((annotations or {}).get(TAG, ""))


def keep_accept_log(path: Path) -> None:
    """From now on every batch of this process that Redis acknowledges is written down before anything else."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    settle: Any = Producer.settle

    def settle_and_note(self: Producer, answer: PublishReply) -> bool:
        batch, producer_id = self.waiting[0], self.id
        done = bool(settle(self, answer))
        if answer.status in (PublishStatus.OK, PublishStatus.LOST, PublishStatus.DUP):
            tags = " ".join(filter(None, map(tag_of, batch.packed.events())))
            os.write(log, f"{producer_id} {batch.first} {answer.status} {tags}\n".encode())
        return done

    Producer.settle = settle_and_note  # type: ignore[method-assign]


class Recording:
    """Records `<name>-0`, `<name>-1`, … about *objects* objects in turn, at *rate* a second (0: as fast as it can)."""

    def __init__(
        self, name: str, recorder: EventRecorder, *, objects: int, rate: float, mark: str = "", noise: int = 0
    ) -> None:
        self.name = name
        self._recorder = recorder
        self._about = [ObjectReference("Pod", NAMESPACE, f"{name}-{n}", "", "v1") for n in range(objects)]
        self._rate = rate
        self._mark = mark
        self._noise = noise
        self.recorded = 0

    def run(self, count: int, stop: threading.Event, pause_s: float = 0, go_on: threading.Event | None = None) -> None:
        """Return when *count* are recorded, or *stop* is set; *go_on* ends the pause between the halves."""
        if pause_s:
            self.run(count // 2, stop)
            (go_on or stop).wait(pause_s)
        begun = time.monotonic() - (self.recorded / self._rate if self._rate else 0)
        while not stop.is_set() and (not count or self.recorded < count):
            if self._rate and self.recorded >= (time.monotonic() - begun) * self._rate:
                stop.wait(0.002)
                continue
            self.one()

    def one(self) -> None:
        number = self.recorded
        message = self._mark if self._mark and number == 31 else "as before"
        annotations = {TAG: f"{self.name}-{number}"}
        if self._noise:
            annotations["noise"] = os.urandom(self._noise).hex()
        about = self._about[number % len(self._about)]
        self._recorder.annotated_eventf(about, annotations, "Normal", "Numbered", "%s", message)
        self.recorded += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("accepted", type=Path)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument(
        "--pause-s", type=float, default=0, help="at most, between the halves of --count; SIGUSR1 ends it"
    )
    parser.add_argument("--mark", default="")
    parser.add_argument("--noise", type=int, default=0, help="bytes in each event that nothing compresses")
    parser.add_argument("--recorders", type=int, default=1, help="so many broadcasters, each a producer of its own")
    parser.add_argument("--life-ms", type=int, default=0, help="of a producer's state, instead of 2 h")
    parser.add_argument("--children", choices=["", "fork", "multiprocessing"], default="")
    parser.add_argument("--breakage", action="append", default=[])
    parser.add_argument("--stay", type=int, default=0, help="1: idle until SIGTERM once all is recorded")
    parser.add_argument("--flush-s", type=float, default=30)
    given = parser.parse_args()
    apply(given.breakage)
    keep_accept_log(given.accepted)
    if given.life_ms:
        transport.PRODUCER_LIFE_MS = given.life_ms
        vars(resend)["PRODUCER_LIFE_MS"] = given.life_ms
    stop, go_on = threading.Event(), threading.Event()
    broadcasters = [EventBroadcaster() for _ in range(given.recorders)]

    def end(*_: object) -> None:
        stop.set()
        go_on.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGUSR1, lambda *_: go_on.set())
    recordings = [
        Recording(
            given.name if given.recorders == 1 else f"{given.name}x{i}",
            broadcaster.new_recorder("faults", "here"),
            objects=given.objects,
            rate=given.rate,
            mark=given.mark,
            noise=given.noise,
        )
        for i, broadcaster in enumerate(broadcasters)
    ]
    orders = (given.count, stop, given.pause_s, go_on)
    threads = [threading.Thread(target=recording.run, args=orders) for recording in recordings]
    for thread in threads:
        thread.start()
    if given.children:
        time.sleep(0.05)
        _have_children(given.children, given.name, broadcasters[0])
    for thread in threads:
        thread.join()
    if given.stay:
        stop.wait()
    deadline = time.monotonic() + given.flush_s
    losses: dict[str, int] = {}
    for broadcaster in broadcasters:
        broadcaster.shutdown(max(0.2, deadline - time.monotonic()))
        for cause, n in broadcaster.losses.counts.items():
            losses[cause] = losses.get(cause, 0) + n
    recorded = sum(recording.recorded for recording in recordings)
    recorded_by = {recording.name: recording.recorded for recording in recordings}
    if given.children:
        recorded_by |= {f"{given.name}c{n}": OF_A_CHILD for n in range(3)}
    ended = {"recorded": recorded, "recorded_by": recorded_by, "losses": losses}
    given.accepted.with_suffix(".end").write_text(json.dumps(ended))


def _have_children(kind: str, name: str, broadcaster: EventBroadcaster) -> None:
    """Three children in the middle of it, each of which records with what it has inherited."""
    if kind == "multiprocessing":
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=_child, args=(f"{name}c{n}", broadcaster)) for n in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        return
    pids = []
    for n in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                _child(f"{name}c{n}", broadcaster)
                broadcaster.shutdown(60)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


def _child(name: str, broadcaster: EventBroadcaster) -> None:
    Recording(name, broadcaster.new_recorder("faults", "here"), objects=5, rate=0).run(OF_A_CHILD, threading.Event())


if __name__ == "__main__":
    try:
        main()
    except EventBusError as error:
        raise SystemExit(f"error: {error}") from None
