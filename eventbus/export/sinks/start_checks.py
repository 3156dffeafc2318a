"""Finds permanent errors in a sink's URL before the export starts, such as an unknown host."""

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
    """A sink that can distinguish a wrong URL from a system that is unreachable for now."""

    def check(self) -> None:
        """Check once whether the URL can be right. An outage is no error: the export waits for the system later.

        Blocks for at most one connect timeout. Raises: ConfigError: correct the URL, or create the target it names.
        """
        ...


def check_host(*hosts: str) -> None:
    """Look up *hosts*; one known host is enough. Blocks as the system's resolver does.

    Raises: ConfigError: none of the names exists."""
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
