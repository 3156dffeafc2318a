"""Checks the metadata of any object by the rules of the API server, in its words.

Source: apimachinery `pkg/api/validation/objectmeta.go` and `pkg/util/validation/validation.go`. Names are the store's
to check, but for those that only the API server is strict about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from eventbus.api.status import Cause
from eventbus.model.event import ObjectMeta, OwnerReference
from eventbus.model.names import LABEL_RULE, MAX_LABEL, MAX_SUBDOMAIN, is_dns_label, is_dns_subdomain, is_qualified_name
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
    """List what is wrong with the labels, annotations, owners and finalizers of an object."""
    yield from _common_causes(metadata)
    for finalizer in metadata.finalizers:
        yield from qualified_causes("metadata.finalizers", finalizer)
    if {"orphan", "foregroundDeletion"} <= set(metadata.finalizers):
        yield invalid("metadata.finalizers", "", "finalizer orphan and foregroundDeletion cannot be both set")


def changed_causes(metadata: ObjectMeta, former: ObjectMeta) -> Iterator[Cause]:
    """List what is wrong with metadata that are to take the place of *former*; the API server looks at both in turn."""
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
    """List what is wrong with the names of an object that must be DNS subdomains."""
    return _dns_causes(metadata, MAX_SUBDOMAIN, is_dns_subdomain, _SUBDOMAIN)


def label_name_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List what is wrong with the names of an object that must be DNS labels, as those of a namespace."""
    return _dns_causes(metadata, MAX_LABEL, is_dns_label, LABEL_RULE)


def _dns_causes(metadata: ObjectMeta, most: int, fits: Callable[[str], bool], rule: str) -> Iterator[Cause]:
    for field, name in _names(metadata):
        if name and len(name) > most:
            yield invalid(field, name, f"must be no more than {most} characters")
        if name and not fits(_cut(name, most)):
            yield invalid(field, name, rule)


def segment_causes(metadata: ObjectMeta) -> Iterator[Cause]:
    """List what is wrong with the names of an object that need only fit into a path, as those of core/v1 events."""
    for field, name in (("metadata.generateName", metadata.generate_name), ("metadata.name", metadata.name)):
        if name in (".", "..") and field == "metadata.name":
            yield invalid(field, name, f"may not be '{name}'")
        for character in "/%":
            if character in name:
                yield invalid(field, name, f"may not contain '{character}'")


def _names(metadata: ObjectMeta) -> Iterator[tuple[str, str]]:
    """The name, and what it begins with, whose dash at the end is followed by something."""
    begin = metadata.generate_name
    yield "metadata.generateName", begin[:-1] + "a" if begin.endswith("-") and len(begin) > 1 else begin
    yield "metadata.name", metadata.name


def _cut(name: str, most: int) -> str:
    """*name*, no longer than it may be: what is wrong besides is told for itself."""
    return name if len(name) <= most else name[: most - 1] + name[-1]


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
