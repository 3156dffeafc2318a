"""Watches over WebSocket, with a client of another make: the bytes of RFC 6455 by hand."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker


class Client:
    """A WebSocket that reads text frames."""

    def __init__(self, url: str, path: str, *headers: str) -> None:
        where = urlsplit(url)
        self._socket = socket.create_connection((where.hostname, where.port), timeout=30)
        self._file = self._socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        head = [f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
        head += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *headers, "", ""]
        self._socket.sendall("\r\n".join(head).encode())
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value

    def read(self) -> tuple[int, Any]:
        """The kind of the next frame, and its JSON, if it is text."""
        first, second = self._file.read(2)
        length = second & 0x7F
        if length >= 126:
            (length,) = struct.unpack("!H" if length == 126 else "!Q", self._file.read(2 if length == 126 else 8))
        data = self._file.read(length)
        return first & 0x0F, json.loads(data) if first & 0x0F == 1 else data

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def post(worker: ApiWorker, name: str) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
    assert worker.call("POST", EVENTS, {"metadata": {"name": name}, "involvedObject": about}).status == 201


def test_a_watch_is_a_text_frame_for_each_event_and_ends_with_a_close(users_worker: ApiWorker) -> None:
    users_worker.call("DELETE", EVENTS)
    token = base64.urlsafe_b64encode(b"admin-token").decode().rstrip("=")
    offered = f"base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io"
    client = Client(users_worker.url, f"{EVENTS}?watch=1&timeoutSeconds=2", f"Sec-WebSocket-Protocol: {offered}")
    try:
        assert (client.status, client.headers["sec-websocket-protocol"]) == (101, "base64.binary.k8s.io")
        for name in ("a", "b"):
            post(users_worker, name)
            kind, frame = client.read()
            assert (kind, frame["type"], frame["object"]["metadata"]["name"]) == (1, "ADDED", name)
        assert client.read()[0] == 8
    finally:
        client.close()


def test_a_socket_needs_a_user_and_no_foreign_page(users_worker: ApiWorker) -> None:
    for headers, code in ((("X: y",), 401), (("Authorization: Bearer reader-token", "Origin: http://evil"), 403)):
        client = Client(users_worker.url, f"{EVENTS}?watch=1", *headers)
        assert client.status == code
        client.close()
