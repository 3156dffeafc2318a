"""Checks the metadata of any object by the rules of the API server, in its words.

Source: apimachinery `pkg/api/validation/objectmeta.go` and `pkg/util/validation/validation.go`. Names are the store's
to check, but for those that only the API server is strict about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from eventbus.api.status import Cause
from eventbus.event import ObjectMeta, OwnerReference
from eventbus.names import MAX_LABEL, is_dns_label, is_dns_subdomain, is_qualified_name

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
_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def metadata_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List what is wrong with the labels, annotations, owners and finalizers of an object."""
    yield from _label_causes(metadata.labels)
    for key in sorted(metadata.annotations):
        yield from qualified_causes("metadata.annotations", key, tested=key.lower())
    for owner in metadata.owner_references:
        yield from _owner_causes(owner)
    if sum(bool(owner.controller) for owner in metadata.owner_references) > 1:
        problem = "Only one reference can have Controller set to true"
        yield invalid("metadata.ownerReferences", "", problem)
    for finalizer in metadata.finalizers:
        yield from qualified_causes("metadata.finalizers", finalizer)
    if {"orphan", "foregroundDeletion"} <= set(metadata.finalizers):
        yield invalid("metadata.finalizers", "", "finalizer orphan and foregroundDeletion cannot be both set")


def subdomain_causes(name: str) -> Iterator[Cause]:
    """List what is wrong with a name that must be a DNS subdomain."""
    if name and not is_dns_subdomain(name):
        yield invalid("metadata.name", name, _SUBDOMAIN)


def label_name_causes(name: str) -> Iterator[Cause]:
    """List what is wrong with a name that must be a DNS label, as that of a namespace."""
    if name and not is_dns_label(name):
        problem = f"must be no more than {MAX_LABEL} characters" if len(name) > MAX_LABEL else _LABEL
        yield invalid("metadata.name", name, problem)


def qualified_causes(field: str, shown: str, *, tested: str | None = None) -> Iterator[Cause]:
    """List what is wrong with a qualified name, which is *tested* if that is another than the one shown."""
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
    return Cause("FieldValueInvalid", f'Invalid value: "{value}": {problem}', field)


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


__all__ = ["NAME_PART", "invalid", "label_name_causes", "metadata_causes", "qualified_causes", "subdomain_causes"]
