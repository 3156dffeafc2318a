"""Finds what is wrong with a sink's URL for good, before anything is begun: a host that nobody knows."""

from __future__ import annotations

import socket
from typing import Final, Protocol, runtime_checkable

from eventbus.errors import ConfigError

#: The resolver's word that there is no such name; others say that it could not ask.
_NO_SUCH_NAME: Final = frozenset(
    code for word in ("EAI_NONAME", "EAI_NODATA") if (code := getattr(socket, word, None)) is not None
)


@runtime_checkable
class CheckedSink(Protocol):
    """A sink that can tell a URL that will never do from a system that is away."""

    def check(self) -> None:
        """Look once whether the system can be what the URL means. An outage is no error: it is waited for later.

        Blocks for a connect's timeout at most. Raises: ConfigError: correct the URL, or make what it names.
        """
        ...


def check_host(*hosts: str) -> None:
    """Look *hosts* up: one that is known will do. Blocks as the system's resolver does.

    Raises: ConfigError: there are no such names."""
    for host in hosts:
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror as error:
            if error.errno not in _NO_SUCH_NAME:
                return
        except (OSError, UnicodeError):
            return
        else:
            return
    if hosts:
        cure = "correct the sink's URL, or add the name to the name server or /etc/hosts"
        raise ConfigError(f"the sink's host {' or '.join(hosts)} is unknown: {cure}", cure=cure)


__all__ = ["CheckedSink", "check_host"]
