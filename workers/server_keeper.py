"""Keeps the embedded server running while `eventbus up` runs."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.broker.embedded.refcount import KeeperLock, holders
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.errors import EventBusError

_KEY = "server"


class ServerKeeper:
    """Starts the server, restarts it when it has exited, and stops it unless it was already running.

    The first restart is immediate, because any other command would do the same. Later restarts back off.

    Args: tell: prints a line.  note: records (type, reason, message).
    """

    def __init__(
        self,
        server: EmbeddedServer,
        *,
        backoff: RestartBackoff,
        tell: Callable[[str], object],
        note: Callable[[str, str, str], object],
    ) -> None:
        self._server = server
        self._backoff = backoff
        self._tell = tell
        self._note = note
        self._ours = not server.running()
        self._gone_s = 0.0  # time of the exit, seconds since 1970; 0.0: it runs
        self._told_of_others = False
        self._lock = KeeperLock(server.directory)

    def start(self) -> str:
        """Find or start the server; return its url. Raises: ConfigError, BusUnavailable: see `EmbeddedServer.start`."""
        url = self._server.start()
        if not self._told_of_others:
            if processes := holders(self._server.directory):
                self._tell(f"another eventbus up (process {', '.join(processes)}) runs here; these workers join it")
            self._told_of_others = True
        self._lock.take()  # from now on `eventbus down` would have no effect
        return url

    def look(self) -> None:
        """Restart the server if it has exited and its back-off is over."""
        if self._running():
            return
        self._gone_s = self._gone_s or self._backoff.now_s()
        if self._backoff.left_s(_KEY, self._gone_s):
            return
        self._backoff.next(_KEY, self._gone_s)
        self._gone_s = 0.0
        self._tell("the embedded server is gone; starting it again")
        self._note("Warning", "Failed", "the embedded server was gone")
        try:
            self.start()
        except EventBusError as error:
            self._tell(f"the embedded server does not start: {error}")
        else:
            self._ours = True
            self._note("Normal", "Started", "Started the embedded server again")

    def _running(self) -> bool:
        try:
            return self._server.running()
        except EventBusError:
            return True  # without the right to check, a restart would fail too

    def stop(self) -> None:
        """Stop the server, unless another process had started it."""
        if self._ours:
            self._server.stop()
        self._lock.release()
