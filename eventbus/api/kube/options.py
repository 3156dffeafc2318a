"""Reads the options of lists, watches and writes from the query."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from multidict import MultiMapping

from eventbus.api import status
from eventbus.api.kube.authors import Author
from eventbus.api.kube.request_info import is_true, is_true_or_none
from eventbus.api.status import Cause
from eventbus.errors import InvalidObject
from eventbus.model.list_watch import ListOptions, VersionMatch
from eventbus.store.list_options import Continue, list_problems, watch_problems
from eventbus.util.text import quoted

#: Range of the default watch timeout in seconds. Watches end, so that clients spread over the workers again.
WATCH_S: Final = (1800.0, 3600.0)
_META: Final = "meta.k8s.io"
_DRY: Final = "All"
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")
_MAX_MANAGER: Final = 128
#: The largest version of etcd.
_MOST_VERSION: Final = (1 << 63) - 1
_NUMBER: Final = re.compile("[+-]?[0-9]+")
_MATCHES: Final = frozenset(VersionMatch)
_VALIDATIONS: Final = ("Ignore", "Warn", "Strict")


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a create, update, patch or delete. *author*: of the kinds `AUTHORED`."""

    dry_run: bool = False
    validation: str = ""  #: for unknown fields: Ignore, Warn, Strict; "" is Ignore
    manager: str = ""
    force: bool = False
    author: Author | None = None


def list_options(query: Mapping[str, str], namespace: str, name: str = "", *, watch: bool) -> ListOptions:
    """Read the options of a list or watch; *name*: only that object.

    Raises: ApiError: 400, 422, with the API server's messages.
    """
    fields = query.get("fieldSelector", "")
    if name:
        if fields and f"metadata.name={name}" not in fields.replace("==", "=").split(","):
            raise status.bad_request("fieldSelector metadata.name doesn't match requested name")
        fields = fields or f"metadata.name={name}"
    options = ListOptions(
        namespace=namespace,
        label_selector=query.get("labelSelector", ""),
        field_selector=fields,
        resource_version=query.get("resourceVersion", ""),
        version_match=_match(query.get("resourceVersionMatch", "")),
        limit=0 if watch else max(0, _number(query, "limit")),  # a negative limit means no limit, as in the API server
        continue_=query.get("continue", ""),
        timeout_s=_timeout(query) if watch else None,
        allow_bookmarks=is_true(query.get("allowWatchBookmarks")),
        send_initial_events=is_true_or_none(query.get("sendInitialEvents")),
    )
    for name in ("limit", "timeoutSeconds"):
        _number(query, name)  # the API server validates it even where it is not used
    problems = watch_problems(options) if watch else list_problems(options)
    if causes := [Cause(status.reason_of(problem), problem, field) for field, problem in problems]:
        raise status.invalid("ListOptions", "", causes, group=_META)
    version = _version(options.resource_version)
    if watch:
        return msgspec.structs.replace(options, resource_version=version, continue_="")
    if options.continue_:
        try:
            Continue.parse(options.continue_)
        except InvalidObject as error:
            raise status.bad_request(f"invalid continue token: {error}") from None
        if version not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
    return msgspec.structs.replace(options, resource_version=version)


def asked_version(query: Mapping[str, str]) -> str:
    """Read the minimum version of a get; "": any version. Raises: ApiError: 400.

    Source: Get in apiserver storage/etcd3/store.go.
    """
    return _version(query.get("resourceVersion", ""))


