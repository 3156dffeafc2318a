"""Keeps an embedded server running as long as `eventbus up` does."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.broker.embedded.keeper_lock import KeeperLock, holders
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.errors import EventBusError

_KEY = "server"


class ServerKeeper:
    """Starts the server, starts it again when it is gone, and stops it if it was not there before.

    The first time it is started again at once, for any other command would do the same; then after the pauses.

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
        self._gone_s = 0.0  # since when, seconds since 1970; 0.0: it runs
        self._told_of_others = False
        self._lock = KeeperLock(server.directory)

    def start(self) -> str:
        """Find or start it; its url. Raises: ConfigError, BusUnavailable: see `EmbeddedServer.start`."""
        url = self._server.start()
        if not self._told_of_others:
            if processes := holders(self._server.directory):
                self._tell(f"another eventbus up (process {', '.join(processes)}) runs here; these workers join it")
            self._told_of_others = True
        self._lock.take()  # `eventbus down` would be of no use from now on
        return url

    def look(self) -> None:
        """Start it again if it is gone and its pause is over."""
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
            return True  # who may not look cannot start it either

    def stop(self) -> None:
        """Stop it, unless somebody else had started it."""
        if self._ours:
            self._server.stop()
        self._lock.release()
