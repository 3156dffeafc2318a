"""The session of a command: what it opens, and closes at its end."""

from __future__ import annotations

from typing import Any

from eventbus.cli.session import Session
from eventbus.settings import Settings


class Remote:
    """The store of an API worker."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_it_closes_the_connections_to_an_api_worker_though_it_has_read_no_object() -> None:
    remote: Any = Remote()
    Session(settings=Settings(), remote=remote).close()
    assert remote.closed
