"""A small API server over HTTP: create, read, replace and patch core/v1 Events.

It gives the answers and errors of the real one (reference: the HTTP surface of Kubernetes), and faults on order.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Object = dict[str, Any]
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
#: What an event of a cluster may have as its kind's other names in an URL.
_RESOURCE = "events"
_SET_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp")


@dataclass
class Fault:
    """The server's treatment of one request in place of an answer.

    *status* 0: it hangs up. *applied*: the request has its effect all the same. *body*: instead of a Status.
    """

    status: int = 0
    reason: str = ""
    message: str = "ordered by the test"
    headers: Mapping[str, str] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    applied: bool = False
    body: bytes | None = None
    content_type: str | None = "application/json"


@dataclass(frozen=True)
class Request:
    """A request that came in."""

    method: str
    path: str
    query: str
    content_type: str
    authorization: str
    body: Any


class ApiError(Exception):
    """Answered as a Status object."""

    def __init__(self, code: int, reason: str, message: str, *, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": {"kind": _RESOURCE, "causes": [{"reason": cause} for cause in causes]},
            "code": code,
        }


class ApiServer:
    """Holds the events of a cluster. `objects` and `requests` may be read, and `faults` filled, from any thread."""

    def __init__(self, *, namespaces: tuple[str, ...] = ("default",), token: str = "") -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.namespaces = set(namespaces)
        self.requests: list[Request] = []
        self.faults: deque[Fault | None] = deque()  #: None: this one is answered
        self.token = token
        self._version = 1000
        self._lock = threading.Lock()

    def came(self, request: Request) -> None:
        """A request is there; it is acted on next."""
        self.requests.append(request)

    def act(self, request: Request) -> tuple[int, Object]:
        """Do what the request asks for. Raises: ApiError."""
        if self.token and request.authorization != f"Bearer {self.token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        namespace, name = self._place(request.path)
        with self._lock:
            match request.method, name:
                case "POST", "":
                    return 201, self._create(namespace, request.body)
                case "GET", _ if name:
                    return 200, self._get(namespace, name)
                case "PUT", _ if name:
                    return 200, self._put(namespace, name, request.body)
                case "PATCH", _ if name:
                    return 200, self._patch(namespace, name, request)
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def change(self, namespace: str, name: str, **fields: Any) -> None:
        """Somebody else's write."""
        with self._lock:
            self._store(namespace, name, self.objects[namespace, name] | fields)

    def _place(self, path: str) -> tuple[str, str]:
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["api", "v1", "namespaces", namespace, "events"]:
                return namespace, ""
            case ["api", "v1", "namespaces", namespace, "events", name]:
                return namespace, name
        raise ApiError(404, "NotFound", "the server could not find the requested resource")

    def _create(self, namespace: str, body: Object) -> Object:
        metadata = body.setdefault("metadata", {})
        if body.get("kind", "Event") != "Event" or body.get("apiVersion", "v1") != "v1":
            raise ApiError(400, "BadRequest", "the object provided is unrecognized")
        if metadata.get("resourceVersion"):
            raise ApiError(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if metadata.setdefault("namespace", namespace) != namespace:
            raise ApiError(
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            )
        if namespace not in self.namespaces:
            raise ApiError(404, "NotFound", f'namespaces "{namespace}" not found')
        name = metadata.get("name", "")
        self._validate(namespace, name, body)
        if (namespace, name) in self.objects:
            raise ApiError(409, "AlreadyExists", f'events "{name}" already exists')
        metadata["uid"] = f"cluster-uid-{len(self.objects)}"
        metadata["creationTimestamp"] = "2024-01-01T12:00:00Z"
        return self._store(namespace, name, body)

    def _validate(self, namespace: str, name: str, body: Object) -> None:
        about = body.get("involvedObject", {}).get("namespace", "")
        if about != namespace and not (about == "" and namespace in ("default", "kube-system")):
            problem = f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
            raise ApiError(422, "Invalid", f'Event "{name}" is invalid: {problem}')
        if not name or name != name.lower() or "_" in name or len(name) > 253:
            raise ApiError(422, "Invalid", f'Event "{name}" is invalid: metadata.name: Invalid value: "{name}"')

    def _get(self, namespace: str, name: str) -> Object:
        try:
            return deepcopy(self.objects[namespace, name])
        except KeyError:
            raise ApiError(404, "NotFound", f'events "{name}" not found') from None

    def _put(self, namespace: str, name: str, body: Object) -> Object:
        self._check_version(name, self._get(namespace, name), body)
        return self._store(namespace, name, body)

    def _patch(self, namespace: str, name: str, request: Request) -> Object:
        if request.content_type != STRATEGIC_MERGE:
            raise ApiError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        found = self._get(namespace, name)
        self._check_version(name, found, request.body)
        return self._store(namespace, name, merge(found, request.body))

    def _check_version(self, name: str, found: Object, body: Object) -> None:
        wanted = body.get("metadata", {}).get("resourceVersion", "")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            text = (
                f'Operation cannot be fulfilled on events "{name}": the object has been modified; '
                "please apply your changes to the latest version and try again"
            )
            raise ApiError(409, "Conflict", text)

    def _store(self, namespace: str, name: str, body: Object) -> Object:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[namespace, name] = deepcopy(body)
        return deepcopy(body)


def merge(target: Any, patch: Any) -> Any:
    """A strategic merge patch of an Event is a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: ApiServer

    def do_POST(self) -> None:
        self._serve()

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, *_args: object) -> None:
        pass

    def _serve(self) -> None:
        request = self._request()
        self.api.came(request)
        fault = self.api.faults.popleft() if self.api.faults else None
        if fault is not None:
            self._fail(request, fault)
            return
        try:
            self._reply(*self.api.act(request))
        except ApiError as error:
            self._reply(error.code, error.status)

    def _request(self) -> Request:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        return Request(
            method=self.command,
            path=url.path,
            query=url.query,
            content_type=self.headers.get("Content-Type", ""),
            authorization=self.headers.get("Authorization", ""),
            body=json.loads(data) if data else None,
        )

    def _fail(self, request: Request, fault: Fault) -> None:
        if fault.applied:
            self.api.act(request)
        if not fault.status:
            self.close_connection = True
            return
        status = ApiError(fault.status, fault.reason, fault.message, causes=fault.causes).status
        body = json.dumps(status).encode() if fault.body is None else fault.body
        self._send(fault.status, body, fault.content_type, fault.headers)

    def _reply(self, code: int, body: Object) -> None:
        self._send(code, json.dumps(body).encode(), "application/json", {})

    def _send(self, code: int, body: bytes, content_type: str | None, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(api: ApiServer, *, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[str]:
    """Serve *api* on 127.0.0.1. Yields: its URL."""
    handler = type("Handler", (_Handler,), {"api": api})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="api-server")
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
