"""Writes events into a Kubernetes cluster: each is created once and then patched, as client-go's recorder does.

    kubernetes:                              in-cluster, else $KUBECONFIG, else ~/.kube/config
    kubernetes:/path/to/kubeconfig           ?context=… of it      ?namespace=…: only events of that namespace

It needs the verbs create, get and patch on events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx2
import lightkube
import msgspec
import yaml
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError as ClientConfigError
from lightkube.generic_resource import create_namespaced_resource

from eventbus.errors import (
    AlreadyExists,
    ConfigError,
    EventBusError,
    EventRejected,
    InvalidEvent,
    NotFound,
    SinkError,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.sinks.common import check_host, error_text, storable_core, version_of
from eventbus.export.sinks.contract import EventPatch, SinkMode
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.bus_path import PATH_ANNOTATION, extend_path
from eventbus.model.encoding.event_json import from_core
from eventbus.model.event import Event
from eventbus.util.http.retry_after import retry_after_s

#: The store's version of the event, kept with it: a write with an older one changes nothing.
VERSION: Final = "eventbus/resource-version"
#: The event's uid in the store; the API server gives it another one.
UID: Final = "eventbus/uid"

#: The number of attempts of a write that conflicts with other writers.
_CONFLICTS: Final = 5

#: Where events of cluster-scoped objects are kept (core/v1 validation).
_DEFAULT_NAMESPACE: Final = "default"

# Plain dicts go in and out: the client's typed Event would cut and rewrite times.
_EVENTS: Final = create_namespaced_resource("", "v1", "Event", "events", verbs=["post", "get", "patch"])


def make_kubernetes_sink(url: str, options: SinkOptions) -> KubernetesSink:
    """Make the sink of `kubernetes:…`. Reads the kubeconfig, connects to nothing. Raises: ConfigError."""
    config, namespace = _read_url(url, options.environ)
    try:
        client = lightkube.Client(
            config,
            timeout=httpx2.Timeout(options.timeout_s),
            field_manager=f"eventbus-{options.bus_id}" if options.bus_id else "eventbus",
            trust_env=True,
        )
    except (ClientConfigError, OSError, ValueError) as error:
        raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
    return KubernetesSink(options.name, client, namespace=namespace, bus_id=options.bus_id)


def server_of(url: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the API server that `kubernetes:…` stands for here. Raises: ConfigError."""
    server: str = _read_url(url, environ)[0].cluster.server
    return server


