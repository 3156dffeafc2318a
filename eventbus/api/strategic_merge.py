"""Strategic merge patches: JSON merge patches that know which lists are sets, and which are maps by a key.

Source: apimachinery `pkg/util/strategicpatch/patch.go`; the keys are those of the types in k8s.io/api.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Lists that are merged, by their path in an object: the key of their items, "" of a list of plain values. Others are
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
_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _TAKEN = "$setElementOrder/", "$deleteFromPrimitiveList/"


class BadDirective(ValueError):
    """A directive of the patch has a form that there is not."""


def strategic_merge(target: Any, patch: Mapping[str, Any], path: str = "") -> Any:
    """*target* with *patch* applied. Raises: BadDirective."""
    directive = patch.get(_PATCH, "merge")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise BadDirective(f"invalid value for $patch: {str(directive)[:80]}")
    merged = dict(target) if isinstance(target, Mapping) else {}
    if isinstance(retained := patch.get(_RETAIN), list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_TAKEN):
            _take_out(merged, key.removeprefix(_TAKEN), value)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        below = f"{path}.{key}" if path else key
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = strategic_merge(merged.get(key), value, below)
        elif isinstance(value, list) and below in MERGED:
            merged[key] = _merge_list(merged.get(key), value, below, patch.get(_ORDER + key))
        else:
            merged[key] = value
    return merged


def _take_out(merged: dict[str, Any], key: str, values: Any) -> None:
    held = merged.get(key)
    if isinstance(held, list) and isinstance(values, list):
        merged[key] = [value for value in held if value not in values]


def _merge_list(held: Any, patch: Sequence[Any], path: str, order: Any) -> list[Any]:
    key = MERGED[path]
    former = list(held) if isinstance(held, Sequence) and not isinstance(held, str) else []
    if not key:
        return former + [value for value in patch if value not in former]
    if any(isinstance(item, Mapping) and item.get(_PATCH) == "replace" and key not in item for item in patch):
        return [item for item in patch if isinstance(item, Mapping) and _PATCH not in item]
    held_keys = [item[key] for item in former if _is_keyed(item, key)]
    merged = {item[key]: item for item in former if _is_keyed(item, key)}
    named = []
    for item in patch:
        if not _is_keyed(item, key):
            raise BadDirective(f"map: {str(item)[:80]} does not contain declared merge key: {key}")
        if item.get(_PATCH) == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = strategic_merge(merged.get(item[key]), item, path)
            named.append(item[key])
    if isinstance(order, list):
        places = {item[key]: place for place, item in enumerate(order) if _is_keyed(item, key)}
        return sorted(merged.values(), key=lambda item: places.get(item[key], len(places)))
    return [merged[found] for found in _in_order([found for found in held_keys if found in merged], named)]


def _in_order(held: list[Any], named: list[Any]) -> list[Any]:
    """The keys *held*, in their order, with those that a patch has *named*: what is new comes before what is left."""
    found: list[Any] = []
    left = [key for key in held if key not in named]
    for key in named:
        if key in held:
            before = held[: held.index(key)]
            found += [other for other in left if other in before and other not in found]
        if key not in found:
            found.append(key)
    return found + [key for key in left if key not in found]


def _is_keyed(item: Any, key: str) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get(key), str | int)


__all__ = ["MERGED", "BadDirective", "strategic_merge"]
