"""The header of the PROXY protocol: what is read of it, and what is refused."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct

import pytest

from eventbus.api.proxy_protocol import MOST_V1, MOST_V2, read_header

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


def ends(client: str, ours: str = "10.0.0.9") -> bytes:
    return b"".join(ipaddress.ip_address(address).packed for address in (client, ours)) + struct.pack("!HH", 50000, 443)


def read(sent: bytes) -> tuple[str, bytes]:
    """Return the client, and the bytes after the header. The proxy closes after *sent*."""

    async def run() -> str:
        theirs.setblocking(False)
        return await read_header(theirs)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent)
        ours.shutdown(socket.SHUT_WR)
        return asyncio.run(run()), theirs.recv(100)


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.9 50000 443\r\n", "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::1 ::1 50000 443\r\n", "2001:db8::1"),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY UNKNOWN 2001:db8::1 ::1 50000 443\r\n", ""),
        (v2(0x21, 0x11, ends("203.0.113.7")), "203.0.113.7"),
        (v2(0x21, 0x21, ends("2001:db8::1", "::1")), "2001:db8::1"),
        (v2(0x21, 0x11, ends("203.0.113.7") + b"\x20\0\x05tlvtl"), "203.0.113.7"),
        (v2(0x20, 0x00, b""), ""),
        (v2(0x20, 0x11, ends("203.0.113.7")), ""),
        (v2(0x21, 0x31, bytes(216)), ""),
    ],
)
def test_a_header_names_the_client_and_nothing_after_it_is_read(header: bytes, client: str) -> None:
    assert read(header + b"GET / HTTP/1.1\r\n") == (client, b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.9 50000 443",
        b"PROXY TCP4 2001:db8::1 ::1 50000 443\r\n",
        b"PROXY TCP4 999.0.0.1 10.0.0.9 50000 443\r\n",
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY TCP4 " + b"1" * MOST_V1 + b"\r\n",
        v2(0x21, 0x11, ends("203.0.113.7"))[:20],
        v2(0x21, 0x11, b"\x01\x02"),
        v2(0x22, 0x11, ends("203.0.113.7")),
        v2(0x21, 0x11, bytes(MOST_V2 + 1)),
    ],
)
def test_anything_else_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match="PROXY header"):
        read(sent)


def test_a_connection_that_ends_at_once_is_a_health_check() -> None:
    with pytest.raises(EOFError):
        read(b"")
