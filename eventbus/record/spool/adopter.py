"""Sends the events that dead processes of this machine have left in the spool; it looks every 30 s."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eventbus.broker.transport import Transport
from eventbus.clock import Clock
from eventbus.errors import ConfigError, EventBusError
from eventbus.log import log
from eventbus.record.latch import Latch
from eventbus.record.losses import Losses
from eventbus.record.spool.claim import Claim, folders
from eventbus.record.spool.orphan import Orphan, is_for
from eventbus.record.spool.spool import BusName
from eventbus.settings import Settings

#: seconds between two looks
EVERY_S = 30.0


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
        """Start the thread: it looks at once, and then every EVERY_S."""
        self.thread = threading.Thread(target=self._run, name="eventbus-adopter", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Tell the thread to end; events that it is sending stay in their file. Does not wait."""
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
                    self._losses.tell("orphans", f"what others left in the spool waits: {error}")
            except Exception:
                log.exception("the spool goes on after an unexpected error")
            self._stopping.wait(EVERY_S * random.uniform(0.8, 1.2))

    def adopt(self) -> int:
        """Send the orphans' events for this bus. Returns how many.

        Raises: BusUnavailable, BusRefused, ConfigError: the rest waits.  OSError: the spool cannot be read.
        """
        sent = 0
        for folder in folders(self._root):
            if self._stopping.happened:
                break
            try:
                claim = Claim.take(folder)
            except ConfigError as error:
                self._losses.tell("orphans", str(error))
                continue
            if claim is not None:
                sent += self._send(claim)
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
            sent = orphan.send(bus, self._open, lambda: self._stopping.happened)
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
