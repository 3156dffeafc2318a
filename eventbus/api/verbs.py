"""Get, list, create, update, patch, delete: thin over the store. Each runs in a thread of the pool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from eventbus.api import status
from eventbus.api.bodies import APPLY_PATCH, JSON_PATCH, STRATEGIC_PATCH, Body
from eventbus.api.event_rules import event_causes, label_causes
from eventbus.api.json_patch import PatchFailed, apply_patch, read_patch
from eventbus.api.lease_rules import lease_causes
from eventbus.api.namespaces import NAMESPACE, get_namespace, list_namespaces
from eventbus.api.options import WriteOptions, check_propagation
from eventbus.api.request_info import Asked
from eventbus.api.shared import Desk
from eventbus.api.status import Cause
from eventbus.api.strategic_merge import BadDirective, strategic_merge
from eventbus.api.unknown_fields import unknown_fields
from eventbus.errors import AlreadyExists, InvalidEvent, InvalidObject, NotFound
from eventbus.kinds import EVENTS_V1, LEASE, Kind
from eventbus.list_watch import ListOptions, ObjectList
from eventbus.store.changes import AheadOfStore
from eventbus.store.merge_patch import merge
from eventbus.store.storage import replaced
from eventbus.store.writer import ObjectWriter


class Written(NamedTuple):
    """The result of a write; *made*: it was not there before. *warnings* are told the client."""

    object: Any
    made: bool = False
    warnings: tuple[str, ...] = ()


class DeleteOptions(NamedTuple):
    """Of a delete's body."""

    uid: str = ""
    version: str = ""
    grace_s: int | None = None  #: of a Pod; None: its own


def get(desk: Desk, asked: Asked) -> Any:
    """One object. Raises: NotFound."""
    if asked.resource.kind is NAMESPACE:
        return get_namespace(desk, asked.name)
    return desk.objects(asked.resource.kind).get(asked.name, asked.namespace)


def list_objects(desk: Desk, asked: Asked, options: ListOptions) -> ObjectList[Any]:
    """One page. Raises: Expired, InvalidSelector."""
    if asked.resource.kind is NAMESPACE:
        return list_namespaces(desk, options)
    kind = asked.resource.kind
    with in_client_versions(desk, kind, options.resource_version):
        return desk.objects(kind).list(store_version(desk, kind, options))


@contextmanager
def in_client_versions(desk: Desk, kind: Kind[Any], asked: str) -> Iterator[None]:
    """Have a version that is ahead named as the client did. Raises: AheadOfStore, in the place of the store's."""
    try:
        yield
    except AheadOfStore as error:
        raise AheadOfStore(asked, desk.versions(kind).of_list(error.newest)) from None


def store_version(desk: Desk, kind: Kind[Any], options: ListOptions) -> ListOptions:
    """*options* with the version that the store knows for the client's. Raises: Expired."""
    version = desk.to_store(kind, options.resource_version)
    return (
        options if version == options.resource_version else msgspec.structs.replace(options, resource_version=version)
    )


#: Told what is about to be written, or, of a patch, what is to be patched. Raises: Refusal.
Admit = Callable[[Any], None]