def write_options(
    query: Mapping[str, str], kind: str, dry_run: tuple[str, ...] = (), *, applied: bool = False
) -> WriteOptions:
    """Read the options of a write.

    Args: kind: such as `CreateOptions`.  dry_run: from the body of a delete.  applied: the write is an apply patch.

    Raises: ApiError: 422.
    """
    if not query and not dry_run and not applied:
        return WriteOptions()
    asked = [*dry_run, *_all(query, "dryRun")]
    causes = []
    if applied and not query.get("fieldManager"):
        causes.append(Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager"))
    if kind == "PatchOptions" and not applied and "force" in query:
        causes.append(Cause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force"))
    causes += _manager_causes(query.get("fieldManager", ""))
    if any(word != _DRY for word in asked):
        shown = ", ".join(f'"{word}"' for word in asked)
        problem = f'Unsupported value: []string{{{shown}}}: supported values: "{_DRY}"'
        causes.append(Cause("FieldValueNotSupported", problem, "dryRun"))
    validation = query.get("fieldValidation", "")
    if validation and validation not in _VALIDATIONS:
        problem = f'Unsupported value: "{validation}": supported values: {_quoted("", *_VALIDATIONS)}'
        causes.append(Cause("FieldValueNotSupported", problem, "fieldValidation"))
    if causes:
        raise status.invalid(kind, "", causes, group=_META)
    return WriteOptions(bool(asked), validation, query.get("fieldManager", ""), is_true(query.get("force")))


def check_propagation(policy: Any, orphan: Any) -> None:
    """Check the propagation policy of a delete, which has no effect here. Raises: ApiError: 422."""
    if orphan is not None and policy is not None:
        problem = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise status.invalid(
            "DeleteOptions", "", [Cause("FieldValueInvalid", problem, "propagationPolicy")], group=_META
        )
    if policy is not None and policy not in _PROPAGATIONS:
        problem = f'Unsupported value: "{policy}": supported values: {_quoted(*_PROPAGATIONS, "nil")}'
        cause = Cause("FieldValueNotSupported", problem, "propagationPolicy")
        raise status.invalid("DeleteOptions", "", [cause], group=_META)


def _manager_causes(manager: str) -> Iterator[Cause]:
    if len(manager.encode()) > _MAX_MANAGER:
        problem = f"Too long: must have at most {_MAX_MANAGER} bytes"
        yield Cause("FieldValueTooLong", problem, "fieldManager")
    for place, character in enumerate(manager):
        if not character.isprintable():
            at = len(manager[:place].encode())
            problem = f"Invalid value: {quoted(manager)}: invalid character U+{ord(character):04X} (at position {at})"
            yield Cause("FieldValueInvalid", problem, "fieldManager")
            return


def _all(query: Mapping[str, str], name: str) -> Sequence[str]:
    """Return all values of a key that may be repeated."""
    if isinstance(query, MultiMapping):
        return query.getall(name, [])
    return [query[name]] if name in query else []


def _quoted(*words: str) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _version(text: str) -> str:
    problem = "invalid syntax" if text and not (text.isdecimal() and text.isascii()) else ""
    version = text.lstrip("0") or "0" if text else ""
    if not problem and (len(version) > 19 or int(version or 0) > _MOST_VERSION):
        problem = "value out of range"
    if problem:
        shown = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {problem}'
        raise status.bad_request(f"invalid resource version: {shown}")
    return version


def _match(text: str) -> VersionMatch:
    """Convert a value. An invalid value stays text, and validation reports it with the other problems."""
    return VersionMatch(text) if text in _MATCHES else cast(VersionMatch, text)


def _number(query: Mapping[str, str], name: str) -> int:
    """Read an integer; 0 if the key is missing. Raises: ApiError: 400, also for an empty value."""
    text = query.get(name)
    if text is None:
        return 0
    problem = "invalid syntax" if _NUMBER.fullmatch(text) is None else ""
    if not problem and (len(text) > 400 or not -_MOST_VERSION - 1 <= int(text) <= _MOST_VERSION):
        problem = "value out of range"
    if problem:
        raise status.bad_request(f'strconv.ParseInt: parsing "{text[:400]}": {problem}')
    return int(text)


def _timeout(query: Mapping[str, str]) -> float:
    asked = _number(query, "timeoutSeconds")
    return float(asked) if asked > 0 else random.uniform(*WATCH_S)
