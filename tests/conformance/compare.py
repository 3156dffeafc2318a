"""Describes how a decision or a final state differs from the expected one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.conformance.driver import Decision, StoredEvent
from tests.conformance.files import decision_to_json, time_to_json

#: Longest value shown; messages may have many kilobytes.
_SHOWN = 70


def differing_fields(want: Decision, got: Decision) -> list[str]:
    """Every field that differs, as `field expected … got …`; empty if none. A skip has no other fields."""
    if want.skip or got.skip:
        return [] if want.skip == got.skip else [_pair("skip", want.skip, got.skip)]
    wanted, found = _flat(want), _flat(got)
    return [_pair(field, wanted[field], found[field]) for field in wanted if wanted[field] != found[field]]


def state_difference(want: Iterable[StoredEvent], got: Iterable[StoredEvent]) -> str | None:
    """The first object, by name, that is not the same in both; None if all are."""
    wanted, found = _by_name(want), _by_name(got)
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            return f"object {name}: missing"
        if name not in wanted:
            return f"object {name}: should not be there"
        if len(wanted[name]) != len(found[name]):
            return f"object {name}: {_pair('objects of that name', len(wanted[name]), len(found[name]))}"
        for one, other in zip(wanted[name], found[name], strict=True):
            if wrong := [_pair(field, one[field], other[field]) for field in one if one[field] != other[field]]:
                return f"object {name}: {'; '.join(wrong)}"
    return None


def _flat(decision: Decision) -> dict[str, Any]:
    """Everything that is compared, the patch field by field."""
    flat = decision_to_json(decision)
    patch = flat.pop("patch")
    flat["patch"] = patch is not None
    for field in ("count", "lastTimestamp", "message"):
        flat[f"patch.{field}"] = (patch or {}).get(field, "absent")
    return flat


def _by_name(state: Iterable[StoredEvent]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for stored in sorted(state, key=lambda one: (one.message, one.count, str(one.first), str(one.last))):
        fields = dict(
            count=stored.count,
            message=stored.message,
            first_ts=time_to_json(stored.first),
            last_ts=time_to_json(stored.last),
        )
        found.setdefault(f"{stored.namespace}/{stored.name}", []).append(fields)
    return found


def _pair(field: str, want: object, got: object) -> str:
    return f"{field} expected {_show(want)} got {_show(got)}"


def _show(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else str(value).lower()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