def create(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Raises: Refusal: 400, 409, 422, 429."""
    plain, warnings = _read(asked, body, options)
    made = _object_of(asked, plain)
    if asked.name:  # it is applied
        _check_name(asked, made)
    admit(made)
    _check_rules(asked, made)
    if asked.resource.kind is NAMESPACE and not made.metadata.generate_name:
        _refuse_used(desk, made.metadata.name)
    return Written(_objects(desk, asked, options).create(made), made=True, warnings=warnings)


def update(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Replace an object; of events and leases, make it where it is not there. Raises: Refusal, Conflict, NotFound."""
    plain, warnings = _read(asked, body, options)
    new = _object_of(asked, plain)
    _check_name(asked, new)
    metadata = new.metadata
    admit(new)

    def change(former: Any) -> Any:
        return _kept_part(asked, former, new)

    try:
        written = _modify(desk, asked, options, change, version=metadata.resource_version, uid=metadata.uid)
        return Written(written, warnings=warnings)
    except NotFound:
        if not asked.resource.made_by_update or metadata.resource_version or asked.subresource:
            raise
    _check_rules(asked, new)
    return Written(_objects(desk, asked, options).create(new), made=True, warnings=warnings)


def patch(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Raises: Refusal: 400, 409, 422. NotFound, unless it is applied, which makes what is not there."""
    if body.media_type == APPLY_PATCH and not options.manager:
        problem = "Required value: is required for apply patch"
        cause = Cause("FieldValueRequired", problem, "fieldManager")
        raise status.invalid("PatchOptions", "", [cause], group="meta.k8s.io")
    if body.media_type != APPLY_PATCH and options.force:
        cause = Cause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force")
        raise status.invalid("PatchOptions", "", [cause], group="meta.k8s.io")
    try:
        value = body.value()
    except ValueError as error:
        raise status.bad_request(str(error)) from None
    applied = _patcher(body.media_type, value)
    version, uid = _preconditions(value)
    warnings = _warnings(asked, value, (), options) if isinstance(value, Mapping) else ()
    admitted = False

    def change(former: Any) -> Any:
        nonlocal admitted
        if not admitted:  # once, however often somebody else writes meanwhile
            admit(former)
            admitted = True
        kind = asked.resource.kind
        try:
            new = kind.decode(applied(kind.encode(former)))
        except (InvalidEvent, InvalidObject) as error:
            shown = msgspec.json.encode(value)[:200].decode("utf-8", "replace")
            cause = Cause("FieldValueInvalid", f'Invalid value: "{shown}": {error}', "patch")
            raise status.invalid("", "", [cause]) from None
        _check_name(asked, new)
        if new.metadata.namespace != asked.namespace:
            raise status.bad_request("the namespace of the object does not match the namespace on the request")
        return _kept_part(asked, former, new)

    try:
        return Written(_modify(desk, asked, options, change, version=version, uid=uid), warnings=warnings)
    except NotFound:
        if body.media_type != APPLY_PATCH or asked.subresource:
            raise
    try:
        return create(desk, asked, body, options, admit)
    except AlreadyExists:  # between the two of them
        return Written(_modify(desk, asked, options, change, version=version, uid=uid), warnings=warnings)


def delete(desk: Desk, asked: Asked, preconditions: DeleteOptions, options: WriteOptions) -> dict[str, Any]:
    """The Status of success. Raises: NotFound. Refusal: 409, it is another object than the one that was meant."""
    found = get(desk, asked)
    uid, version = found.metadata.uid, found.metadata.resource_version
    if preconditions.uid and preconditions.uid != uid:
        raise _another(
            asked,
            f"the UID in the precondition ({preconditions.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
        )
    if preconditions.version and desk.versions(asked.resource.kind).to_store(preconditions.version) != version:
        raise _another(
            asked,
            f"the ResourceVersion in the precondition ({preconditions.version}) does not match the ResourceVersion in "
            "record. The object might have been modified",
        )
    if not (preconditions.uid or preconditions.version):
        version = ""
    # With the version that was compared: nobody may take its place meanwhile.
    _objects(desk, asked, options).delete(asked.name, asked.namespace, version=version, grace_s=preconditions.grace_s)
    details = status.named(asked.resource.label, asked.name, uid=uid)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _another(asked: Asked, problem: str) -> status.Refusal:
    kind = asked.resource.kind.name
    message = f'Operation cannot be fulfilled on {kind} "{asked.name}": {problem}'
    return status.Refusal(409, "Conflict", message, details={"name": asked.name, "kind": kind})


def delete_collection(
    desk: Desk, asked: Asked, options: ListOptions, writing: WriteOptions, grace_s: int | None = None
) -> ObjectList[Any]:
    """Delete the objects of a namespace or of all, and answer what was deleted."""
    found = list_objects(desk, asked, options)
    objects = _objects(desk, asked, writing)
    for item in found.items:
        try:
            objects.delete(item.metadata.name, item.metadata.namespace, grace_s=grace_s)
        except NotFound:
            continue  # somebody else was quicker
    return found


def read_delete_options(body: Body | None, query: Mapping[str, str]) -> tuple[DeleteOptions, tuple[str, ...]]:
    """The preconditions, grace time and dryRun of a delete's body, or of its query. Raises: Refusal: 400, 422."""
    plain = body.read("DeleteOptions") if body is not None and body.data.strip() else query
    if not isinstance(plain, Mapping):
        raise status.bad_request("the body of a delete must be DeleteOptions")
    check_propagation(plain.get("propagationPolicy"), plain.get("orphanDependents"))
    given = plain.get("preconditions") or {}
    dry_run = (plain.get("dryRun") or ()) if plain is not query else ()
    if not isinstance(given, Mapping) or not isinstance(dry_run, list | tuple):
        raise status.bad_request("preconditions must be an object, and dryRun a list")
    wanted = DeleteOptions(str(given.get("uid") or ""), str(given.get("resourceVersion") or ""), _grace_s(plain))
    return wanted, tuple(map(str, dry_run))


def _grace_s(plain: Mapping[str, Any]) -> int | None:
    """Raises: Refusal: 400."""
    given = plain.get("gracePeriodSeconds")
    if isinstance(given, str) and _SECONDS.fullmatch(given):  # of a query
        return int(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and abs(given) < 1 << 31):
        return given
    raise status.bad_request(f"gracePeriodSeconds: a number of seconds is wanted, not {str(given)[:40]!r}")


def _objects(desk: Desk, asked: Asked, options: WriteOptions) -> ObjectWriter[Any]:
    objects = desk.objects(asked.resource.kind)
    return objects.dry_run() if options.dry_run else objects


def _modify(
    desk: Desk, asked: Asked, options: WriteOptions, change: Callable[[Any], Any], *, version: str, uid: str
) -> Any:
    def checked(former: Any) -> Any:
        new = change(former)
        _check_rules(asked, new, former)
        return new

    objects = _objects(desk, asked, options)
    known = desk.versions(asked.resource.kind).to_store(version)
    return objects.modify(asked.name, checked, asked.namespace, version=known, uid=uid)


def _kept_part(asked: Asked, former: Any, new: Any) -> Any:
    """*new*, with what this path does not write: the status, or everything but status and metadata."""
    if asked.subresource:
        return replaced(former, status=new.status, metadata=new.metadata)
    return replaced(new, status=former.status) if asked.resource.kind.has_status else new


def _read(asked: Asked, body: Body, options: WriteOptions) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The plain object of a body, with its kind, version and namespace as they must be. Raises: Refusal: 400."""
    kind = asked.resource.kind
    plain = body.read(kind.name)
    if not isinstance(plain, Mapping):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind.name})")
    version, name = plain.get("apiVersion") or kind.api_version, plain.get("kind") or kind.name
    if name != kind.name and version == kind.api_version:
        text = f'{name} in version "{kind.api_version.rpartition("/")[2]}" cannot be handled as a {kind.name}'
        raise status.bad_request(text[:400])
    if version != kind.api_version:
        expected = f"the expected API version ({kind.api_version})"
        raise status.bad_request(f"the API version in the data ({str(version)[:80]}) does not match {expected}")
    metadata = plain.get("metadata", {})
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, Mapping):
        raise status.bad_request(f"{kind.name}: metadata must be an object")
    given = metadata.get("namespace") or asked.namespace
    if given != asked.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    whole = dict(plain) | {"metadata": dict(metadata) | ({"namespace": given} if given else {})}
    return whole, _warnings(asked, plain, tuple(body.doubles()) if options.validation in _TELLING else (), options)


_TELLING = ("Strict", "Warn")
_SECONDS = re.compile(r"-?[0-9]{1,9}")


def _warnings(
    asked: Asked, plain: Mapping[str, Any], doubles: tuple[str, ...], options: WriteOptions
) -> tuple[str, ...]:
    """Of fields that nobody knows. Raises: Refusal: 400, where they are refused."""
    if options.validation not in _TELLING:
        return ()
    found = [f'unknown field "{path}"' for path in unknown_fields(asked.resource.kind, plain)]
    found += [f'duplicate field "{key}"' for key in doubles]
    if found and options.validation == "Strict":
        kind = asked.resource.kind
        problem = f"strict decoding error: {', '.join(found)}"
        version = kind.api_version.rpartition("/")[2]
        raise status.bad_request(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {problem}')
    return tuple(found)


def _object_of(asked: Asked, plain: Mapping[str, Any]) -> Any:
    """Raises: Refusal: 400: a field has the wrong type."""
    kind = asked.resource.kind
    try:
        found = kind.decode(plain)
    except (InvalidEvent, InvalidObject) as error:
        version = kind.api_version.rpartition("/")[2]
        message = f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {error}'
        raise status.bad_request(message) from None
    return found


def _check_name(asked: Asked, new: Any) -> None:
    """Raises: Refusal: 400: it is another object than the one that the path names."""
    given = new.metadata.name
    if given != asked.name:
        raise status.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({asked.name})"
            if given
            else "name must be provided"
        )


def _check_rules(asked: Asked, new: Any, former: Any = None) -> None:
    """Check what the API server checks besides. Raises: Refusal: 422, with all that is wrong."""
    causes: list[Cause] = []
    if not (new.metadata.name or new.metadata.generate_name):
        causes.append(Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name"))
    causes += label_causes(new.metadata.labels)
    if asked.resource.is_events:
        causes += event_causes(new, new_api=asked.resource.kind is EVENTS_V1, former=former)
    elif asked.resource.kind is LEASE:
        causes += lease_causes(new.spec)
    if causes:
        raise status.invalid(asked.resource.kind.name, new.metadata.name, causes)


def _patcher(media_type: str, value: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that patches an object's JSON.

    Raises: Refusal: 400, it is no patch; when called 422, it does not fit.
    """
    if media_type == JSON_PATCH:
        try:
            steps = read_patch(value)
        except ValueError as error:
            raise status.bad_request(str(error)) from None
        return lambda plain: _fitting(lambda: apply_patch(plain, steps))
    if not isinstance(value, Mapping):
        raise status.bad_request("json: cannot unmarshal into Go value of type map[string]interface {}")
    if media_type in (STRATEGIC_PATCH, APPLY_PATCH):
        return lambda plain: _fitting(lambda: strategic_merge(plain, value))
    return lambda plain: _fitting(lambda: merge(plain, value))


def _fitting(apply: Callable[[], Any]) -> Any:
    try:
        return apply()
    except PatchFailed:
        message = "the server rejected our request due to an error in our request"
        raise status.Refusal(422, "Invalid", message, details={}) from None
    except (BadDirective, RecursionError, TypeError) as error:
        raise status.bad_request(f"the patch cannot be applied: {error}") from None


def _preconditions(value: Any) -> tuple[str, str]:
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "", ""
    return str(metadata.get("resourceVersion") or ""), str(metadata.get("uid") or "")


def _refuse_used(desk: Desk, name: str) -> None:
    """A namespace that something lies in may be made: it is then stored. One that is stored may not."""
    try:
        desk.objects(NAMESPACE).get(name)
    except NotFound:
        return
    raise status.already_exists(NAMESPACE.resource, name)


__all__ = [
    "DeleteOptions",
    "Written",
    "create",
    "delete",
    "delete_collection",
    "get",
    "list_objects",
    "patch",
    "read_delete_options",
    "store_version",
    "update",
]
