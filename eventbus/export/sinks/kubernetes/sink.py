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

from eventbus.errors import AlreadyExists, ConfigError, EventRejected, InvalidEvent, NotFound, UnexpectedReply
from eventbus.export.sinks.contract import EventPatch, SinkMode
from eventbus.export.sinks.kubernetes.errors import Conflict, translate
from eventbus.export.sinks.registry import SinkOptions
from eventbus.export.sinks.start_checks import check_host
from eventbus.export.sinks.storable import storable_core, version_of
from eventbus.model.encoding.event_json import from_core
from eventbus.model.event import Event

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
    return KubernetesSink(options.name, client, namespace=namespace)


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
    return _load_config(unquote(parts.path) or environ.get("KUBECONFIG", ""), context), namespace


def _load_config(path: str, context: str) -> SingleConfig:
    try:
        found = KubeConfig.from_file(path) if path else KubeConfig.from_env(service_account=SERVICE_ACCOUNT)
        config = found.get(context or None)
    except (ClientConfigError, OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise ConfigError(f"the kubeconfig {path or 'of this process'} cannot be used: {problem}") from None
    if config is None or config.user is None:
        raise ConfigError(f"the kubeconfig {path or 'of this process'} names no context with a user")
    return config


class KubernetesSink:
    """Writes core/v1 Events, one request at a time.

    Patches contain the last known resource version, so that changes by other writers cause a conflict. After a
    conflict, or if an event to create exists already, the sink reads the event again and keeps the higher count.

    Args:     namespace: events of other namespaces are rejected; "": of none.
    """

    mode = SinkMode.UPSERT

    def __init__(self, name: str, client: lightkube.Client, *, namespace: str) -> None:
        self.name = name
        self._client = client
        self._namespace = namespace

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
        raise UnexpectedReply(f"events {target.name!r} neither can be created nor is there")

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
        return _Target(
            namespace=namespace,
            name=name or event.metadata.name,
            version=version_of(event),
            count=event.count,
            about=core["involvedObject"],
            marks={VERSION: event.metadata.resource_version, UID: event.metadata.uid},
            core=core,
        )

    def _catch_up(self, target: _Target) -> Event:
        """Update the event in the cluster to *target*, unless it is as new. Raises: NotFound."""
        for _ in range(_CONFLICTS):
            found = self._get(target)
            if target.is_of_another(found):
                raise EventRejected(f"events {target.name!r} is about another object in the cluster")
            if target.is_no_newer_than(found):
                return _event(found)
            try:
                return self._patch(target, target.changes(), str(found["metadata"].get("resourceVersion", "")))
            except Conflict:
                continue
        raise UnexpectedReply(f"somebody else changed events {target.name!r} {_CONFLICTS} times in between")

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
        theirs = {"uid", "resourceVersion", "creationTimestamp"}
        metadata = {key: value for key, value in self.core["metadata"].items() if key not in theirs}
        metadata["namespace"] = self.namespace
        metadata["name"] = self.name
        metadata["annotations"] = metadata.get("annotations", {}) | self.marks
        return _EVENTS(**self.core | {"metadata": metadata})

    def changes(self) -> dict[str, Any]:
        """Return the fields that a repeat changes, as `EventPatch.body`; null removes a time."""
        body: dict[str, Any] = {"count": self.count, "lastTimestamp": self.core["lastTimestamp"]}
        return body | {key: self.core[key] for key in ("message", "series") if key in self.core}

    def is_of_another(self, found: dict[str, Any]) -> bool:
        about = found.get("involvedObject") or {}
        return any(about.get(key, "") != self.about.get(key, "") for key in ("kind", "namespace", "name", "uid"))

    def is_no_newer_than(self, found: dict[str, Any]) -> bool:
        """Compare by our version; an event that never had one is compared by its count."""
        marked = str((found["metadata"].get("annotations") or {}).get(VERSION, ""))
        version = int(marked) if marked.isascii() and marked.isdecimal() else -1
        count = found.get("count") or 0
        return version >= self.version or (isinstance(count, int) and count > self.count)


def _event(reply: dict[str, Any]) -> Event:
    try:
        return from_core(reply)
    except InvalidEvent as error:
        raise UnexpectedReply(f"the API server's Event cannot be read: {error}") from error
