"""Reloads a settings file when it changes, without blocking the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

from eventbus.errors import ConfigError
from eventbus.util.log import log

T = TypeVar("T")

#: Seconds between two checks of the file, and so the longest delay before a change is noticed.
LOOK_EVERY_S: Final = 1.0
#: Seconds that a request waits for a check. If the disk hangs, further requests do not wait.
LOOK_S: Final = 1.0


class RereadFile(Generic[T]):
    """The *value* of a file. `refresh` checks for changes. Only the check itself runs outside the loop.

    If the file becomes invalid, the error is reported once and the previous value stays. Each check then reads the
    file again until it is valid, because the cause may be a folder, and its repair does not change the file.

    Args:   read: runs in the caller's thread first, later in other threads.
    Raises: ConfigError: the first *read* failed.
    """

    def __init__(self, flag: str, path: Path, read: Callable[[Path], T]) -> None:
        self.flag = flag
        self.problem = ""  #: why the previous value stays; "": the file is valid
        self._path = path
        self._read = read
        self._stamp = self._look()
        self.value = read(path)
        self._looking: asyncio.Future[None] | None = None
        self._late = False
        self._reported: tuple[object, str] | None = None
        self._due = time.monotonic()

    async def refresh(self) -> None:
        """Wait for a check of the file. Skip it within a second of the last check; wait for a second at most."""
        loop = asyncio.get_running_loop()
        looking = self._looking
        if looking is None or looking.get_loop() is not loop:  # or the check belongs to a loop that has ended
            if time.monotonic() < self._due:
                return
            looking = self._looking = loop.create_future()
            self._late = False
            threading.Thread(target=self._look_again, args=(looking,), name="eventbus-api-file", daemon=True).start()
        if self._late:
            return
        try:
            async with asyncio.timeout(LOOK_S):
                await asyncio.shield(looking)
        except TimeoutError:
            if not self._late:
                self._late = True
                log.warning("%s %s cannot be read in time; the content read before is used", self.flag, self._path)

    def _look_again(self, looking: asyncio.Future[None]) -> None:
        result: T | ConfigError | None = None
        stamp = self._look()
        if stamp != self._stamp:
            try:
                result = self._read(self._path)
            except ConfigError as error:
                result = error
            except Exception as error:  # waiting requests need a result
                result = ConfigError(f"{self.flag} {self._path} cannot be read: {error!r}")
        with suppress(RuntimeError):  # the loop is closed: no request waits
            looking.get_loop().call_soon_threadsafe(self._finish, looking, stamp, result)

    def _finish(self, looking: asyncio.Future[None], stamp: object, result: T | ConfigError | None) -> None:
        if self._looking is not looking:
            return
        self._looking, self._due = None, time.monotonic() + LOOK_EVERY_S
        self.problem = str(result) if isinstance(result, ConfigError) else ""
        if isinstance(result, ConfigError):
            if (stamp, str(result)) != self._reported:
                log.error("%s; the content read before is used", result)
            self._reported = stamp, str(result)
        else:
            self._stamp, self._reported = stamp, None
            if result is not None:
                self.value = result
                log.info("%s %s was read again", self.flag, self._path)
        looking.set_result(None)

    def _look(self) -> object:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
