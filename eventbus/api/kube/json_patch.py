"""JSON patches (RFC 6902): read, and applied to a copy.

The body bounds a patch. Only `copy` makes more of it, in k steps up to 2^k times, so copies are bounded too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

#: Operations in one patch; the API server's own bound.
MOST: Final = 10_000
#: Bytes of JSON that all copies of one patch may add: an object has no more. The API server allows 3 MiB.
MAX_COPIED: Final = 256 * 1024
_MISSING: Final = object()


class PatchFailed(ValueError):
    """The patch does not fit the object."""


class PatchTooLarge(ValueError):
    """The patch has too many operations, or its copies add too many bytes."""


class Operation(NamedTuple):
    """One step of a patch."""

    op: str
    path: tuple[str, ...]
    value: Any
    origin: tuple[str, ...]


def read_patch(value: Any) -> list[Operation]:
    """The steps of a patch that was JSON.

    Raises: ValueError: it is no patch. PatchTooLarge: it has too many steps. PatchFailed: a step is no operation.
    """
    if not isinstance(value, list):
        raise ValueError(f"json: cannot unmarshal {sort_of(value)} into Go value of type jsonpatch.Patch")
    if len(value) > MOST:
        raise PatchTooLarge(f"The allowed maximum operations in a JSON patch is {MOST}, got {len(value)}")
    for step in value:
        if step is not None and not isinstance(step, Mapping):
            raise ValueError(f"json: cannot unmarshal {sort_of(step)} into Go value of type jsonpatch.Operation")
    return [_operation(step) for step in value]


def apply_patch(target: Any, operations: Sequence[Operation]) -> Any:
    """A copy of *target* with all *operations* done.

    Raises: PatchFailed: an operation does not fit. PatchTooLarge: copies add more than `MAX_COPIED`.
    """
    root: Any = {"": copy.deepcopy(target)}
    copied = 0
    for step in operations:
        path, origin = ("", *step.path), ("", *step.origin)
        match step.op:
            case "add":
                _add(root, path, copy.deepcopy(step.value))
            case "remove":
                _remove(root, path)
            case "replace":
                _remove(root, path)
                _add(root, path, copy.deepcopy(step.value))
            case "move":
                if step.path[: len(step.origin)] == step.origin and step.path != step.origin:
                    raise PatchFailed("a value cannot be moved into itself")
                _add(root, path, _remove(root, origin))
            case "copy":
                value = _get(root, origin)
                copied += len(msgspec.json.encode(value))
                if copied > MAX_COPIED:
                    raise PatchTooLarge(f"The copies of a JSON patch may add {MAX_COPIED} bytes, these add {copied}")
                _add(root, path, copy.deepcopy(value))
            case "test":
                if not _same(_found(root, path), step.value):
                    raise PatchFailed(f"testing value /{'/'.join(step.path)} failed")
    if "" not in root:
        raise PatchFailed("the whole object cannot be removed")
    return root[""]


def _operation(step: Any) -> Operation:
    if step is None or not isinstance(step.get("path"), str):
        raise PatchFailed("each step of a JSON patch is an object with op and path")
    op = step.get("op")
    if op not in ("add", "remove", "replace", "move", "copy", "test"):
        raise PatchFailed(f"a JSON patch has no operation {str(op)[:80]!r}")
    if op in ("add", "replace", "test") and "value" not in step:
        raise PatchFailed(f"the operation {op} needs a value")
    origin = step.get("from", "")
    if op in ("move", "copy") and not isinstance(step.get("from"), str):
        raise PatchFailed(f"the operation {op} needs from")
    return Operation(op, _pointer(step["path"]), step.get("value"), _pointer(origin) if isinstance(origin, str) else ())


def _pointer(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    if not text.startswith("/"):
        raise PatchFailed(f"{text[:80]!r} is no JSON pointer: it begins with a slash")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def _get(root: Any, path: Sequence[str]) -> Any:
    found = root
    for part in path:
        if isinstance(found, dict):
            found = found.get(part, _MISSING)
        elif isinstance(found, list):
            found = found[_index(found, part, len(found) - 1)]
        else:
            found = _MISSING
        if found is _MISSING:
            raise PatchFailed(f"there is no value at {'/'.join(path)}")
    return found


def _found(root: Any, path: Sequence[str]) -> Any:
    """The value to test; a key that an object is without is null."""
    parent = _get(root, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else _get(root, path)


def _add(root: Any, path: Sequence[str], value: Any) -> None:
    parent, last = _get(root, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, len(parent)), value)
    else:
        raise PatchFailed(f"there is nothing to add to at {'/'.join(path)}")


def _remove(root: Any, path: Sequence[str]) -> Any:
    parent, last = _get(root, path[:-1]), path[-1]
    if isinstance(parent, dict) and last in parent:
        return parent.pop(last)
    if isinstance(parent, list):
        return parent.pop(_index(parent, last, len(parent) - 1))
    raise PatchFailed(f"there is no value at {'/'.join(path)}")


def _index(found: Sequence[Any], part: str, most: int) -> int:
    if not (part.isdecimal() and part.isascii() and len(part) < 10 and (part == "0" or part[0] != "0")):
        raise PatchFailed(f"{part[:80]!r} is no index of a list")
    if int(part) > most:
        raise PatchFailed(f"index {part} is out of a list of {len(found)}")
    return int(part)


def _same(left: Any, right: Any) -> bool:
    """As JSON: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def sort_of(value: Any) -> str:
    """The sort of a plain value, as Go names it in its errors."""
    if isinstance(value, bool):
        return "bool"
    sorts = ((Mapping, "object"), (str, "string"), (list, "array"))
    return next((name for sort, name in sorts if isinstance(value, sort)), "number")
