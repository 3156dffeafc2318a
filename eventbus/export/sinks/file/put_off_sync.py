"""Delayed fsync of an appended file, also if no later write follows."""

from __future__ import annotations

import os
import threading

from eventbus.util.log import log


class PutOffSync:
    """Syncs appended data within *every_s* seconds, on a timer thread that ends after the sync."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._file: int | None = None  # set if and only if data is not synced yet and a timer runs
        self._timer: threading.Timer | None = None
        self._error: OSError | None = None

    def appended(self, file: int) -> None:
        """Schedule a sync of *file*, which is open. Raises: OSError: the sync of earlier data failed."""
        with self._lock:
            self._tell()
            if self._file is not None and not os.path.samestat(os.fstat(self._file), os.fstat(file)):
                self._sync()  # it was rotated away
                self._tell()
            if self._file is None:
                self._file = os.dup(file)
                self._timer = threading.Timer(self._every_s, self._due)
                self._timer.name, self._timer.daemon = "eventbus-fsync", True
                self._timer.start()

    def finish(self) -> None:
        """Sync unsynced data, and wait until the timer thread has ended. Raises: OSError: the sync failed."""
        with self._lock:
            timer = self._timer
            self._sync()
        if timer is not None:
            timer.join()
        with self._lock:
            self._tell()

    def _due(self) -> None:
        with self._lock:
            if threading.current_thread() is self._timer:  # else the data was synced while this thread waited
                self._sync()

    def _sync(self) -> None:
        file, timer = self._file, self._timer
        if file is None or timer is None:
            return
        self._file = None
        timer.cancel()
        try:
            os.fsync(file)
        except OSError as error:
            # The kernel reports a failed fsync once and does not retry. The next append raises it, so the loop waits.
            log.error("fsync failed, the last lines of a file may be lost: %s", error.strerror)
            self._error = error
        finally:
            os.close(file)

    def _tell(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
