"""Discovery: versions, groups and resources, in both forms that clients ask for."""

from __future__ import annotations

import hashlib
import platform
import re
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.reviews import AUTHENTICATION, AUTHORIZATION
from eventbus.api.kube.handler import refuse_method
from eventbus.api.kube.negotiation import clauses
from eventbus.api.kube.request_info import is_true
from eventbus.api.kube.resources import STATUS_VERBS, VERBS, Resource, Resources
from eventbus.api.responses import reply_json

#: The version of the API server that we imitate; some clients warn about others than 1.28 to 1.35.
MAJOR, MINOR = "1", "35"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
#: Resources that kubectl lists without discovery, before it reports an unknown kind or when it describes a
#: namespace. The lists are empty.
_NONE: Final = (
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("/api/v1/namespaces/{namespace}/resourcequotas", "v1", "ResourceQuota"),
    ("/api/v1/namespaces/{namespace}/limitranges", "v1", "LimitRange"),
)
#: Of reviews: they can be made, and nothing else.
_REVIEWS: Final = {
    AUTHORIZATION: (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ),
    AUTHENTICATION: (("selfsubjectreviews", "SelfSubjectReview"), ("tokenreviews", "TokenReview")),
}


class Discovery:
    """Answers /version, /api and /apis. The answers never change while the worker runs, so they are encoded once."""

    def __init__(self, *, resources: Resources, build: str) -> None:
        self._resources = resources
        self._build = build
        self._groups = _groups(resources)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Serve each document with and without a slash at the end: kr8s asks with one."""
        # kr8s asks with a slash at the end.
        for path, handler in (
            ("/version", self.version),
            ("/api", self.core),
            ("/apis", self.groups),
            ("/api/{version}", self.resources),
            ("/apis/{group}", self.group),
            ("/apis/{group}/{version}", self.resources),
        ):
            router.add_get(path, handler, allow_head=False)
            router.add_get(path + "/", handler, allow_head=False)
        for path, version, kind in _NONE:
            router.add_get(path, partial(_none, version=version, kind=kind), allow_head=False)
        # After the others, and as patterns like them: the router finds a path without patterns first.
        served = [
            f"/apis/{{group:{re.escape(name)}}}/{{version:{version}}}"
            for name, versions in self._groups.items()
            if name
            for version in versions
        ]
        for path in ("/version", "/api", "/apis", "/api/{version:v1}", *served):
            router.add_route("*", path, refuse_method)
            router.add_route("*", path + "/", refuse_method)

    async def version(self, _request: web.Request) -> web.Response:
        """Answer `/version` as client-go reads it; *build* is in `gitVersion`."""
        return reply_json(
            {
                "major": MAJOR,
                "minor": MINOR,
                "gitVersion": f"v{MAJOR}.{MINOR}.0+eventbus-{self._build.replace('+', '.')}",
                "gitCommit": "",
                "gitTreeState": "",
                "buildDate": "1970-01-01T00:00:00Z",
                "goVersion": "",
                "compiler": platform.python_implementation(),
                "platform": f"{platform.system().lower()}/{_machine()}",
            }
        )

    async def core(self, request: web.Request) -> web.Response:
        """Answer `/api`: the versions of the core group, or all its kinds for aggregated discovery."""
        if _wants_aggregated(request):
            return self._aggregated(request, core=True)
        versions = self._resources.groups()[""]
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": request.host}]
        return reply_json({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": addresses})

    async def groups(self, request: web.Request) -> web.Response:
        """Answer `/apis`: all other groups, or all their kinds for aggregated discovery."""
        if _wants_aggregated(request):
            return self._aggregated(request, core=False)
        listed = [_group(name, versions) for name, versions in self._groups.items() if name]
        return reply_json({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})

    async def group(self, request: web.Request) -> web.Response:
        """Answer one group and its versions. Raises: HTTPNotFound."""
        name = request.match_info["group"]
        if name not in self._groups:
            raise web.HTTPNotFound
        return reply_json({"kind": "APIGroup", "apiVersion": "v1"} | _group(name, self._groups[name]))

    async def resources(self, request: web.Request) -> web.Response:
        """Answer the kinds of one group and version. Raises: HTTPNotFound."""
        group, version = request.match_info.get("group", ""), request.match_info["version"]
        if version not in self._groups.get(group, ()):
            raise web.HTTPNotFound
        name = f"{group}/{version}" if group else version
        listed = [entry for one in self._resources.in_version(group, version) for entry in _plain(one)]
        listed += [_review(plural, kind) for plural, kind in _REVIEWS.get(name, ())]
        return reply_json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed})

    def _aggregated(self, request: web.Request, *, core: bool) -> web.Response:
        items = [
            {"metadata": {"name": name} if name else {}, "versions": [self._version(name, one) for one in versions]}
            for name, versions in self._groups.items()
            if core is not bool(name)
        ]
        plain = {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }
        data = msgspec.json.encode(plain) + b"\n"
        etag = f'"{hashlib.sha256(data).hexdigest().upper()}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        headers = {"ETag": etag, "Content-Type": _AGGREGATED, "Cache-Control": "public", "Vary": "Accept"}
        return web.Response(body=data, headers=headers)

    def _version(self, group: str, version: str) -> dict[str, Any]:
        resources = [_aggregate(resource) for resource in self._resources.in_version(group, version)]
        for plural, kind in _REVIEWS.get(f"{group}/{version}", ()):
            response = {"group": group, "version": version, "kind": kind}
            resources.append(
                {
                    "resource": plural,
                    "responseKind": response,
                    "scope": "Cluster",
                    "singularResource": kind.lower(),
                    "verbs": ["create"],
                }
            )
        return {"version": version, "resources": resources, "freshness": "Current"}


def _wants_aggregated(request: web.Request) -> bool:
    """Return True for v2 only: kubectl before 1.30 expects another version, and reads v2 as an empty list."""
    wanted = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
    return any(
        clause.media_type == "application/json" and wanted.items() <= clause.parameters.items()
        for clause in clauses(request.headers.get("Accept", ""))
    )


def _groups(resources: Resources) -> dict[str, list[str]]:
    groups = resources.groups()
    for name in _REVIEWS:
        group, _, version = name.partition("/")
        groups.setdefault(group, []).append(version)
    return groups


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": named, "preferredVersion": named[0]}


def _plain(resource: Resource) -> list[dict[str, Any]]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    below = [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": list(STATUS_VERBS),
        }
        for name in resource.subresources
    ]
    return [entry, *below]


def _review(plural: str, kind: str) -> dict[str, Any]:
    return {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}


def _aggregate(resource: Resource) -> dict[str, Any]:
    kind = resource.kind
    response = {"group": resource.group, "version": resource.version, "kind": kind.name}
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": response,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.name.lower(),
        "verbs": list(VERBS),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": response, "verbs": list(STATUS_VERBS)}
            for name in resource.subresources
        ]
    return entry


async def _none(request: web.Request, *, version: str, kind: str) -> web.Response:
    """Answer an empty list. Raises: ApiError: 404: there is nothing to watch."""
    if is_true(request.query.get("watch")):
        raise status.no_such_path()
    return reply_json({"kind": f"{kind}List", "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": []})


def _machine() -> str:
    """The processor, as Go names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