def _read_url(url: str, environ: Mapping[str, str]) -> tuple[SingleConfig, str]:
    """Return the cluster and, if only that one is written to, the namespace."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    context, namespace = given.pop("context", ""), given.pop("namespace", "")
    if given or parts.netloc or parts.fragment:
        raise ConfigError("a kubernetes: URL is kubernetes:[/path/to/kubeconfig][?context=…&namespace=…]")
    return load_config(unquote(parts.path) or environ.get("KUBECONFIG", ""), context), namespace


def load_config(path: str, context: str) -> SingleConfig:
    """Return the cluster and user of a context; *path* "": of this process.  Raises: ConfigError."""
    try:
        kubeconfig = KubeConfig.from_file(path) if path else KubeConfig.from_env(service_account=SERVICE_ACCOUNT)
        config = kubeconfig.get(context or None)
    except (ClientConfigError, OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        cure = "" if path else ": set KUBECONFIG to the path of a kubeconfig"
        raise ConfigError(f"the kubeconfig {path or 'of this process'} cannot be used: {problem}{cure}") from None
    if config is None or config.user is None:
        raise ConfigError(f"the kubeconfig {path or 'of this process'} names no context with a user")
    return config


class KubernetesSink:
    """Writes core/v1 Events, one request at a time.

    Patches contain the last known resource version, so that changes by other writers cause a conflict. After a
    conflict, or if an event to create exists already, the sink reads the event again and keeps the higher count.

    Args:     namespace: events of other namespaces are rejected; "": of none.
              bus_id: added to the path of each event, so that an import recognizes it.
    """

    mode = SinkMode.UPSERT

    def __init__(self, name: str, client: lightkube.Client, *, namespace: str, bus_id: str = "") -> None:
        self.name = name
        self._client = client
        self._namespace = namespace
        self._bus_id = bus_id

    def __repr__(self) -> str:
        return f"<KubernetesSink {self.name} {self._client.config.cluster.server}>"

    def check(self) -> None:
        """Look up the API server's host. Raises: ConfigError: the host does not exist."""
        check_host(urlsplit(self._client.config.cluster.server).hostname or "")

    def create(self, event: Event) -> Event:
        """Create the event with a POST; if it exists, `update`. Raises: as `EventSink`."""
        target = self._target(event)
        for _ in range(_CONFLICTS):
            with suppress(AlreadyExists):
                return self._post(target)
            with suppress(NotFound):  # it has just expired
                return self._catch_up(target)
        raise UnexpectedReply(f"events {target.name!r} cannot be created and does not exist")

    def update(self, event: Event) -> Event:
        """Read it, then create or patch it, or leave it if it is not older. Raises: as `EventSink`."""
        target = self._target(event)
        try:
            return self._catch_up(target)
        except NotFound:
            return self.create(event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        """Send a strategic merge PATCH. Raises: as `EventSink`; NotFound: it has expired in the cluster."""
        target = self._target(event, name=patch.name)
        if not patch.version:
            return self._catch_up(target)
        try:
            return self._patch(target, patch.body(), patch.version)
        except Conflict:
            return self._catch_up(target)

    def close(self) -> None:
        self._client.close()

    def _target(self, event: Event, *, name: str = "") -> _Target:
        namespace = event.metadata.namespace or _DEFAULT_NAMESPACE
        if self._namespace and namespace != self._namespace:
            raise EventRejected(f"this sink writes to the namespace {self._namespace}, not to {namespace}")
        core = storable_core(event)
        path = extend_path(event.metadata.annotations.get(PATH_ANNOTATION, ""), self._bus_id)
        return _Target(
            namespace=namespace,
            name=name or event.metadata.name,
            version=version_of(event),
            count=event.occurrences,
            about=core["involvedObject"],
            marks={
                VERSION: event.metadata.resource_version,
                UID: event.metadata.uid,
                **({PATH_ANNOTATION: path} if path else {}),
            },
            core=core,
        )

    def _catch_up(self, target: _Target) -> Event:
        """Update the event in the cluster to *target*, unless it is as new. Raises: NotFound."""
        for _ in range(_CONFLICTS):
            current = self._get(target)
            if target.is_of_another(current):
                raise EventRejected(f"events {target.name!r} is about another object in the cluster")
            if target.is_no_newer_than(current):
                return _event(current)
            try:
                return self._patch(target, target.changes(), str(current["metadata"].get("resourceVersion", "")))
            except Conflict:
                continue
        raise UnexpectedReply(f"other clients changed events {target.name!r} in each of {_CONFLICTS} attempts")

    def _post(self, target: _Target) -> Event:
        return _event(self._call(lambda: self._client.create(target.whole(), namespace=target.namespace), create=True))

    def _get(self, target: _Target) -> dict[str, Any]:
        return self._call(lambda: self._client.get(_EVENTS, target.name, namespace=target.namespace))

    def _patch(self, target: _Target, body: Mapping[str, Any], version: str) -> Event:
        metadata = {"annotations": target.marks} | ({"resourceVersion": version} if version else {})
        whole = {**body, "metadata": metadata}
        return _event(self._call(lambda: self._client.patch(_EVENTS, target.name, whole, namespace=target.namespace)))

    def _call(self, call: Callable[[], Any], *, create: bool = False) -> dict[str, Any]:
        try:
            reply = call()
        except Exception as error:
            translated = translate(error, create=create)
            if translated is None:
                raise
            raise translated from error
        if not isinstance(reply, dict) or reply.get("kind") != "Event" or not isinstance(reply.get("metadata"), dict):
            raise UnexpectedReply("the API server answered with something else than an Event")
        return reply


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    """The state that an event is to have in the cluster."""

    namespace: str
    name: str
    version: int
    count: int
    about: dict[str, Any]
    marks: dict[str, str]
    core: dict[str, Any]

    def whole(self) -> Any:
        """Return the event to create, without the fields that the server sets itself, and refuses."""
        server_set = {"uid", "resourceVersion", "creationTimestamp"}
        metadata = {key: value for key, value in self.core["metadata"].items() if key not in server_set}
        metadata["namespace"] = self.namespace
        metadata["name"] = self.name
        metadata["annotations"] = metadata.get("annotations", {}) | self.marks
        return _EVENTS(**self.core | {"metadata": metadata})

    def changes(self) -> dict[str, Any]:
        """Return the fields that a repeat changes, as `EventPatch.body`; null removes a time."""
        body: dict[str, Any] = {"count": self.core.get("count", 0), "lastTimestamp": self.core["lastTimestamp"]}
        if not body["count"] and "series" in self.core:
            return {"series": self.core["series"]}
        return body | {key: self.core[key] for key in ("message", "series") if key in self.core}

    def is_of_another(self, current: dict[str, Any]) -> bool:
        about = current.get("involvedObject") or {}
        return any(about.get(key, "") != self.about.get(key, "") for key in ("kind", "namespace", "name", "uid"))

    def is_no_newer_than(self, current: dict[str, Any]) -> bool:
        """Compare by our version; an event that never had one is compared by its count."""
        marked = str((current["metadata"].get("annotations") or {}).get(VERSION, ""))
        version = int(marked) if marked.isascii() and marked.isdecimal() else -1
        series = current.get("series")
        count = (series if isinstance(series, dict) else current).get("count") or 0
        return version >= self.version or (isinstance(count, int) and count > self.count)


def _event(reply: dict[str, Any]) -> Event:
    try:
        return from_core(reply)
    except InvalidEvent as error:
        raise UnexpectedReply(f"the API server's Event cannot be read: {error}") from error


#: No event can be written: missing or wrong credentials, no permission, a timeout, or an error of a proxy.
_UNREACHABLE: Final = frozenset({401, 403, 408, 502, 503, 504})
#: The event itself is invalid; a retry cannot succeed.
_REJECTED: Final = frozenset({400, 404, 405, 406, 410, 413, 415, 422})
#: The API server sends these with a Status. Without one, a proxy has answered or the URL is wrong: all events fail.
_ABOUT_THE_PATH: Final = frozenset({404, 405, 406})
_TERMINATING: Final = "NamespaceTerminating"


class Conflict(SinkError):
    """Another client changed it since it was read. Cure: read it again; it never leaves the sink."""


def translate(error: BaseException, *, create: bool) -> EventBusError | None:
    """Return the error to raise; None: it is not one of the client's.

    Args:     create: a 409 then means that it exists, a 404 that its namespace does not.
    """
    answered = _answer(error)
    if answered is not None:
        return _of_answer(answered.response, create=create)
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | httpx2.StreamError | ClientConfigError | OSError):
        return SinkUnreachable(error_text(f"{type(error).__name__}: {error}"))
    if isinstance(error, msgspec.MsgspecError | ValueError | KeyError | TypeError):
        return UnexpectedReply(error_text(f"the reply cannot be read: {error!r}"))
    return None


