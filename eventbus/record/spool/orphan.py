"""Sends the events that a dead process has left in the spool, under their old numbers.

The producer's old id makes this exactly-once: Redis answers DUP for batches that it already has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from eventbus.broker.transport import BusDescription, Transport
from eventbus.clock import Clock
from eventbus.encoding.wire import unpack_wire
from eventbus.errors import BusUnavailable, PoisonBatch
from eventbus.event import ObjectReference
from eventbus.record.buffer import Buffer
from eventbus.record.losses import Losses
from eventbus.record.producer import NumberedBatch, Producer
from eventbus.record.sender import Sender
from eventbus.record.spool.claim import Claim
from eventbus.record.spool.journal import Journal
from eventbus.record.spool.machine_time import MachineTime
from eventbus.record.spool.records import Header, Line
from eventbus.record.spool.spool import BusName, Spool
from eventbus.settings import Settings


def is_for(header: Header, bus: BusName) -> bool:
    """Return True if events that were recorded for *header*'s bus may be sent to *bus*."""
    if header.bus_id:
        return header.bus_id == bus.id
    return (header.address, header.prefix) == (bus.address, bus.prefix)


class Orphan:
    """A folder that this process has claimed, with its waiting events.

    Raises: OSError: it cannot be read.
    """

    def __init__(self, claim: Claim, *, settings: Settings, clock: Clock, losses: Losses) -> None:
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self._machine = MachineTime(clock)
        self._journal, self.contents = Journal.adopt(claim, limit_bytes=2**62)

    @property
    def folder(self) -> Path:
        """Return its folder."""
        return self._journal.folder

    def send(self, bus: BusName, connect: Callable[[], Transport], stopped: Callable[[], bool] = lambda: False) -> int:
        """Send all events to *bus*, and remove the folder. Blocks until then, or until *stopped*. Returns how many.

        If this process is killed meanwhile, or the bus refuses, the events that were not acknowledged stay.

        Raises: BusUnavailable, BusRefused, ConfigError: the rest waits for another attempt.
        """
        header, events = self.contents.header, self.contents.events
        assert header is not None
        spool = Spool(
            root=self.folder.parent,
            bus=bus,
            limit_bytes=2**62,
            always=False,
            clock=self._clock,
            losses=self._losses,
            machine=self._machine,
            adopted=self._journal,
            whole=not self.contents.problem and not self.contents.unplaced,
        )
        sender = Sender(
            connect=connect,
            buffer=Buffer(settings=self._settings, clock=self._clock, losses=self._losses),
            settings=self._settings,
            clock=self._clock,
            losses=self._losses,
            spool=spool,
        )
        try:
            with sender.lock:
                description = sender.open()
            if header.partitions not in (0, description.partitions):
                raise BusUnavailable(f"{self.folder} is for a bus of {header.partitions} partitions")
            self._restore(sender, header, description)
            while not sender.idle:
                if stopped():
                    raise BusUnavailable("stopped")
                if not sender.round():
                    self._clock.sleep(min(0.05, sender.due_in_s()))
        finally:
            sender.close()
            spool.release()
        return events

    def release(self) -> None:
        """Leave it unchanged for the next process."""
        self._journal.release()

    def discard_empty(self) -> None:
        """Remove it: no event waits in it."""
        self._journal.remove()

    def _restore(self, sender: Sender, header: Header, description: BusDescription) -> None:
        lines = [line for line in self.contents.lines.values() if line.batches]
        by_partition = {line.partition: line for line in lines}
        if len(by_partition) < len(lines) or any(p >= description.partitions for p in by_partition):
            raise BusUnavailable(f"{self.folder} has lines that do not go together: it is left alone")
        for partition, line in by_partition.items():
            self._take_over(sender.producers[partition], line, header)
        sender.place([(reference, event) for event in self.contents.unplaced if (reference := _about(event))])

    def _take_over(self, producer: Producer, line: Line, header: Header) -> None:
        batches = [NumberedBatch(batch.first, batch.packed, batch.losses) for batch in line.in_order()]
        assert line.accepted is not None
        producer.take_over(
            id=line.producer.id,
            secret=line.producer.secret,
            generation=line.generation,
            silent_ms=self._machine.since_ms(line.accepted, header.boot),
            batches=batches,
        )


def _about(event: bytes) -> ObjectReference | None:
    try:
        return ObjectReference(*unpack_wire(event).involved_object)
    except (PoisonBatch, TypeError, msgspec.MsgspecError):
        return None  # not an event of ours, although the checksum is right
