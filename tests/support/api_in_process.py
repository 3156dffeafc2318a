"""An API worker in this process: the whole server, on a port of loopback or a unix socket."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eventbus.api.auth.access import Access, Grant
from eventbus.api.auth.authentication import Authenticator, TokenFile
from eventbus.api.limits import EventRate
from eventbus.api.listeners import Address, Listener
from eventbus.api.server import ApiOptions, ApiServer
from eventbus.broker.bus import Bus


@contextmanager
def serving(
    bus: Bus,
    *,
    tokens: Path | None = None,
    grants: Sequence[str] = (),
    socket: Path | None = None,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    event_rate: EventRate | None = None,
    audit: bool = False,
) -> Iterator[str]:
    """Its url.

    Without *tokens* whoever asks from this machine as this user is admin.
    """
    address = Address(path=str(socket)) if socket else Address("127.0.0.1", port)
    listener = Listener(address, tls=tls, reuse_port=False)
    options = ApiOptions(
        access=Access(map(Grant.parse, grants)),
        authenticator=Authenticator(tokens=TokenFile(tokens) if tokens else None),
        event_rate=event_rate or EventRate(),
        audit=audit,
    )
    server = ApiServer(bus=bus, options=options, listeners=[listener])
    try:
        server.start()
        yield f"http+unix:{socket}" if socket else listener.url
    finally:
        server.stop(30)
        listener.close()
