"""The spool of one process: keeps batches on disk that Redis is slow to acknowledge, and notes acknowledgements.

Used under the sender's lock, by the flusher, and by the outbox's `SpoolWriter` while the flusher waits.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import msgspec

from eventbus.errors import BusUnavailable, ConfigError
from eventbus.record.losses import Losses
from eventbus.record.resend import NumberedBatch, Producer
from eventbus.record.spool.journal import Claim, Journal
from eventbus.record.spool.records import (
    Acknowledged,
    Header,
    KeptBatch,
    MachineTime,
    ProducerIdentity,
    Record,
    chunks,
    encode,
    encode_file,
)
from eventbus.settings import Settings
from eventbus.util.clock import Clock

#: A full file is rewritten if it is so many times as large as the waiting batches.
COMPACT_TIMES = 2


class FolderStuck(BusUnavailable):
    """The events of one folder cannot be sent now; those of other folders may be."""


class BusName(msgspec.Struct, frozen=True):
    """The bus of a spool: named by its *id* if it was ever reached, else by its address."""

    address: str  #: the url without a password
    prefix: str
    id: str = ""
    partitions: int = 0


def name_before_opening(url: str | None, settings: Settings) -> BusName:
    """Name the bus before it has answered: by its address, without the password."""
    from eventbus.broker.connection.address import safe_url

    return BusName(safe_url(url) if url else f"embedded {settings.state_dir}".rstrip(), settings.prefix)


class _Written:
    """How far the file has one partition: *everything* that waits, or nothing."""

    def __init__(self, producer: Producer, *, everything: bool = False) -> None:
        self.waiting_revision = producer.waiting_revision
        #: the last sequence that the file notes as acknowledged
        self.acknowledged = producer.acknowledged
        #: the last sequence that is written, or need not be
        self.to = producer.waiting[-1].last if everything and producer.waiting else self.acknowledged


class Spool:
    """Keeps the waiting batches of *producers* in a journal. The first write makes the folder.

    Args: always: write every batch before it is sent.
          adopted: another process's journal; *producers* have its batches.  whole: it can be appended to.
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
        self._stale = not whole  # the file differs from the waiting batches by more than new ones at the end
        self._refused = ""  # why there can be no spool here

    @property
    def in_use(self) -> bool:
        """Return True if the file may have batches that Redis does not have."""
        return self._journal is not None and (
            self._unplaced > 0 or any(each.to > each.acknowledged for each in self._written)
        )

    def know(self, bus_id: str, partitions: int) -> None:
        """Note that the bus was reached, and its identity."""
        bus = msgspec.structs.replace(self._bus, id=bus_id, partitions=partitions)
        if bus != self._bus:
            self._bus, self._stale = bus, self._journal is not None

    def keep(self, producers: Sequence[Producer], unplaced: Sequence[bytes] = (), *, sealed_before: float) -> bool:
        """Write the batches that were sealed before that moment (monotonic) and are not written. False: not all.

        Call it before each `publish`: a batch that changed its number must not be in the file under the old one.

        Raises: FolderStuck: such a batch is in an adopted file, which cannot be written now. Send nothing.
        """
        self._compare(producers)
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
        return self._log_full()

    def settle(self, producers: Sequence[Producer]) -> None:
        """Note the batches that Redis has acknowledged. Safe without this write: Redis answers a repeat with DUP."""
        if self._journal is None or self._stale:
            return
        records: list[Record] = []
        for partition, (producer, written) in enumerate(zip(producers, self._written, strict=True)):
            if producer.waiting_revision != written.waiting_revision:
                return  # the whole file is rewritten first
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

    def count(self, producers: Sequence[Producer]) -> int:
        """Count the waiting events in the file."""
        if self._journal is None or self._stale:
            return 0
        return self._unplaced + sum(
            batch.packed.count
            for producer, written in zip(producers, self._written, strict=False)
            if producer.waiting_revision == written.waiting_revision
            for batch in producer.waiting
            if batch.last <= written.to
        )

    @property
    def unsynced(self) -> bool:
        """Return True if some writes may not be on the disk yet."""
        return self._journal is not None and self._journal.unsynced

    def sync(self) -> None:
        """Sync the writes to the disk. Any thread, without the lock."""
        if journal := self._journal:
            journal.sync()

    def release(self) -> Path | None:
        """Release the folder. If events wait in it, return it: the next process sends them."""
        journal, self._journal = self._journal, None
        if journal is None:
            return None
        unread = self._adopted and not self._written  # nothing of it was sent
        kept = unread or self._stale or self._unplaced > 0
        kept = kept or any(each.to > each.acknowledged for each in self._written)
        self._written, self._unplaced, self._stale = [], 0, False
        if not kept:
            journal.remove()
            return None
        journal.sync()
        journal.release()
        return journal.folder

    def forget(self) -> None:
        """In a child after fork, close the inherited descriptors; the files and the lock are the parent's."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.release()

    # -- the file ------------------------------------------------------------------------------------------------

    def _compare(self, producers: Sequence[Producer]) -> None:
        """Add new producers; find those with other numbers of their batches in the file."""
        for producer in producers[len(self._written) :]:
            self._written.append(_Written(producer, everything=self._adopted))
            self._stale |= self._unplaced > 0
        for partition, (producer, written) in enumerate(zip(producers, self._written, strict=True)):
            if producer.waiting_revision != written.waiting_revision:
                self._written[partition] = _Written(producer)
                self._stale |= self._journal is not None and written.to > written.acknowledged

    def _late(
        self, producers: Sequence[Producer], unplaced: Sequence[bytes], sealed_before: float
    ) -> list[tuple[bytes, _Written | None, int]]:
        """Return the records to write, each with its partition's state and last sequence."""
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
        """Write as many records as there is room for. False: not all."""
        assert self._journal is not None
        sizes = accumulate(len(record) for record, _, _ in late)
        fitting = max(1, sum(size <= self._journal.room for size in sizes))  # of one the journal says why
        if self._journal.append(b"".join(record for record, _, _ in late[:fitting])):
            for _, written, reached in late[:fitting]:
                if written is None:
                    self._unplaced += reached
                else:
                    written.to = reached
            return fitting == len(late)
        return False

    def _write_all(self, producers: Sequence[Producer], unplaced: Sequence[bytes]) -> bool:
        """Rewrite the file with all waiting batches. Old numbers must not stay in it, also if the write fails."""
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
                raise FolderStuck(f"{self._journal.folder} cannot be written: {self._journal.problem}")
            if self._stale:
                self._give_up()
            return self._log_full()
        self._head, self._stale, self._unplaced = len(header), False, len(unplaced)
        for written, producer in zip(self._written, producers, strict=True):
            written.acknowledged = producer.acknowledged
            written.to = producer.waiting[-1].last if producer.waiting else producer.acknowledged
        return True

    def _give_up(self) -> None:
        """Remove a stale file that cannot be rewritten: its batches would be sent under wrong numbers."""
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
        """Return True if most of the file has been acknowledged."""
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
            self._losses.log("spool", f"nothing is kept on disk: {error}")
            return False
        except OSError as error:
            self._losses.log("spool", f"nothing is kept on disk: EVENTBUS_SPOOL={self._root}: {error}")
            return False
        self._journal = Journal(claim, limit_bytes=self._limit_bytes)
        header = encode_file(self._header())
        if not self._journal.replace(header):
            self._log_full()
            self._give_up()
            return False
        self._head = len(header)
        return True

    def _log_full(self) -> bool:
        problem = self._journal.problem if self._journal else "it was written again"
        self._losses.log("spool", f"the spool takes no more events; further ones are in memory only: {problem}")
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
