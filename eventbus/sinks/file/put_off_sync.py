"""Syncs an appended file now and then, also if nothing more is ever appended."""

from __future__ import annotations

import os
import threading

from eventbus.log import log


class PutOffSync:
    """Syncs what was appended at most *every_s* later, from a thread of its own that lives only so long."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._file: int | None = None  # set if and only if something is not synced, and a timer runs
        self._timer: threading.Timer | None = None
        self._error: OSError | None = None

    def appended(self, file: int) -> None:
        """Note that *file*, open, has more in it. Raises: OSError: what was appended before could not be synced."""
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
        """Sync what was put off; returns when its thread has ended. Raises: OSError: it cannot be."""
        with self._lock:
            timer = self._timer
            self._sync()
        if timer is not None:
            timer.join()
        with self._lock:
            self._tell()

    def _due(self) -> None:
        with self._lock:
            if threading.current_thread() is self._timer:  # else it has been synced while this one waited
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
            # The kernel says so once and tries no more; whoever appends next is told, and waits for the disk.
            log.error("fsync failed, the last lines of a file may be lost: %s", error.strerror)
            self._error = error
        finally:
            os.close(file)

    def _tell(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
