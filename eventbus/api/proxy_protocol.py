"""Accepts connections of balancers that forward TCP, with the PROXY protocol, versions 1 and 2.

A trusted proxy begins each connection with a header that has the address of its client; without one the connection is
closed. Connections of other senders have no header. The sender's address decides if a header is read, not the first
bytes, so no client can choose its address.

Source: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from typing import Final

from eventbus.util.log import log
from eventbus.util.text import printable

#: Timeout in seconds for the header.
HEADER_S: Final = 5.0
#: Seconds until the next connection is accepted after an error, such as too many open files.
ACCEPT_AGAIN_S: Final = 1.0
#: Maximum bytes of a header: of version 1 by its specification, of version 2 with the fields after the addresses.
MOST_V1: Final = 107
MOST_V2: Final = 4096

_V1: Final = re.compile(rb"PROXY (TCP4|TCP6) ([0-9A-Fa-f:.]+) [0-9A-Fa-f:.]+ [0-9]{1,5} [0-9]{1,5}\r\n")
_V1_UNKNOWN: Final = b"PROXY UNKNOWN"
_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V2_LOCAL, _V2_PROXY = 0x20, 0x21
#: Family and transport of version 2 → the bytes of an address.
_V2_ADDRESSES: Final = {0x11: 4, 0x21: 16}


async def accept_connections(
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None,
    sends_header: Callable[[str], bool],
    connect: Callable[[str], asyncio.Protocol],
    refused: Callable[[str], object],
) -> None:
    """Accept connections of *listening*, which is closed when this is cancelled.

    Args: sends_header: says if a sender's address is one of a trusted proxy.
          connect: makes the protocol of a connection; it gets the address of the client, "" is the sender itself.
          refused: called with the reason for which a connection of a proxy was closed: `invalid` or `timeout`.
    """
    loop = asyncio.get_running_loop()
    beginning: set[asyncio.Task[None]] = set()

    async def begin(connection: socket.socket, sender: str) -> None:
        try:
            client = ""
            if sends_header(sender):
                async with asyncio.timeout(HEADER_S):
                    client = await read_header(connection)
            await loop.connect_accepted_socket(lambda: connect(client), connection, ssl=tls)
        except EOFError:  # a health check
            connection.close()
        except (TimeoutError, ValueError) as error:
            connection.close()
            refused("timeout" if isinstance(error, TimeoutError) else "invalid")
            log.debug("a connection of the proxy %s was closed: %s", sender, error or "no header")
        except OSError as error:  # also of TLS
            connection.close()
            log.debug("a connection of %s failed: %s", sender, error)
        except BaseException:
            connection.close()
            raise

    try:
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("cannot accept connections: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            task = loop.create_task(begin(connection, address[0]))
            beginning.add(task)
            task.add_done_callback(beginning.discard)
    finally:
        for task in beginning:
            task.cancel()
        listening.close()


async def read_header(connection: socket.socket) -> str:
    """Read a header and no byte more; return the client's address, or "" if the proxy speaks for itself.

    Raises: ValueError: it is none.  EOFError: the connection ended before its first byte.
    """
    if not (head := await asyncio.get_running_loop().sock_recv(connection, 1)):
        raise EOFError
    head += await _read(connection, len(_V2) - 1)  # every header is longer
    if head == _V2:
        return await _rest_of_v2(connection)
    if not head.startswith(b"PROXY "):
        raise ValueError(f"no PROXY header but {printable(head.decode('latin-1'))!r}")
    while not head.endswith(b"\r\n"):
        if len(head) >= MOST_V1:
            raise ValueError("a PROXY header without an end")
        head += await _read(connection, 1)
    if head.startswith(_V1_UNKNOWN):
        return ""
    if (found := _V1.fullmatch(head)) is None:
        raise ValueError("an invalid PROXY header")
    family = ipaddress.IPv4Address if found[1] == b"TCP4" else ipaddress.IPv6Address
    try:
        return str(family(found[2].decode()))
    except ValueError:
        raise ValueError("an invalid PROXY header") from None


async def _rest_of_v2(connection: socket.socket) -> str:
    command, family, high, low = await _read(connection, 4)
    size = high << 8 | low
    if command not in (_V2_LOCAL, _V2_PROXY) or size > MOST_V2:
        raise ValueError("an invalid PROXY header")
    body = await _read(connection, size)
    if command == _V2_LOCAL or (length := _V2_ADDRESSES.get(family)) is None:
        return ""
    if size < 2 * length + 4:
        raise ValueError("a PROXY header without addresses")
    return str(ipaddress.ip_address(body[:length]))


async def _read(connection: socket.socket, size: int) -> bytes:
    """Read *size* bytes. Raises: ValueError: there are fewer."""
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        if not (part := await loop.sock_recv(connection, size - len(data))):
            raise ValueError("an incomplete PROXY header")
        data += part
    return data
