"""Answers reviews of a client's own rights and name, and of the user of a token. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import ANY, MASTERS, RULES, User
from eventbus.api.auth.authentication import Authenticator
from eventbus.api.context import API, USER
from eventbus.api.kube.bodies import READ
from eventbus.api.kube.handler import refuse_method, typed_body
from eventbus.api.kube.resources import Resources
from eventbus.api.responses import reply_json

AUTHORIZATION: Final = "authorization.k8s.io/v1"
AUTHENTICATION: Final = "authentication.k8s.io/v1"
#: Non-resource paths that every authenticated user may read.
_PATHS: Final = ("/api", "/apis", "/openapi", "/version", "/version/", "/healthz", "/livez", "/readyz")
#: Paths with readable subpaths.
_TREES: Final = ("/api", "/apis", "/openapi")


class Reviews:
    """Answers reviews. *authenticator* finds the user of a token."""

    def __init__(self, *, resources: Resources, authenticator: Authenticator) -> None:
        self._resources = resources
        self._authenticator = authenticator

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path, handler in (
            (f"/apis/{AUTHORIZATION}/selfsubjectaccessreviews", self.access),
            (f"/apis/{AUTHORIZATION}/selfsubjectrulesreviews", self.rules),
            (f"/apis/{AUTHENTICATION}/selfsubjectreviews", self.myself),
            (f"/apis/{AUTHENTICATION}/tokenreviews", self.token),
        ):
            router.add_post(path, handler)
            router.add_route("*", path, refuse_method)

    async def access(self, request: web.Request) -> web.Response:
        """SelfSubjectAccessReview. Unserved resources are denied, or clients would try to watch them forever."""
        plain = await _read(request, AUTHORIZATION, "SelfSubjectAccessReview")
        spec = _mapping(plain, "spec")
        user = request[USER]
        if spec.get("resourceAttributes") is not None and spec.get("nonResourceAttributes") is not None:
            problem = "Invalid value: cannot be specified in combination with resourceAttributes"
            cause = status.Cause("FieldValueInvalid", problem, "spec.nonResourceAttributes")
            raise status.invalid("", "", [cause], group=AUTHORIZATION.partition("/")[0])
        if "resourceAttributes" in spec and spec["resourceAttributes"] is not None:
            allowed, reason = self._allowed(request, user, _mapping(spec, "resourceAttributes"))
        elif "nonResourceAttributes" in spec and spec["nonResourceAttributes"] is not None:
            attributes = _mapping(spec, "nonResourceAttributes")
            path, verb = str(attributes.get("path", "")), str(attributes.get("verb", ""))
            allowed, reason = MASTERS in user.groups or (verb == "get" and _is_open(path)), ""
        else:
            problem = (
                'Invalid value: "null": exactly one of nonResourceAttributes or resourceAttributes must be specified'
            )
            cause = status.Cause("FieldValueInvalid", problem, "spec.resourceAttributes")
            raise status.invalid("", "", [cause], group=AUTHORIZATION.partition("/")[0])
        result: dict[str, Any] = {"allowed": allowed} | ({"reason": reason} if reason else {})
        return _reviewed(AUTHORIZATION, "SelfSubjectAccessReview", spec, result)

    async def rules(self, request: web.Request) -> web.Response:
        """SelfSubjectRulesReview."""
        plain = await _read(request, AUTHORIZATION, "SelfSubjectRulesReview")
        spec = _mapping(plain, "spec")
        namespace = str(spec.get("namespace") or "")
        if not namespace:
            raise status.bad_request("no namespace on request")
        rules = []
        for grant in request.app[API].access.grants_of(request[USER]):
            if grant.namespace not in ("", namespace):
                continue
            for rule in RULES[grant.role]:
                resources = self._named(rule.resources, rule.excepted)
                if resources:
                    rules.append({"verbs": sorted(rule.verbs), "apiGroups": [ANY], "resources": resources})
        paths = [f"{path}/*" if path in _TREES else path for path in _PATHS]
        result = {
            "resourceRules": rules,
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": paths}],
            "incomplete": False,
        }
        return _reviewed(AUTHORIZATION, "SelfSubjectRulesReview", spec, result)

    async def myself(self, request: web.Request) -> web.Response:
        """SelfSubjectReview."""
        await _read(request, AUTHENTICATION, "SelfSubjectReview")
        result = {"userInfo": _info(request[USER])}
        return _reviewed(AUTHENTICATION, "SelfSubjectReview", None, result)

    async def token(self, request: web.Request) -> web.Response:
        """TokenReview, for users with the right to create tokenreviews."""
        user = request[USER]
        if not request.app[API].access.allowed(user, "create", "tokenreviews"):
            resource = "tokenreviews.authentication.k8s.io"
            what = f'User "{user.name}" cannot create resource "tokenreviews" at the cluster scope'
            raise status.forbidden(resource, "", what)
        spec = _mapping(await _read(request, AUTHENTICATION, "TokenReview"), "spec")
        if not spec.get("token"):
            raise status.bad_request("token is required for TokenReview in authentication")
        token_user = await self._authenticator.token_user(str(spec["token"]))
        result: dict[str, Any] = (
            {"authenticated": True, "user": _info(token_user)} if token_user else {"authenticated": False}
        )
        return _reviewed(AUTHENTICATION, "TokenReview", {}, result)  # the token is not sent back

    def _allowed(self, request: web.Request, user: User, attributes: Mapping[str, Any]) -> tuple[bool, str]:
        verb, group, resource, namespace, subresource, name = (
            _text(attributes, key) for key in ("verb", "group", "resource", "namespace", "subresource", "name")
        )
        if resource == ANY:
            return MASTERS in user.groups and not namespace, ""
        if not self._resources.serves(group, resource):
            return False, f"{resource}{'.' + group if group else ''} is not served here"
        resources = {served.plural: served for served in self._resources if group in (ANY, served.group)}
        if subresource and subresource not in resources[resource].subresources:
            return False, f"{resource}/{subresource} is not served here"
        if resource == "namespaces" and name and verb == "get":
            namespace = name
        return request.app[API].access.allowed(user, verb, resource, namespace), ""

    def _named(self, resources: frozenset[str], excepted: frozenset[str]) -> list[str]:
        """Return the resource names. `*` is expanded if there are exceptions."""
        served = {resource.plural for resource in self._resources}
        if ANY in resources:
            return [ANY] if not excepted & served else sorted(served - excepted)
        return sorted(resources & served)


def _is_open(path: str) -> bool:
    """Return True for a readable non-resource path. A common prefix alone does not match."""
    return path in _PATHS or path.startswith(tuple(f"{tree}/" for tree in _TREES))


def _info(user: User) -> dict[str, Any]:
    return {"username": user.name} | ({"uid": user.uid} if user.uid else {}) | {"groups": list(user.groups)}


async def _read(request: web.Request, version: str, kind: str) -> Mapping[str, Any]:
    """Read the review. Raises: ApiError: 400, 415."""
    plain = (await typed_body(request, READ)).read(kind)
    plain = {} if plain is None else plain
    if not isinstance(plain, Mapping) or (plain.get("kind") or kind, plain.get("apiVersion") or version) != (
        kind,
        version,
    ):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind})")
    return plain


def _text(plain: Mapping[str, Any], key: str) -> str:
    value = plain.get(key) or ""
    if not isinstance(value, str):
        raise status.bad_request(f"{key} must be a string")
    return value


def _mapping(plain: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = plain.get(key) or {}
    if not isinstance(value, Mapping):
        raise status.bad_request(f"{key} must be an object")
    return value


def _reviewed(version: str, kind: str, spec: Mapping[str, Any] | None, result: Mapping[str, Any]) -> web.Response:
    plain: dict[str, Any] = {"kind": kind, "apiVersion": version, "metadata": {"creationTimestamp": None}}
    if spec is not None:
        plain["spec"] = spec
    return reply_json(plain | {"status": result}, code=201)
