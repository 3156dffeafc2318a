"""The API server's validation: metadata, events, config maps, secrets, and an object before it is stored.

The messages are those of the API server. Limits of our own come on top, when the store checks.

Source: apimachinery `pkg/api/validation/objectmeta.go` and `pkg/util/validation/validation.go`; kubernetes
`pkg/apis/core/validation/events.go` and `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

import re
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventbus.api import status
from eventbus.api.kube.namespaces import NAMESPACE
from eventbus.api.kube.request_info import RequestInfo
from eventbus.api.status import Cause
from eventbus.errors import InvalidObject
from eventbus.model.event import Event, EventSource, EventType, ObjectMeta, OwnerReference
from eventbus.model.kinds import CONFIGMAP, EVENTS_V1, LEASE, POD, SECRET, SILENCE
from eventbus.model.names import LABEL_RULE, MAX_LABEL, MAX_SUBDOMAIN, is_dns_label, is_dns_subdomain, is_qualified_name
from eventbus.model.objects.cluster import LeaseSpec
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod_rules import spec_problems
from eventbus.model.validation import MAX_ACTION, MAX_NEW_INSTANCE, MAX_NEW_MESSAGE, MAX_REASON
from eventbus.store.storage import with_metadata
from eventbus.store.writer import generated_name
from eventbus.util.text import quoted

NAME_PART: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def metadata_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List the errors of labels, annotations, owners and finalizers."""
    yield from _common_causes(metadata)
    for finalizer in metadata.finalizers:
        yield from qualified_causes("metadata.finalizers", finalizer)
    if {"orphan", "foregroundDeletion"} <= set(metadata.finalizers):
        yield invalid("metadata.finalizers", "", "finalizer orphan and foregroundDeletion cannot be both set")


def changed_causes(metadata: ObjectMeta, former: ObjectMeta) -> Iterator[Cause]:
    """List the errors of metadata that replace *former*."""
    ends = metadata.deletion_timestamp
    if ends is not None and former.deletion_timestamp is None:  # only a delete sets it, and nothing takes it away
        problem = f"Invalid value: {ends:%Y-%m-%d %H:%M:%S} +0000 UTC: field is immutable"
        yield Cause("FieldValueInvalid", problem, "metadata.deletionTimestamp")
    if metadata.deletion_grace_period_seconds not in (None, former.deletion_grace_period_seconds):
        problem = f"Invalid value: {metadata.deletion_grace_period_seconds}: field is immutable"
        yield Cause("FieldValueInvalid", problem, "metadata.deletionGracePeriodSeconds")
    yield from _common_causes(metadata)


def _common_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    yield from _label_causes(metadata.labels)
    for key in sorted(metadata.annotations):
        yield from qualified_causes("metadata.annotations", key, tested=key.lower())
    for owner in metadata.owner_references:
        yield from _owner_causes(owner)
    if sum(bool(owner.controller) for owner in metadata.owner_references) > 1:
        problem = "Only one reference can have Controller set to true"
        yield invalid("metadata.ownerReferences", "", problem)


def subdomain_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List the errors of names that must be DNS subdomains."""
    return _dns_causes(metadata, MAX_SUBDOMAIN, is_dns_subdomain, _SUBDOMAIN)


def label_name_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List the errors of names that must be DNS labels, as those of a namespace."""
    return _dns_causes(metadata, MAX_LABEL, is_dns_label, LABEL_RULE)


def _dns_causes(metadata: ObjectMeta, most: int, fits: Callable[[str], bool], rule: str) -> Iterator[Cause]:
    for field, name in _names(metadata):
        if name and len(name) > most:
            yield invalid(field, name, f"must be no more than {most} characters")
        if name and not fits(_cut(name, most)):
            yield invalid(field, name, rule)


