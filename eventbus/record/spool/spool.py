"""The spool of one process: writes down what Redis is slow to acknowledge, and notes what it has acknowledged since.

Used under the sender's lock, by the flusher and by the `SpoolKeeper`, which takes over while the flusher waits.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import msgspec

from eventbus.clock import Clock
from eventbus.errors import BusUnavailable, ConfigError
from eventbus.record.losses import Losses
from eventbus.record.producer import NumberedBatch, Producer
from eventbus.record.spool.claim import Claim
from eventbus.record.spool.journal import Journal
from eventbus.record.spool.machine_time import MachineTime
from eventbus.record.spool.records import (
    Acknowledged,
    Header,
    KeptBatch,
    ProducerIdentity,
    Record,
    chunks,
    encode,
    encode_file,
)

#: A file that has no room is written anew if it has so many times what waits.
COMPACT_TIMES = 2


class BusName(msgspec.Struct, frozen=True):
    """The bus that a spool is for: by the bus's own *id* if it was ever reached, else by where it was looked for."""

    address: str  #: the url without a password
    prefix: str
    id: str = ""
    partitions: int = 0


class _Written:
    """The part of one partition that the file has: *everything* that waits, or nothing."""

    def __init__(self, producer: Producer, *, everything: bool = False) -> None:
        self.revision = producer.revision
        #: the last of which the file knows that Redis has it
        self.acknowledged = producer.acknowledged
        #: the last that was written, or need not be
        self.to = producer.waiting[-1].last if everything and producer.waiting else self.acknowledged


