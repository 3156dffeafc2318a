"""A syslog server that takes nothing but RFC 5424 with octet counting, and notes every mistake."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
from collections import Counter
from typing import NamedTuple

#: The grammar of RFC 5424, section 6, with the severity and facility in *priority*.
MESSAGE = re.compile(
    rb"<(?P<priority>\d|[1-9]\d|1[0-8]\d|19[01])>1"
    rb" (?P<time>-|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d))"
    rb" (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) (?P<process>[!-~]{1,128}) (?P<id>[!-~]{1,32})"
    rb" (?P<data>-|\[(?P<name>[^= \]\"\x00-\x20\x7f-\xff]{1,32})"
    rb"(?P<values>( [^= \]\"\x00-\x20\x7f-\xff]{1,32}=\"([^\"\\\]]|\\[\"\\\]])*\")*)\])"
    rb"( (?P<text>.*))?",
    re.DOTALL,
)
_VALUE = re.compile(rb' ([^=]+)="((?:[^"\\\]]|\\["\\\]])*)"')
MOST_BYTES = 16 * 1024


class Record(NamedTuple):
    """A message; *values* are those of the structured data, without the escapes."""

    priority: int
    host: str
    app: str
    id: str
    time: str
    data_name: str
    values: dict[str, str]
    text: str


class SyslogServer:
    """Listens on 127.0.0.1. Of the connections, one in *reset_every* is reset after its messages have been stored.

    Args: closes: False: it keeps the connections open.  close_notify: False: it ends TLS without one.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        reset_every: int = 0,
        closes: bool = True,
        close_notify: bool = True,
    ) -> None:
        self.records: list[Record] = []
        self.mistakes: list[str] = []
        self.connections = 0
        self._tls = tls
        self._reset_every = reset_every
        self._closes = closes
        self._close_notify = close_notify
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._kept: list[socket.socket] = []
        self._serve()

    def stop(self) -> None:
        """Accept no connections until `start`."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._listener.close()

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def close(self) -> None:
        self.stop()
        for line in self._kept:
            line.close()

    @property
    def counts(self) -> dict[str, int]:
        """Return the last count of each event by its name."""
        return {record.values["eventName"]: int(record.values["count"]) for record in self.records.copy()}

    @property
    def repeats(self) -> Counter[str]:
        """Return how often each delivery id was stored."""
        return Counter(record.values["deliveryId"] for record in self.records.copy())

    def _serve(self) -> None:
        self._thread = threading.Thread(target=self._accept, name="syslog-server", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            line.settimeout(30)
            try:
                self._receive(line if self._tls is None else self._tls.wrap_socket(line, server_side=True))
            except OSError as error:
                self.mistakes.append(f"{type(error).__name__}: {error}")
                line.close()

    def _receive(self, line: socket.socket) -> None:
        self.connections += 1
        received = bytearray()
        while some := line.recv(1 << 16):
            received += some
        self._store(bytes(received))
        if not self._closes:
            self._kept.append(line)
            return
        if self._reset_every and received and self.connections % self._reset_every == 0:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif isinstance(line, ssl.SSLSocket) and self._close_notify:
            line = line.unwrap()
        line.close()

    def _store(self, received: bytes) -> None:
        place = 0
        while place < len(received):
            length = re.compile(rb"([1-9]\d{0,5}) ").match(received, place)
            if length is None or int(length[1]) > MOST_BYTES:
                self.mistakes.append(f"no frame at {place}: {received[place : place + 40]!r}")
                return
            place = length.end() + int(length[1])
            self._read(received[length.end() : place])

    def _read(self, packed: bytes) -> None:
        found = MESSAGE.fullmatch(packed)
        if found is None:
            self.mistakes.append(f"no message: {packed[:200]!r}")
            return
        text = found["text"] or b""
        if not text.isascii() and not text.startswith(b"\xef\xbb\xbf"):
            self.mistakes.append(f"UTF-8 without a byte order mark: {packed[:200]!r}")
        values = {
            name.decode(): re.sub(r'\\(["\\\]])', r"\1", value.decode())
            for name, value in _VALUE.findall(found["values"] or b"")
        }
        record = Record(
            int(found["priority"]),
            found["host"].decode(),
            found["app"].decode(),
            found["id"].decode(),
            found["time"].decode(),
            (found["name"] or b"").decode(),
            values,
            text.decode("utf-8-sig"),
        )
        self.records.append(record)