def segment_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List the errors of names that must fit into a path, as those of core/v1 events."""
    for field, name in (("metadata.generateName", metadata.generate_name), ("metadata.name", metadata.name)):
        if name in (".", "..") and field == "metadata.name":
            yield invalid(field, name, f"may not be '{name}'")
        for character in "/%":
            if character in name:
                yield invalid(field, name, f"may not contain '{character}'")


def _names(metadata: ObjectMeta) -> Iterator[tuple[str, str]]:
    """Yield name and generateName. The dash at the end of the latter is replaced, because a suffix follows."""
    begin = metadata.generate_name
    yield "metadata.generateName", begin[:-1] + "a" if begin.endswith("-") and len(begin) > 1 else begin
    yield "metadata.name", metadata.name


def _cut(name: str, most: int) -> str:
    """Shorten *name* to the limit, so that its other errors are reported separately."""
    return name if len(name) <= most else name[: most - 1] + name[-1]


def qualified_causes(field: str, shown: str, *, tested: str | None = None) -> Iterator[Cause]:
    """List the errors of a qualified name. *tested*: the name to check, if it differs from the one shown."""
    name = shown if tested is None else tested
    if is_qualified_name(name):
        return
    prefix, slash, part = name.partition("/")
    if not slash:
        part = name
    elif "/" in part:
        yield invalid(field, shown, NAME_PART.replace("name part", "a qualified name", 1) + _WITH_PREFIX)
        return
    elif not prefix:
        yield invalid(field, shown, "prefix part must be non-empty")
    elif not is_dns_subdomain(prefix):
        yield invalid(field, shown, f"prefix part {_SUBDOMAIN}")
    if not part:
        yield invalid(field, shown, "name part must be non-empty")
    elif len(part) > MAX_LABEL:
        yield invalid(field, shown, f"name part must be no more than {MAX_LABEL} characters")
    if not is_qualified_name(part[:MAX_LABEL]):
        yield invalid(field, shown, NAME_PART)


_WITH_PREFIX: Final = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"


def invalid(field: str, value: object, problem: str) -> Cause:
    """The cause of a value that may not be."""
    return Cause("FieldValueInvalid", f"Invalid value: {quoted(str(value))}: {problem}", field)


def _label_causes(labels: Mapping[str, str]) -> Iterator[Cause]:
    for key, value in sorted(labels.items()):
        yield from qualified_causes("metadata.labels", key)
        if len(value) > MAX_LABEL:
            yield invalid("metadata.labels", value, f"must be no more than {MAX_LABEL} characters")
        elif value and ("/" in value or not is_qualified_name(value)):
            yield invalid("metadata.labels", value, _LABEL_VALUE)


def _owner_causes(owner: OwnerReference) -> Iterator[Cause]:
    below = "metadata.ownerReferences"
    if not owner.api_version or owner.api_version.count("/") > 1:
        yield invalid(f"{below}.apiVersion", owner.api_version, "version must not be empty")
    for field, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
        if not value:
            yield invalid(f"{below}.{field}", value, f"{field} must not be empty")
    if (owner.api_version, owner.kind) == ("v1", "Event"):
        yield invalid(below, "", "/v1, Kind=Event is disallowed from being an owner")


_REQUIRED: Final = "Required value"
#: Fields that no update through events.k8s.io may change, by their names in events.go.
_IMMUTABLE_FIELDS: Final = (
    ("involvedObject", "involved_object"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "first_timestamp"),
    ("lastTimestamp", "last_timestamp"),
    ("count", "count"),
    ("related", "related"),
    ("reportingController", "reporting_component"),
    ("reportingInstance", "reporting_instance"),
    ("type", "type"),
    ("action", "action"),
    ("eventTime", "event_time"),
)


def event_causes(event: Event, *, new_api: bool, former: Event | None) -> list[Cause]:
    """List the errors of an event. *new_api*: sent as events.k8s.io/v1. *former*: the event that it replaces."""
    found = list(_legacy(event))
    if not new_api:
        return found
    if former is None:
        metadata = event.metadata
        return [*found, *subdomain_causes(metadata), *metadata_causes(metadata), *_series(event), *_new(event)]
    found += changed_causes(event.metadata, former.metadata)
    found += _series(event) if event.series != former.series else ()
    for field, attribute in _IMMUTABLE_FIELDS:
        if getattr(event, attribute) != getattr(former, attribute):
            found.append(invalid(field, getattr(event, attribute), "field is immutable"))
    return found


def _legacy(event: Event) -> Iterator[Cause]:
    about, namespace = event.involved_object.namespace, event.metadata.namespace
    if event.event_time is None:
        if about != namespace and (about or namespace not in ("", "default")):
            yield invalid("involvedObject.namespace", about, "does not match event.namespace")
        return
    if not about and namespace not in ("default", "kube-system"):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")
    if not event.reporting_component:
        yield Cause("FieldValueRequired", _REQUIRED, "reportingController")
    yield from qualified_causes("reportingController", event.reporting_component)
    yield from _bounded("reportingInstance", event.reporting_instance, MAX_NEW_INSTANCE)
    yield from _bounded("action", event.action, MAX_ACTION)
    yield from _bounded("reason", event.reason, MAX_REASON)
    if len(event.message.encode("utf-8", "replace")) > MAX_NEW_MESSAGE:
        yield invalid("message", "", f"can have at most {MAX_NEW_MESSAGE} characters")
    if namespace and not is_dns_subdomain(namespace):
        yield invalid("namespace", namespace, "a lowercase RFC 1123 subdomain must consist of lower case letters")


def _bounded(field: str, text: str, most: int) -> Iterator[Cause]:
    if not text:
        yield Cause("FieldValueRequired", _REQUIRED, field)
    elif len(text.encode("utf-8", "replace")) > most:
        yield invalid(field, "", f"can have at most {most} characters")


def _series(event: Event) -> Iterator[Cause]:
    if event.series is None:
        return
    if event.series.count < 2:
        yield invalid("series.count", "", "should be at least 2")
    if event.series.last_observed_time is None:
        yield Cause("FieldValueRequired", _REQUIRED, "series.lastObservedTime")


def _new(event: Event) -> Iterator[Cause]:
    if event.event_time is None:
        yield Cause("FieldValueRequired", _REQUIRED, "eventTime")
    if event.type not in (EventType.NORMAL, EventType.WARNING):
        yield invalid("type", "", f"has invalid value: {event.type}")
    unset = (
        ("firstTimestamp", event.first_timestamp is None),
        ("lastTimestamp", event.last_timestamp is None),
        ("count", event.count == 0),
        ("source", event.source == EventSource()),
    )
    for field, is_unset in unset:
        if not is_unset:
            yield invalid(field, "", "needs to be unset")


_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or"
    " 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
#: The keys that a secret of a type has to have.
_WANTED: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_JSON: Final = frozenset({".dockercfg", ".dockerconfigjson"})
#: Line ends are allowed in base64.
_LINE_ENDS: Final = str.maketrans("", "", "\r\n")
_IMMUTABLE: Final = "Forbidden: field is immutable when `immutable` is set"


def check_base64(found: object) -> None:
    """Check that the base64 fields of a config map or secret are valid. Raises: InvalidObject."""
    if isinstance(found, Secret):
        field, data = "data", found.data
    elif isinstance(found, ConfigMap):
        field, data = "binaryData", found.binary_data
    else:
        return
    for key, value in data.items():
        try:
            b64decode(value.translate(_LINE_ENDS), validate=True)
        except ValueError:
            where, problem = f"{field}[{key}]", "illegal base64 data"
            raise InvalidObject(f"{where}: {problem}", field=where, problem=problem) from None


def config_map_causes(new: ConfigMap, former: ConfigMap | None) -> Iterator[Cause]:
    """List the validation errors of a config map and of its change."""
    if former is not None:
        yield from _changed(new, former, ("data", "binaryData"))
    for key in sorted(new.data):
        yield from _key_causes("data", key)
        if key in new.binary_data:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in sorted(new.binary_data):
        yield from _key_causes("binaryData", key)


def secret_causes(new: Secret, former: Secret | None) -> Iterator[Cause]:
    """List the validation errors of a secret and of its change."""
    if former is not None:
        if new.type != former.type:
            yield invalid("type", new.type, "field is immutable")
        yield from _changed(new, former, ("data",))
    for key in sorted(new.data):
        yield from _key_causes("data", key)
    for key in _WANTED.get(new.type, ()):
        if key not in new.data:
            yield Cause("FieldValueRequired", "Required value", f"data[{key}]")
        elif key in _JSON and not _is_json_object(new.data[key]):
            yield invalid(f"data[{key}]", "<secret contents redacted>", "must be a JSON object")


def _changed(new: ConfigMap | Secret, former: ConfigMap | Secret, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not former.immutable:
        return
    if not new.immutable:
        yield Cause("FieldValueForbidden", _IMMUTABLE, "immutable")
    for field in fields:
        name = "binary_data" if field == "binaryData" else field
        if getattr(new, name) != getattr(former, name):
            yield Cause("FieldValueForbidden", _IMMUTABLE, field)


def _key_causes(field: str, key: str) -> Iterator[Cause]:
    where = f"{field}[{key}]"
    if len(key) > MAX_SUBDOMAIN:
        yield invalid(where, key, f"must be no more than {MAX_SUBDOMAIN} characters")
    if not _KEY.fullmatch(key):
        yield invalid(where, key, _KEY_RULE)
    if key in (".", ".."):
        yield invalid(where, key, f"must not be '{key}'")
    elif key.startswith(".."):
        yield invalid(where, key, "must not start with '..'")


def _is_json_object(data: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(b64decode(data)), dict)
    except (ValueError, RecursionError):
        return False


def check_rules(info: RequestInfo, new: Any, former: Any = None) -> None:
    """Run the API server's validation. Raises: ApiError: 422, with all causes."""
    causes: list[Cause] = []
    if former is None and new.metadata.generate_name and not new.metadata.name:
        new = with_metadata(new, name=generated_name(new.metadata.generate_name))  # an error names it
    elif former is None and info.resource.kind.named_by_uid and not new.metadata.name:
        new = with_metadata(new, name=str(uuid.uuid4()))
    kind, metadata = info.resource.kind, new.metadata
    if former is not None:  # the rules of each kind repeat those of all kinds, and are reported twice
        causes += [*metadata_causes(metadata), *changed_causes(metadata, former.metadata)]
    if not metadata.name:
        causes.append(Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name"))
    if info.resource.is_events:
        causes += event_causes(new, new_api=kind is EVENTS_V1, former=former)
        if former is None and not causes:  # causes of the kind come first, and exclude the others
            causes += [*segment_causes(metadata), *metadata_causes(metadata)]
    elif former is None:
        causes += label_name_causes(metadata) if kind is NAMESPACE else subdomain_causes(metadata)
        causes += [*metadata_causes(metadata), *_core_causes(info, metadata)]
    else:
        if info.resource.group == "" and not info.subresource:
            causes += [*metadata_causes(metadata), *_core_causes(info, metadata)]
        causes += [*changed_causes(metadata, former.metadata), *_core_causes(info, metadata)]
    if kind is LEASE:
        causes += _lease_causes(new.spec)
    elif kind is CONFIGMAP:
        causes += config_map_causes(new, former)
    elif kind is SECRET:
        causes += secret_causes(new, former)
    elif kind is POD and not info.subresource:
        causes += [Cause(*problem) for problem in spec_problems(new.spec, former and former.spec)]
    elif kind.problems is not None:
        causes += [Cause(*problem) for problem in kind.problems(new)]
        fixed = "matchers" if kind is SILENCE else "object"
        if former is not None and getattr(former.spec, fixed) != getattr(new.spec, fixed):
            causes.append(Cause("FieldValueForbidden", f"Forbidden: {_FIXED}", f"spec.{fixed}"))
    if causes:
        raise invalid_object(info, metadata.name, causes)


_FIXED: Final = "field is immutable: create another object, then end or delete this one"


def _core_causes(info: RequestInfo, metadata: ObjectMeta) -> Iterator[Cause]:
    """Require a domain in the finalizers of the core group, except Kubernetes' own."""
    for number, finalizer in enumerate(metadata.finalizers if info.resource.group == "" else ()):
        if "/" not in finalizer and finalizer not in _FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"metadata.finalizers[{number}]", finalizer, problem)


_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _lease_causes(spec: LeaseSpec) -> Iterator[Cause]:
    """List the errors of a lease. Source: `pkg/apis/coordination/validation/validation.go`."""
    duration_s, transitions = spec.lease_duration_seconds, spec.lease_transitions
    if duration_s is not None and duration_s <= 0:
        problem = f"Invalid value: {duration_s}: must be greater than 0"
        yield Cause("FieldValueInvalid", problem, "spec.leaseDurationSeconds")
    if transitions is not None and transitions < 0:
        problem = f"Invalid value: {transitions}: must be greater than or equal to 0"
        yield Cause("FieldValueInvalid", problem, "spec.leaseTransitions")


def invalid_object(info: RequestInfo, name: str, causes: Sequence[Cause]) -> status.ApiError:
    """Return 422. For events it omits the group, because the API server has one kind for both groups."""
    group = "" if info.resource.is_events else info.resource.group
    return status.invalid(info.resource.kind.name, name, causes, group=group)
