"""Reports the state of this process to systemd, for units with Type=notify and WatchdogSec (see `man sd_notify`)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, MutableMapping

from eventbus.util.log import log


class Systemd:
    """Sends messages to the socket in NOTIFY_SOCKET; does nothing if it is not set. Used by the main thread.

    Takes the variables out of *environ*, so that programs that this process starts do not report in its name.
    """

    def __init__(
        self, environ: MutableMapping[str, str] = os.environ, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_ours = not pid or pid == str(os.getpid())
        self._interval_s = int(interval) / 1e6 if interval.isdecimal() and is_ours else 0.0
        self._monotonic = monotonic
        self._alive_at = -self._interval_s
        self._status = ""

    def ready(self, status: str) -> None:
        """Report that the process has started, with a status that `systemctl status` shows."""
        if status != self._status:
            self._status = status
            self._send(f"READY=1\nSTATUS={' '.join(status.split())}")

    def alive(self) -> None:
        """Report that the process makes progress, at most four times in WatchdogSec. Without a report it is killed."""
        now = self._monotonic()
        if self._interval_s and now - self._alive_at >= self._interval_s / 4:
            self._alive_at = now
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the process is shutting down."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.settimeout(1.0)
                line.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("cannot report to systemd at %s: %s", self._address.replace("\0", "@"), error)
