"""Reads from a method and a path what is asked for: a verb, a resource, a namespace, a name.

Source: apiserver `pkg/endpoints/request/requestinfo.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from eventbus.api import status
from eventbus.api.resources import Resource, Resources
from eventbus.kinds import POD

_ONE: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_STATUS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}
NAMESPACES: Final = "namespaces"
#: Characters of a path; one of 32 KB may have ten thousand parts.
_LONGEST_REMEMBERED: Final = 512
#: Of what lies in namespaces, in one at a time.
_IN_NAMESPACES: Final = ("create", "deletecollection")


class Asked(NamedTuple):
    """A request for a resource."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str


def read_request(method: str, raw_path: str, query: Mapping[str, str], resources: Resources) -> Asked:
    """Read what is asked for. Raises: Refusal: 404 nothing is served there, 405 not that way, 400 no UTF-8."""
    segments = _remembered_segments if len(raw_path) <= _LONGEST_REMEMBERED else _segments
    found = _find(segments(raw_path), resources)
    if found is None:
        raise status.no_such_path()
    resource, namespace, name, subresource, old_watch = found
    if old_watch and subresource:
        raise status.no_such_path()
    if subresource and subresource not in resource.subresources:
        raise _not_here(namespace, name, subresource) if resource.kind is POD else status.no_such_path()
    verbs = _STATUS if subresource else _ONE if name else _MANY
    verb = verbs.get(method)
    if verb is None or (verb in _IN_NAMESPACES and resource.kind.namespaced and not namespace):
        raise status.method_not_allowed()
    if verb == "deletecollection" and resource.plural == NAMESPACES:
        raise status.method_not_allowed()
    if old_watch or (verb == "list" and is_true(query.get("watch"))):
        if method != "GET":
            raise status.method_not_allowed()
        verb = "watch"
    return Asked(verb, resource, namespace, name, subresource)


def _not_here(namespace: str, name: str, subresource: str) -> status.Refusal:
    """Say where it is to be had what the kubelet serves: no API worker reaches the pods' machines."""
    words = f"eventbus logs {name}" + (f" -n {namespace}" if namespace != "default" else "")
    match subresource:
        case "log":
            return status.no_such_path(f"logs lie on the node that runs the pod; type there: {words}")
        case "exec" | "attach" | "portforward":
            what = f"{subresource} is not served: no API worker reaches the machine of a pod"
            return status.no_such_path(f"{what}, where its processes and ports are the machine's own")
    return status.no_such_path()


def is_true(value: str | None) -> bool:
    """As the API server reads a boolean of a query."""
    return value is not None and value.lower() not in ("0", "false")


def is_true_or_none(value: str | None) -> bool | None:
    """The same, where what is not given means something of its own."""
    return None if value is None else is_true(value)


def check_name(name: str) -> None:
    """Raises: Refusal: 400: no object can have that name, as the API server finds before it looks for one."""
    if "%" in name:
        raise status.bad_request(f"Name parameter invalid: \"{name}\": may not contain '%'")


def selected_name(query: Mapping[str, str]) -> str:
    """The one name that a list or a watch asks for by its fields, "" if any will do."""
    terms = query.get("fieldSelector", "").replace("==", "=").split(",")
    return next((term.removeprefix("metadata.name=") for term in terms if term.startswith("metadata.name=")), "")


def _segments(raw_path: str) -> Sequence[str]:
    """The parts of a path, each decoded by itself, so that no %2f makes two of one.

    Raises: Refusal: 400, 404: one is no UTF-8, empty, or leads elsewhere.
    """
    found = raw_path.removeprefix("/").removesuffix("/").split("/")
    if "%" in raw_path or not raw_path.isascii():
        try:
            found = [unquote_to_bytes(part).decode() for part in found]
        except UnicodeDecodeError:
            raise status.bad_request("the path is not UTF-8") from None
    if any(part in ("", ".", "..") for part in found):
        raise status.no_such_path()
    if any("/" in part or "\0" in part or "\n" in part or "\r" in part for part in found):
        raise status.bad_request("a name in the path may not contain a slash or a line's end")
    return found


_remembered_segments: Final = lru_cache(maxsize=256)(_segments)  # whoever writes or lists does it again and again


def _find(parts: Sequence[str], resources: Resources) -> tuple[Resource, str, str, str, bool] | None:
    """Find the resource of a path, with namespace, name, subresource, and whether it is a watch in the old form."""
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    old_watch = rest[:1] == ["watch"]
    if old_watch:
        rest = rest[1:]
    namespace = ""
    if len(rest) >= 3 and rest[0] == NAMESPACES and resources.find(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        return None
    resource = resources.find(group, version, rest[0])
    if resource is None or (namespace and not resource.kind.namespaced):
        return None
    name, subresource = [*rest[1:], "", ""][:2]
    if name and resource.kind.namespaced and not namespace:
        return None
    return resource, namespace, name, subresource, old_watch
