"""Applies JSON merge patches, and makes the one between two objects. Source: RFC 7386."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """Return *target* with *patch* applied: null removes a key, a value that is not a mapping replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that turns *old* into *new*; {} if they are equal. A null in *new* counts as a missing key."""
    patch: dict[str, Any] = {key: None for key, value in old.items() if value is not None and new.get(key) is None}
    for key, value in new.items():
        former = old.get(key)
        if value is None or value == former:
            continue
        if isinstance(value, Mapping) and isinstance(former, Mapping):
            patch[key] = difference(former, value)
        else:
            patch[key] = value
    return patch