class Spool:
    """Keeps in a journal what of *producers* waits. Until something has to be written there is no folder.

    Args: always: write every batch before it is sent.
          adopted: another process's journal, whose content *producers* hold.  whole: that can be appended to as it is.
    """

    def __init__(
        self,
        *,
        root: Path,
        bus: BusName,
        limit_bytes: int,
        always: bool,
        clock: Clock,
        losses: Losses,
        machine: MachineTime | None = None,
        adopted: Journal | None = None,
        whole: bool = True,
    ) -> None:
        self._root = root
        self._bus = bus
        self._limit_bytes = limit_bytes
        self._always = always
        self._clock = clock
        self._losses = losses
        self._machine = machine or MachineTime(clock)
        self._journal = adopted
        self._adopted = adopted is not None
        self._written: list[_Written] = []
        self._head = 0  # bytes of the file before its first batch
        self._unplaced = 0  # events in the file without a partition
        self._stale = not whole  # the file is not what waits with new batches behind
        self._refused = ""  # why there can be no spool here

    @property
    def in_use(self) -> bool:
        """The file may hold what Redis has not."""
        return self._journal is not None and (
            self._unplaced > 0 or any(each.to > each.acknowledged for each in self._written)
        )

    def know(self, bus_id: str, partitions: int) -> None:
        """Take it that the bus was reached, and which it is."""
        bus = msgspec.structs.replace(self._bus, id=bus_id, partitions=partitions)
        if bus != self._bus:
            self._bus, self._stale = bus, self._journal is not None

    def keep(self, producers: Sequence[Producer], unplaced: Sequence[bytes] = (), *, sealed_before: float) -> bool:
        """Write what was sealed before that moment (monotonic) and is not written. False: some of it is not.

        Must come before each `publish`: a batch that changed its number must not be in the file under the old one.

        Raises: BusUnavailable: it is in an adopted file, which cannot be written now. Nothing may be sent.
        """
        self._look_at(producers)
        if self._stale and not self._write_all(producers, unplaced):
            return False
        late = self._late(producers, unplaced, sealed_before)
        if not late:
            return True
        if self._journal is None and not self._open():
            return False
        if self._append(late):
            return True
        if self._is_wasteful(producers, unplaced):
            return self._write_all(producers, unplaced)
        return self._tell_full()

    def settle(self, producers: Sequence[Producer]) -> None:
        """Note what Redis has acknowledged. That need not be written to be safe: a repeat would be answered DUP."""
        if self._journal is None or self._stale:
            return
        records: list[Record] = []
        for partition, (producer, written) in enumerate(zip(producers, self._written, strict=True)):
            if producer.revision != written.revision:
                return  # first it is written anew
            last = producer.acknowledged
            if last > written.acknowledged:
                if written.to > written.acknowledged:
                    records.append(self._acknowledged(partition, producer, min(last, written.to)))
                written.acknowledged, written.to = last, max(last, written.to)
        if not records:
            return
        if not self.in_use:
            self._clear()
        else:
            self._journal.append(b"".join(map(encode, records)))

    def kept(self, producers: Sequence[Producer]) -> int:
        """Count the events that wait and are in the file."""
        if self._journal is None or self._stale:
            return 0
        return self._unplaced + sum(
            batch.packed.count
            for producer, written in zip(producers, self._written, strict=False)
            if producer.revision == written.revision
            for batch in producer.waiting
            if batch.last <= written.to
        )

    @property
    def unsynced(self) -> bool:
        """The disk may not have all that was written."""
        return self._journal is not None and self._journal.unsynced

    def sync(self) -> None:
        """Have the disk take what was written. Any thread, without the lock."""
        if journal := self._journal:
            journal.sync()

    def release(self) -> Path | None:
        """Let go of the folder: if something waits in it, whoever comes next sends it. Returns that folder."""
        journal, self._journal = self._journal, None
        if journal is None:
            return None
        kept = self._stale or self._unplaced > 0 or any(each.to > each.acknowledged for each in self._written)
        self._written, self._unplaced, self._stale = [], 0, False
        if not kept:
            journal.remove()
            return None
        journal.sync()
        journal.release()
        return journal.folder

    def forget(self) -> None:
        """In a child after fork: close what it has inherited; the files and the lock are the parent's."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.release()

    # -- the file ------------------------------------------------------------------------------------------------

    def _look_at(self, producers: Sequence[Producer]) -> None:
        """Begin with producers that are new; find those whose batches have other numbers than the file."""
        for producer in producers[len(self._written) :]:
            self._written.append(_Written(producer, everything=self._adopted))
            self._stale |= self._unplaced > 0
        for partition, (producer, written) in enumerate(zip(producers, self._written, strict=True)):
            if producer.revision != written.revision:
                self._written[partition] = _Written(producer)
                self._stale |= self._journal is not None and written.to > written.acknowledged

    def _late(
        self, producers: Sequence[Producer], unplaced: Sequence[bytes], sealed_before: float
    ) -> list[tuple[bytes, _Written | None, int]]:
        """Return what is to be written: the record, whose it is, and how far that is then written."""
        late: list[tuple[bytes, _Written | None, int]] = []
        for partition, (producer, written) in enumerate(zip(producers, self._written, strict=True)):
            for batch in producer.waiting:
                if batch.last > written.to:
                    if batch.sealed_at > sealed_before and not self._always:
                        break
                    late.append((encode(self._record(partition, producer, batch)), written, batch.last))
        late += [(encode(chunk), None, len(chunk.events)) for chunk in chunks(unplaced[self._unplaced :])]
        return late

    def _append(self, late: Sequence[tuple[bytes, _Written | None, int]]) -> bool:
        """Write as many as there is room for. False: not all."""
        assert self._journal is not None
        sizes = accumulate(len(record) for record, _, _ in late)
        fitting = max(1, sum(size <= self._journal.room for size in sizes))  # the journal says why it takes none
        if self._journal.append(b"".join(record for record, _, _ in late[:fitting])):
            for _, written, reached in late[:fitting]:
                if written is None:
                    self._unplaced += reached
                else:
                    written.to = reached
            return fitting == len(late)
        return False

    def _write_all(self, producers: Sequence[Producer], unplaced: Sequence[bytes]) -> bool:
        """Replace the file by one with all that waits. What it cannot hold anew it must not hold as it was."""
        assert self._journal is not None
        header = encode_file(self._header())
        batches = [
            self._record(partition, producer, batch)
            for partition, producer in enumerate(producers)
            for batch in producer.waiting
        ]
        records: list[Record] = [*batches, *chunks(unplaced)]
        if not self._journal.replace(header + b"".join(map(encode, records))):
            if self._adopted:
                raise BusUnavailable(f"{self._journal.folder} cannot be written: {self._journal.problem}")
            if self._stale:
                self._give_up()
            return self._tell_full()
        self._head, self._stale, self._unplaced = len(header), False, len(unplaced)
        for written, producer in zip(self._written, producers, strict=True):
            written.acknowledged = producer.acknowledged
            written.to = producer.waiting[-1].last if producer.waiting else producer.acknowledged
        return True

    def _give_up(self) -> None:
        """The file is wrong and cannot be written: what is in it would be sent under numbers that are not its own."""
        assert self._journal is not None
        self._journal.remove()
        self._journal = None
        self._written, self._unplaced, self._stale = [], 0, False

    def _clear(self) -> None:
        assert self._journal is not None
        try:
            self._journal.cut(self._head)
        except OSError:
            self._stale = True
        self._unplaced = 0

    def _is_wasteful(self, producers: Sequence[Producer], unplaced: Sequence[bytes]) -> bool:
        """Most of the file has been acknowledged."""
        assert self._journal is not None
        waiting = sum(batch.size for producer in producers for batch in producer.waiting) + sum(map(len, unplaced))
        return self._journal.size > COMPACT_TIMES * waiting

    def _open(self) -> bool:
        if self._refused:
            return False
        try:
            claim = Claim.make(self._root)
        except ConfigError as error:
            self._refused = str(error)
            self._losses.tell("spool", f"nothing is kept on disk: {error}")
            return False
        except OSError as error:
            self._losses.tell("spool", f"nothing is kept on disk: EVENTBUS_SPOOL={self._root}: {error}")
            return False
        self._journal = Journal(claim, limit_bytes=self._limit_bytes)
        header = encode_file(self._header())
        if not self._journal.replace(header):
            self._tell_full()
            self._give_up()
            return False
        self._head = len(header)
        return True

    def _tell_full(self) -> bool:
        problem = self._journal.problem if self._journal else "it was written anew"
        self._losses.tell("spool", f"the spool takes no more, what comes now is in memory only: {problem}")
        return False

    def _header(self) -> Header:
        return Header(
            bus_id=self._bus.id,
            address=self._bus.address[:256],
            prefix=self._bus.prefix,
            partitions=self._bus.partitions,
            boot=self._machine.boot,
            host=socket.gethostname()[:256],
            pid=os.getpid(),
            started_ms=time.time_ns() // 1_000_000,
        )

    def _record(self, partition: int, producer: Producer, batch: NumberedBatch) -> KeptBatch:
        accepted = self._machine.ago(producer.silent_ms)
        identity = ProducerIdentity(producer.id, producer.secret)
        return KeptBatch(partition, identity, batch.first, producer.generation, accepted, batch.losses, batch.packed)

    def _acknowledged(self, partition: int, producer: Producer, last: int) -> Acknowledged:
        accepted = self._machine.ago(producer.silent_ms)
        return Acknowledged(
            partition, ProducerIdentity(producer.id, producer.secret), last, producer.generation, accepted
        )
