"""Sends one request to a container, for hooks and probes: a command in it, a GET, a connection."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from eventbus.agent.runtime.contract import CommandNotFound, ExecResult, PodUid, RuntimeProblem
from eventbus.model.objects.container import Container, HTTPGetAction, LifecycleHandler, Port, Probe, TCPSocketAction
from eventbus.util.text import printable

#: The most characters of an answer, as in the kubelet.
MOST_TEXT: Final = 1024
_HERE: Final = "127.0.0.1"


class Answer(NamedTuple):
    """The result of a handler. *text* is for people."""

    ok: bool
    text: str


#: Runs a command in a container of a pod, within a time: `ProcessRuntime.exec_in`.
ExecIn = Callable[[PodUid, str, Sequence[str], float], ExecResult]


def ask(
    exec_in: ExecIn, uid: PodUid, container: Container, handler: Probe | LifecycleHandler, timeout_s: float
) -> Answer:
    """Do the action of *handler*; blocks for at most *timeout_s*, and while a host's name is resolved.

    Errors of the runtime are returned as failures.
    """
    try:
        if handler.exec is not None:
            return _exec(exec_in, uid, container, handler.exec.command, timeout_s)
        if handler.http_get is not None:
            return _http_get(container, handler.http_get, timeout_s)
        if handler.tcp_socket is not None:
            return _connect(container, handler.tcp_socket, timeout_s)
        if isinstance(handler, LifecycleHandler) and handler.sleep is not None:
            time.sleep(min(timeout_s, handler.sleep.seconds))
            return Answer(True, "")
    except CommandNotFound as problem:
        return Answer(False, str(problem))
    except (RuntimeProblem, OSError, http.client.HTTPException, ValueError) as problem:
        return Answer(False, _shortened(str(problem) or type(problem).__name__))
    return Answer(False, "there is nothing to do: give exec, httpGet or tcpSocket")


def _port_of(container: Container, port: Port) -> int:
    """The number of *port*, which may be the name of one of the container's. Raises: ValueError."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for named_port in container.ports:
        if named_port.name == port:
            return named_port.container_port
    raise ValueError(f"couldn't find port {port!r} in container {container.name}")


def _exec(exec_in: ExecIn, uid: PodUid, container: Container, command: Sequence[str], timeout_s: float) -> Answer:
    result = exec_in(uid, container.name, command, timeout_s)
    if result.timed_out:
        return Answer(False, f"command timed out: {' '.join(command)!r} timed out after {timeout_s:g}s")
    return Answer(result.exit_code == 0, _shortened(result.output.decode("utf-8", "replace")))


def _http_get(container: Container, action: HTTPGetAction, timeout_s: float) -> Answer:
    deadline = _Deadline(timeout_s)
    host, port = action.host or _HERE, _port_of(container, action.port)
    # As in the kubelet, the answer counts and not the certificate.
    context = ssl._create_unverified_context() if action.scheme.upper() == "HTTPS" else None
    connection: http.client.HTTPConnection
    if context is not None:
        connection = http.client.HTTPSConnection(host, port, context=context)
    else:
        connection = http.client.HTTPConnection(host, port)
    connection.response_class = deadline.response_class()
    try:
        connection.sock = deadline.connect(host, port)
        if context is not None:
            connection.sock = context.wrap_socket(connection.sock, server_hostname=host)
        connection.sock.settimeout(deadline.left_s())
        path = action.path if action.path.startswith("/") else f"/{action.path}"
        headers = {"User-Agent": "kube-probe/eventbus", "Accept": "*/*"}
        connection.request("GET", path, headers=headers | {header.name: header.value for header in action.http_headers})
        response = connection.getresponse()
        response.read(MOST_TEXT * 10)
        good = 200 <= response.status < 400
        return Answer(good, f"HTTP probe {'succeeded' if good else 'failed'} with statuscode: {response.status}")
    except OSError as error:
        scheme = action.scheme.lower() or "http"
        why = "timed out" if isinstance(error, TimeoutError) else error.strerror or error
        return Answer(False, _shortened(f'Get "{scheme}://{host}:{port}{action.path}": {why}'))
    finally:
        connection.close()


def _connect(container: Container, action: TCPSocketAction, timeout_s: float) -> Answer:
    host, port = action.host or _HERE, _port_of(container, action.port)
    try:
        _Deadline(timeout_s).connect(host, port).close()
    except OSError as error:
        return Answer(False, f"dial tcp {host}:{port}: {error.strerror or error}")
    return Answer(True, "")


class _Deadline:
    """The deadline of one request. A socket's own timeout would begin again with each byte of the answer."""

    def __init__(self, timeout_s: float) -> None:
        self._ends_at = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the seconds that are left, above 0. Raises: TimeoutError: none are left."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first address of *host* that answers. Raises: OSError: the last one's error."""
        problem = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                left_s = self.left_s()
                connection = socket.socket(family, kind, protocol)  # fails for IPv6 where the kernel has none
            except OSError as error:
                problem = error
                continue
            try:
                connection.settimeout(left_s)
                connection.connect(address)
                connection.settimeout(self.left_s())
            except OSError as error:
                connection.close()
                problem = error
            else:
                return connection
        raise problem

    def response_class(self) -> type[http.client.HTTPResponse]:
        """Return a response that is read within the deadline."""
        deadline = self

        class Response(http.client.HTTPResponse):
            def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
                super().__init__(sock, *args, **named)
                self.fp.close()
                self.fp = io.BufferedReader(_Reader(sock, deadline))

        return Response


class _Reader(io.RawIOBase):
    """Reads a socket until *deadline*."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline
        self._raw = sock.makefile("rb", buffering=0)  # outlives the connection, which closes its socket early

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int | None:
        self._sock.settimeout(self._deadline.left_s())
        return self._raw.readinto(into)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _shortened(text: str) -> str:
    return printable(text.strip())[:MOST_TEXT]
