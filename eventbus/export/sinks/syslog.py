"""Sends events to a syslog server over TCP or TLS, as RFC 5424 with the framing of RFC 6587 (octet counting).

syslog://host:601, syslog+tls://host:6514
    ?facility=local0      also kern, user, daemon, auth, … local7
    &sd-id=eventbus@32473 the name of the structured data, with your own enterprise number

EVENTBUS_SYSLOG_CA_FILE          trusted CAs instead of the system's
EVENTBUS_SYSLOG_CERT_FILE, EVENTBUS_SYSLOG_KEY_FILE  the client's certificate

Syslog has no acknowledgement. A server that has read everything closes its side after we have closed ours, and one that
dies resets the connection. So each batch has a connection of its own, and counts as written when the server has closed
it. Otherwise the whole batch is sent again.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from eventbus.errors import ConfigError, EventUnbuildable, SinkUnreachable
from eventbus.export.sinks.common import AppendsBatches, check_host, error_text, query_of, tls_context
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.registry import SinkOptions
from eventbus.util.text import cut_bytes, printable

PORT, TLS_PORT = 601, 6514
#: 32473 is the number of examples (RFC 5612). A name with a number is unique only with a number of one's own.
DEFAULT_SD_ID: Final = "eventbus@32473"
#: Bytes of a value of the structured data before it is escaped, and of the message.
MOST_VALUE_BYTES: Final = 256
MOST_MESSAGE_BYTES: Final = 4096
#: Bytes that a server may send; it has nothing to say.
MOST_REPLY_BYTES: Final = 64 * 1024

_FACILITIES: Final = """kern user mail daemon auth syslog lpr news uucp cron authpriv ftp ntp audit alert clock
    local0 local1 local2 local3 local4 local5 local6 local7"""
FACILITIES: Final = {name: number for number, name in enumerate(_FACILITIES.split())}
#: Severity of the event's type; other types are notices.
SEVERITIES: Final = {"Normal": 6, "Warning": 4}
NOTICE: Final = 5

_SD_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,20}@[1-9][0-9.]{0,10}\Z")
_NOT_IN_HEADER: Final = re.compile(r"[^!-~]")
_BOM: Final = "\N{BYTE ORDER MARK}"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "]": r"\]"})


def make_syslog_sink(url: str, options: SinkOptions) -> SyslogSink:
    """Make the sink of `syslog://host` or `syslog+tls://host`. Raises: ConfigError."""
    parts = urlsplit(url)
    query = query_of(url, "facility", "sd-id")
    facility, sd_id = query.get("facility", "local0"), query.get("sd-id", DEFAULT_SD_ID)
    if facility not in FACILITIES:
        raise ConfigError(f"facility={facility!a} in the sink's URL: give one of {', '.join(FACILITIES)}")
    if not _SD_ID.match(sd_id):
        raise ConfigError(f"sd-id={sd_id!a} in the sink's URL: give a name and your enterprise number: name@12345")
    with_tls = parts.scheme == "syslog+tls"
    try:
        host, port = parts.hostname, parts.port or (TLS_PORT if with_tls else PORT)
    except ValueError:
        host = None
    if not host or parts.path.strip("/") or parts.username is not None:
        raise ConfigError(f"the sink's URL must be {parts.scheme}://host:port, without a path or user")
    tls = tls_context(options.environ, "EVENTBUS_SYSLOG", parts.scheme)
    return SyslogSink(
        options.name, host, port, partial(frame, facility=FACILITIES[facility], sd_id=sd_id), tls, options.timeout_s
    )


def frame(write: SinkWrite, facility: int, sd_id: str) -> bytes:
    """Return the length and the syslog message of *write*, as a frame of RFC 5424. Raises: EventUnbuildable."""
    event = write.event
    seen = event.last_seen
    about = event.involved_object
    values = {
        "deliveryId": write.delivery_id,
        "uid": event.metadata.uid,
        "namespace": about.namespace,
        "kind": about.kind,
        "name": about.name,
        "type": event.type,
        "reason": event.reason,
        "count": str(event.times_seen),
        "eventName": event.metadata.name,
    }
    priority = facility * 8 + SEVERITIES.get(event.type, NOTICE)
    host, component = event.source.host, event.source.component or event.reporting_component
    header = f"<{priority}>1 {_time(seen)} {_word(host, 255)} {_word(component, 48)} - {_word(event.reason, 32)}"
    data = "".join([f' {name}="{_value(value)}"' for name, value in values.items() if value])
    text = cut_bytes(printable(event.message), MOST_MESSAGE_BYTES)
    packed = f"{header} [{sd_id}{data}] {text if text.isascii() else _BOM + text}".encode()
    return b"%d %s" % (len(packed), packed)


def _time(seen: datetime | None) -> str:
    if seen is None:
        return "-"
    try:
        return seen.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except OverflowError as error:
        raise EventUnbuildable(f"its time cannot be written in UTC: {error}") from error


def _word(text: str, most: int) -> str:
    """Return *text* for the header: printable ASCII without spaces, or `-`."""
    return _NOT_IN_HEADER.sub("?", text[:most]) or "-"


def _value(text: str) -> str:
    if text.isalnum() and text.isascii() and len(text) <= MOST_VALUE_BYTES:
        return text
    return cut_bytes(printable(text), MOST_VALUE_BYTES).translate(_ESCAPES)


class SyslogSink(AppendsBatches):
    """Sends each batch on a connection of its own, and waits until the server has closed it."""

    mode = SinkMode.APPEND

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        frame_of: Callable[[SinkWrite], bytes],
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        self.name = name
        self._host = host
        self._port = port
        self._frame_of = frame_of
        self._tls = tls
        self._timeout_s = timeout_s

    def check(self) -> None:
        """Look up the host. Raises: ConfigError: it does not exist."""
        check_host(self._host)

    def open(self) -> None:
        """Check that the server closes a connection that we close: with another, each batch would be repeated forever.

        Raises: SinkUnreachable.
        """
        self._send(b"")

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Send them in order. Raises: SinkUnreachable: some, or all, may have arrived; all are sent again."""
        frames, answers = [], list[SinkAnswer]()
        for write in writes:
            try:
                frames.append(self._frame_of(write))
                answers.append(write.event)
            except EventUnbuildable as error:
                answers.append(error)
        if frames:
            self._send(b"".join(frames))
        return answers

    def close(self) -> None:
        """There is no connection between two calls."""

    def _send(self, data: bytes) -> None:
        try:
            with closing(self._connect()) as line:
                line.sendall(data)
                _finish(line)
        except (OSError, UnicodeError) as error:
            raise SinkUnreachable(f"{self._host}:{self._port}: {error_text(error)}") from error

    def _connect(self) -> socket.socket:
        line = socket.create_connection((self._host, self._port), timeout=self._timeout_s)
        if self._tls is None:
            return line
        try:
            return self._tls.wrap_socket(line, server_hostname=self._host)
        except BaseException:
            line.close()
            raise


def _finish(line: socket.socket) -> None:
    """Close our side, and wait until the server has closed its side. Raises: OSError: it has not, or has reset."""
    received = 0
    try:
        if isinstance(line, ssl.SSLSocket):
            line.unwrap()  # send close_notify, and wait for the server's
            return
        line.shutdown(socket.SHUT_WR)
        while some := line.recv(4096):
            received += len(some)
            if received > MOST_REPLY_BYTES:
                raise OSError("the server sends data: it is no syslog server")
    except ssl.SSLEOFError:
        pass  # several servers end the connection without close_notify
    except TimeoutError:
        raise OSError("the server does not close the connection, so it may not have read the events") from None
