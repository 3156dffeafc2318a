"""JSON patches (RFC 6902), and strategic merge patches, which merge lists as sets or as maps by a key.

The body bounds a patch. In a JSON patch only `copy` makes more of it, up to 2^k times in k steps: copies are bounded.

Source: apimachinery `pkg/util/strategicpatch/patch.go`; the keys of lists are those of the types in k8s.io/api.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from eventbus.api import status

#: Maximum operations of one patch, as in the API server.
MAX_OPERATIONS: Final = 10_000
#: Bytes of JSON that all copies of one patch may add: an object has no more. The API server allows 3 MiB.
MAX_COPIED: Final = 256 * 1024


def read_patch(value: Any) -> list[dict[str, Any]]:
    """Return the operations of a JSON patch.

    Raises: ApiError: 400: not a list of objects; 413: too many operations; 422: an invalid operation.
    """
    if not isinstance(value, list):
        raise status.bad_request(f"json: cannot unmarshal {sort_of(value)} into Go value of type jsonpatch.Patch")
    if len(value) > MAX_OPERATIONS:
        raise status.too_much(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(value)}")
    for step in value:
        if step is not None and not isinstance(step, Mapping):
            raise status.bad_request(
                f"json: cannot unmarshal {sort_of(step)} into Go value of type jsonpatch.Operation"
            )
    try:
        JsonPatch(value)
    except _FAILURES:
        raise _unfit() from None
    return value


def apply_patch(target: Any, operations: Sequence[dict[str, Any]]) -> Any:
    """Return a copy of *target* after all *operations*.

    Raises: ApiError: 413: copies add more than `MAX_COPIED`; 422: an operation does not fit.
    """
    result = copy.deepcopy(target)
    copied = 0
    try:
        for step in operations:
            if step["op"] == "copy":
                copied += len(msgspec.json.encode(JsonPointer(step["from"]).resolve(result)))
                if copied > MAX_COPIED:
                    raise status.too_much(f"The copies of a JSON patch may add {MAX_COPIED} bytes, these add {copied}")
            result = JsonPatch([step]).apply(result, in_place=True)
    except _FAILURES:
        raise _unfit() from None
    return result


def _unfit() -> status.ApiError:
    message = "the server rejected our request due to an error in our request"
    return status.ApiError(422, "Invalid", message, details={})


#: The errors of jsonpatch for operations that are invalid, or do not fit.
_FAILURES: Final = (JsonPatchException, JsonPointerException, KeyError, IndexError, TypeError, AttributeError)


def sort_of(value: Any) -> str:
    """Return the type of a JSON value, as Go names it in its errors."""
    if isinstance(value, bool):
        return "bool"
    sorts = ((Mapping, "object"), (str, "string"), (list, "array"))
    return next((name for sort, name in sorts if isinstance(value, sort)), "number")


#: Merged lists by their path in an object, with the key of their items; "": a list of plain values. Other lists are
#: replaced.
MERGED: Final[Mapping[str, str]] = {
    "metadata.ownerReferences": "uid",
    "metadata.finalizers": "",
    "spec.finalizers": "",
    "spec.podCIDRs": "",
    "status.conditions": "type",
    "status.addresses": "type",
    "spec.containers": "name",
    "spec.initContainers": "name",
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.ephemeralContainers": "name",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.schedulingGates": "name",
    "spec.resourceClaims": "name",
    "status.podIPs": "ip",
    "status.hostIPs": "ip",
    "spec.containers.env": "name",
    "spec.containers.ports": "containerPort",
    "spec.containers.volumeMounts": "mountPath",
    "spec.containers.volumeDevices": "devicePath",
    "spec.initContainers.env": "name",
    "spec.initContainers.ports": "containerPort",
    "spec.initContainers.volumeMounts": "mountPath",
    "spec.initContainers.volumeDevices": "devicePath",
}
_MERGED: Final = {tuple(path.split(".")): key for path, key in MERGED.items()}
_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _TAKEN = "$setElementOrder/", "$deleteFromPrimitiveList/"
#: Maximum fields and items of one merge. A list that repeats a key is merged once for each repeat, so the work grows
#: with the square of the patch. A patch and an object without such lists reach a fifth of the limit at most.
MAX_HANDLED: Final = 1_000_000


def strategic_merge(target: Any, patch: Mapping[str, Any]) -> Any:
    """Return *target* with *patch* applied. Raises: ApiError: 400; 413: more than `MAX_HANDLED`."""
    return _Merge().merge(target, patch, ())


class _Merge:
    """One merge, with the count of fields and items so far."""

    def __init__(self) -> None:
        self._handled = 0

    def merge(self, target: Any, patch: Mapping[str, Any], path: tuple[str, ...]) -> Any:
        directive = patch.get(_PATCH, "merge")
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != _PATCH}
        if directive == "delete":
            return {}
        if directive != "merge":
            raise _bad_directive(f"invalid value for $patch: {str(directive)[:80]}")
        merged = dict(target) if isinstance(target, Mapping) else {}
        self._count(len(merged) + len(patch))
        if isinstance(retained := patch.get(_RETAIN), list):
            kept = set(map(_identity, retained))
            merged = {key: value for key, value in merged.items() if key in kept}
        for key, value in patch.items():
            if key.startswith(_TAKEN):
                self._take_out(merged, key.removeprefix(_TAKEN), value)
        for key, value in patch.items():
            if key.startswith("$"):
                continue
            below = (*path, key)
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                merged[key] = self.merge(merged.get(key), value, below)
            elif isinstance(value, list) and below in _MERGED:
                merged[key] = self._merge_list(merged.get(key), value, below, patch.get(_ORDER + key))
            else:
                merged[key] = value
        return merged

    def _take_out(self, merged: dict[str, Any], key: str, values: Any) -> None:
        former = merged.get(key)
        if isinstance(former, list) and isinstance(values, list):
            self._count(len(former) + len(values))
            removed = set(map(_identity, values))
            merged[key] = [value for value in former if _identity(value) not in removed]

    def _merge_list(self, current: Any, patch: Sequence[Any], path: tuple[str, ...], order: Any) -> list[Any]:
        key = _MERGED[path]
        former = list(current) if isinstance(current, Sequence) and not isinstance(current, str) else []
        self._count(len(former) + len(patch))
        if not key:
            known = set(map(_identity, former))
            return former + [value for value in patch if _identity(value) not in known]
        if any(isinstance(item, Mapping) and item.get(_PATCH) == "replace" and key not in item for item in patch):
            return [item for item in patch if isinstance(item, Mapping) and _PATCH not in item]
        held_keys = [item[key] for item in former if _is_keyed(item, key)]
        merged = {item[key]: item for item in former if _is_keyed(item, key)}
        named = []
        for item in patch:
            if not _is_keyed(item, key):
                raise _bad_directive(f"map: {str(item)[:80]} does not contain declared merge key: {key}")
            if item.get(_PATCH) == "delete":
                merged.pop(item[key], None)
            else:
                merged[item[key]] = self.merge(merged.get(item[key]), item, path)
                named.append(item[key])
        if isinstance(order, list):
            places = {item[key]: place for place, item in enumerate(order) if _is_keyed(item, key)}
            return sorted(merged.values(), key=lambda item: places.get(item[key], len(places)))
        return [merged[found] for found in _in_order([found for found in held_keys if found in merged], named)]

    def _count(self, handled: int) -> None:
        self._handled += handled
        if self._handled > MAX_HANDLED:
            raise status.too_much(
                f"a merge may handle {MAX_HANDLED} fields and items: its lists name one key too often"
            )


def _bad_directive(problem: str) -> status.ApiError:
    return status.bad_request(f"the patch cannot be applied: {problem}")


def _in_order(former: list[Any], named: list[Any]) -> list[Any]:
    """Merge the keys *former* with the keys that a patch has *named*: new keys come before the remaining ones."""
    places = {key: place for place, key in enumerate(former)}
    named_keys = set(named)
    remaining = deque(key for key in former if key not in named_keys)
    ordered: dict[Any, None] = {}
    for key in named:
        while key in places and remaining and places[remaining[0]] < places[key]:
            ordered[remaining.popleft()] = None
        ordered[key] = None
    return [*ordered, *remaining]


def _identity(value: Any) -> Any:
    """Return a hashable identity: *value* itself, or its JSON if it is not a plain value."""
    return msgspec.json.encode(value, order="sorted") if isinstance(value, dict | list) else value


def _is_keyed(item: Any, key: str) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get(key), str | int)