def _answer(error: BaseException | None) -> httpx2.HTTPStatusError | None:
    # lightkube raises another exception if an error reply has no JSON or no type. The reply is then its context.
    while error is not None and not isinstance(error, httpx2.HTTPStatusError):
        error = error.__context__
    return error


def _of_answer(response: httpx2.Response, *, create: bool) -> EventBusError:
    status = _status(response)
    text = error_text(f"{response.status_code} {status.get('message') or response.reason_phrase}")
    code = response.status_code
    if code == 403 and _is_terminating(status):
        return EventRejected(text)
    pause_s = retry_after_s(response.headers.get("retry-after"))
    if code == 429 or (code == 503 and pause_s is not None):
        return Throttled(text, pause_s)
    if code in _UNREACHABLE or (code in _ABOUT_THE_PATH and status.get("kind") != "Status"):
        return SinkUnreachable(text, status=code)
    if code == 404 and not create:
        return NotFound(text)
    if code == 409:
        return AlreadyExists(text) if create else Conflict(text)
    return EventRejected(text) if code in _REJECTED else UnexpectedReply(text, status=code)


def _is_terminating(status: dict[str, Any]) -> bool:
    """Return True if the namespace is being deleted: no event will ever get in, while all others do."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(isinstance(cause, dict) and cause.get("reason") == _TERMINATING for cause in causes or ())


def _status(response: httpx2.Response) -> dict[str, Any]:
    try:
        status = msgspec.json.decode(response.content)
    except (msgspec.MsgspecError, httpx2.StreamError):
        return {}
    return status if isinstance(status, dict) else {}
