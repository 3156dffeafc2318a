"""Parses a method and a path into a verb, a resource, a namespace and a name.

Source: apiserver `pkg/endpoints/request/requestinfo.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from eventbus.api import status
from eventbus.api.kube.resources import Resource, Resources
from eventbus.model.kinds import POD

_ONE: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_STATUS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}
NAMESPACES: Final = "namespaces"
#: Longest path to cache, in characters. A path of 32 KB can have ten thousand parts.
_LONGEST_REMEMBERED: Final = 512
#: Verbs that need a namespace, for namespaced kinds.
_IN_NAMESPACES: Final = ("create", "deletecollection")


class RequestInfo(NamedTuple):
    """A request for a resource."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str


def read_request(method: str, raw_path: str, query: Mapping[str, str], resources: Resources) -> RequestInfo:
    """Parse a request. Raises: ApiError: 404: unknown path; 405: wrong method; 400: not UTF-8."""
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
    return RequestInfo(verb, resource, namespace, name, subresource)


def _not_here(namespace: str, name: str, subresource: str) -> status.ApiError:
    """Explain where the kubelet's subresources are available: no API worker reaches the pods' machines."""
    words = f"eventbus logs {name}" + (f" -n {namespace}" if namespace != "default" else "")
    match subresource:
        case "log":
            return status.no_such_path(f"logs lie on the node that runs the pod; type there: {words}")
        case "exec" | "attach" | "portforward":
            problem = f"{subresource} is not served: no API worker reaches the machine of a pod"
            return status.no_such_path(f"{problem}, where its processes and ports are the machine's own")
    return status.no_such_path()


def is_true(value: str | None) -> bool:
    """Parse a boolean of the query as the API server does."""
    return value is not None and value.lower() not in ("0", "false")


def is_true_or_none(value: str | None) -> bool | None:
    """Parse a boolean of the query; None: it is missing."""
    return None if value is None else is_true(value)


def check_name(name: str) -> None:
    """Raises: ApiError: 400: the name is invalid. As in the API server, before the lookup."""
    if "%" in name:
        raise status.bad_request(f"Name parameter invalid: \"{name}\": may not contain '%'")


def selected_name(query: Mapping[str, str]) -> str:
    """Return the name that the field selector of a list or watch requires; "": any name."""
    terms = query.get("fieldSelector", "").replace("==", "=").split(",")
    return next((term.removeprefix("metadata.name=") for term in terms if term.startswith("metadata.name=")), "")


def _segments(raw_path: str) -> Sequence[str]:
    """Split a path, then decode each part, so that a %2f does not split a part.

    Raises: ApiError: 400, 404: a part is not UTF-8, is empty, or is `.` or `..`.
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


_remembered_segments: Final = lru_cache(maxsize=256)(_segments)  # clients repeat their writes and lists


def _find(parts: Sequence[str], resources: Resources) -> tuple[Resource, str, str, str, bool] | None:
    """Return the resource of a path, with namespace, name, subresource, and whether it is an old-style watch."""
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
