"""Sends the events that dead processes of this machine have left in the spool; it checks every 30 s."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from eventbus.broker.transport import BusDescription, Transport
from eventbus.errors import BusUnavailable, ConfigError, EventBusError, PoisonBatch
from eventbus.model.encoding.wire import unpack_wire
from eventbus.model.event import ObjectReference
from eventbus.record.latch import Latch
from eventbus.record.losses import Losses
from eventbus.record.resend import NumberedBatch, Producer
from eventbus.record.sender import Sender
from eventbus.record.spool.journal import Claim, Journal, folders
from eventbus.record.spool.records import Header, Line, MachineTime
from eventbus.record.spool.spool import BusName, FolderStuck, Spool, name_before_opening
from eventbus.settings import Settings, SpoolWhen
from eventbus.util.clock import Clock
from eventbus.util.log import log

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus

#: seconds between two checks
EVERY_S = 30.0


def make_spool(
    *,
    url: str | None,
    settings: Settings,
    open_bus: Callable[[], Bus],
    connect: Callable[[], Transport],
    clock: Clock,
    losses: Losses,
) -> tuple[Spool, Adopter]:
    """Make the spool of *settings*, and the adopter of other processes' events. Touches no file yet."""
    name = name_before_opening(url, settings)

    def name_bus() -> BusName:
        bus = open_bus()
        return BusName(name.address, name.prefix, bus.id, bus.partitions)

    root = Path(settings.spool)
    spool = Spool(
        root=root,
        bus=name,
        limit_bytes=settings.spool_bytes,
        always=settings.spool_when is SpoolWhen.ALWAYS,
        clock=clock,
        losses=losses,
    )
    adopter = Adopter(root=root, name_bus=name_bus, connect=connect, settings=settings, clock=clock, losses=losses)
    return spool, adopter


class Adopter:
    """A thread that adopts orphans below *root* for as long as its process records.

    Args: name_bus: returns the bus that this process has reached.  connect: opens a transport for the thread.
          any_bus: send events that were recorded for another bus, too.
    """

    def __init__(
        self,
        *,
        root: Path,
        name_bus: Callable[[], BusName],
        connect: Callable[[], Transport],
        settings: Settings,
        clock: Clock,
        losses: Losses,
        any_bus: bool = False,
    ) -> None:
        self._root = root
        self._name_bus = name_bus
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._losses = losses
        self._any_bus = any_bus
        self._stopping = Latch()
        self._transport: Transport | None = None
        self._orphan: Orphan | None = None
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread: it checks at once, and then every EVERY_S."""
        self.thread = threading.Thread(target=self._run, name="eventbus-adopter", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ask the thread to end; events that it is sending stay in their file. Does not wait."""
        self._stopping.set()
        if transport := self._transport:
            with suppress(Exception):  # the thread may be using it
                transport.close()

    def forget(self) -> None:
        """In a child after fork, close the file that its parent is sending."""
        if self._orphan is not None:
            self._orphan.release()

    def _run(self) -> None:
        while not self._stopping.happened:
            try:
                self.adopt()
            except FileNotFoundError:
                pass  # there is no spool yet
            except (EventBusError, OSError) as error:
                if not self._stopping.happened:
                    self._losses.log("orphans", f"events of other processes in the spool wait: {error}")
            except Exception:
                log.exception("the spool goes on after an unexpected error")
            self._stopping.wait(EVERY_S * random.uniform(0.8, 1.2))

    def adopt(self) -> int:
        """Send the orphans' events for this bus. Returns how many.

        Raises: BusUnavailable, BusRefused, ConfigError: the rest waits.  FolderStuck: that folder waits, the others are
                sent.  OSError: the spool cannot be read.
        """
        sent = 0
        stuck: FolderStuck | None = None
        for folder in folders(self._root):
            if self._stopping.happened:
                break
            try:
                claim = Claim.take(folder)
            except ConfigError as error:
                self._losses.log("orphans", str(error))
                continue
            if claim is not None:
                try:
                    sent += self._send(claim)
                except FolderStuck as error:
                    stuck = stuck or error
        if stuck is not None:
            raise stuck
        return sent

    def _send(self, claim: Claim) -> int:
        orphan = self._orphan = Orphan(claim, settings=self._settings, clock=self._clock, losses=self._losses)
        try:
            header = orphan.contents.header
            if not orphan.contents.events:
                if header is not None or orphan.contents.torn:
                    orphan.discard_empty()
                return 0
            assert header is not None
            bus = self._name_bus()
            if not (self._any_bus or is_for(header, bus)):
                return 0
            sent = orphan.send(bus, self._open, self._stopping)
            log.warning("sent %d events that process %d had left in the spool", sent, header.pid)
            return sent
        finally:
            self._orphan = self._transport = None
            orphan.release()

    def _open(self) -> Transport:
        self._transport = self._connect()
        if self._stopping.happened:
            self._transport.close()
        return self._transport


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

    def send(self, bus: BusName, connect: Callable[[], Transport], stopping: Latch) -> int:
        """Send all events to *bus*, and remove the folder. Returns how many. Blocks until then, or until *stopping*.

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
            settings=self._settings,
            clock=self._clock,
            losses=self._losses,
            spool=spool,
        )
        try:
            with sender.lock:
                description = sender.open()
            if header.partitions not in (0, description.partitions):
                raise FolderStuck(f"{self.folder} is for a bus of {header.partitions} partitions")
            self._restore(sender, header, description)
            while not sender.idle:
                if stopping.happened:
                    raise BusUnavailable("stopped")
                with sender.lock:
                    sent = sender.round()
                if not sent:
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
            raise FolderStuck(f"{self.folder} has lines that do not go together: it is left alone")
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
