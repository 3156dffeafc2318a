"""Get, list, create, update and patch: a thin layer over the store, run in the pool. For deletes see `deletes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from eventbus.api import status
from eventbus.api.kube.bodies import (
    APPLY_PATCH,
    JSON_PATCH,
    MAX_PATCH,
    STRATEGIC_PATCH,
    Body,
    bad_patch,
    object_of,
    warnings_of,
)
from eventbus.api.kube.namespaces import NAMESPACE, begun, get_namespace, list_namespaces
from eventbus.api.kube.options import WriteOptions
from eventbus.api.kube.patches import (
    BadDirective,
    PatchFailed,
    PatchTooLarge,
    apply_patch,
    read_patch,
    sort_of,
    strategic_merge,
)
from eventbus.api.kube.request_info import Asked
from eventbus.api.kube.validation import check_base64, check_rules, invalid_object
from eventbus.api.status import Cause
from eventbus.api.thread_context import Desk
from eventbus.errors import AlreadyExists, Expired, InvalidEvent, InvalidObject, NotFound
from eventbus.model.encoding.object_json import merge
from eventbus.model.kinds import LEASE, Kind
from eventbus.model.list_watch import ListOptions, ObjectList
from eventbus.store.changes import AheadOfStore
from eventbus.store.repeatable_call import Steps
from eventbus.store.storage import conflict, replaced, with_metadata
from eventbus.store.writer import ObjectWriter


class Written(NamedTuple):
    """The result of a write. *made*: the object is new. *warnings* are sent to the client."""

    object: Any
    made: bool = False
    warnings: tuple[str, ...] = ()


def get(desk: Desk, asked: Asked, version: str = "") -> Any:
    """Return an object, not older than *version*. Raises: NotFound, AheadOfStore."""
    if version not in ("", "0"):
        _expect(desk, asked.resource.kind, version)
    if asked.resource.kind is NAMESPACE:
        return get_namespace(desk, asked.name)
    return desk.objects(asked.resource.kind).get(asked.name, asked.namespace)


def _expect(desk: Desk, kind: Kind[Any], version: str) -> None:
    """Raises: AheadOfStore: the store has not reached *version*."""
    with in_client_versions(desk, kind, version):
        try:
            desk.objects(kind).expect(desk.to_store(kind, version))
        except AheadOfStore:
            raise
        except Expired:  # *version* is older than the known history, but the object read is current
            return


def list_objects(desk: Desk, asked: Asked, options: ListOptions) -> ObjectList[Any]:
    """Return one page. Raises: Expired, InvalidSelector."""
    if asked.resource.kind is NAMESPACE:
        return list_namespaces(desk, options)
    kind = asked.resource.kind
    with in_client_versions(desk, kind, options.resource_version):
        return desk.objects(kind).list(store_version(desk, kind, options))


@contextmanager
def in_client_versions(desk: Desk, kind: Kind[Any], asked: str) -> Iterator[None]:
    """Convert the store's AheadOfStore to client versions. Raises: AheadOfStore."""
    try:
        yield
    except AheadOfStore as error:
        raise AheadOfStore(asked, desk.versions(kind).of_list(error.newest)) from None


def store_version(desk: Desk, kind: Kind[Any], options: ListOptions) -> ListOptions:
    """Return *options* with the client's version converted to the store's. Raises: Expired."""
    version = desk.to_store(kind, options.resource_version)
    return (
        options if version == options.resource_version else msgspec.structs.replace(options, resource_version=version)
    )


#: Called with the object to be written, or, for a patch, the object to be patched. Raises: Refusal.
Admit = Callable[[Any], None]


def create(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Raises: Refusal: 400, 409, 422, 429."""
    made, warnings = _to_create(desk, asked, body, options, admit)
    return Written(writer(desk, asked, options).create(made), made=True, warnings=warnings)


def creating(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Steps[Written]:
    """Create an event, in steps, on a bus of one partition. Raises: as `create`."""
    made, warnings = _to_create(desk, asked, body, options, admit)
    stored = yield from desk.objects(asked.resource.kind).creating(made)
    return Written(stored, made=True, warnings=warnings)


def _to_create(
    desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit
) -> tuple[Any, tuple[str, ...]]:
    """Return the object to create, and warnings. Raises: Refusal."""
    made, warnings = object_of(asked, body, options)
    if asked.resource.kind is NAMESPACE:
        made = begun(made)
    if made.metadata.resource_version == "0":  # "0" is any version; a new object has none
        made = with_metadata(made, resource_version="")
    if asked.name:  # an apply
        _check_name(asked, made)
    admit(made)
    check_rules(asked, made)
    if asked.resource.kind is NAMESPACE and not made.metadata.generate_name:
        _refuse_used(desk, made.metadata.name)
    return made, warnings


def update(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Replace an object; create missing events and leases. Raises: Refusal, Conflict, NotFound."""
    new, warnings = object_of(asked, body, options)
    _check_name(asked, new)
    metadata = new.metadata
    version = "" if metadata.resource_version == "0" else metadata.resource_version  # "0" is any version
    admit(new)

    def change(former: Any) -> Any:
        if asked.resource.kind is LEASE and not version:  # a holder without a version could overwrite a faster one
            problem = "Invalid value: 0x0: must be specified for an update"
            cause = Cause("FieldValueInvalid", problem, "metadata.resourceVersion")
            raise status.invalid(LEASE.plural, asked.name, [cause], group=asked.resource.group)
        return _kept_part(asked, former, new)

    try:
        written = _modify(desk, asked, options, change, version=version, uid=metadata.uid)
        return Written(written, warnings=warnings)
    except NotFound:
        if not asked.resource.made_by_update or asked.subresource:
            raise
        if metadata.uid:
            problem = f"Precondition failed: UID in precondition: {metadata.uid}, UID in object meta: "
            message = f'Operation cannot be fulfilled on {asked.resource.label} "{asked.name}": {problem}'
            details = status.named(asked.resource.label, asked.name)
            raise status.Refusal(409, "Conflict", message, details=details) from None
    check_rules(asked, new)
    made = with_metadata(new, resource_version="")
    return Written(writer(desk, asked, options).create(made), made=True, warnings=warnings)


def patch(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Raises: Refusal: 400, 409, 422. NotFound, except for an apply, which creates a missing object."""
    return _patch(desk, asked, body, options, admit)


def patch_unread(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Patch for a user without read access: the answer has only name, uid, version, and the fields of the patch.

    Raises: as `patch`, but no error shows values of the object.
    """
    try:
        written = _patch(desk, asked, body, options, admit)
    except status.Refusal as refusal:
        raise _without_values(asked, refusal) from None
    except (InvalidEvent, InvalidObject) as error:
        raise _without_values(asked, status.refusal_of(error)) from None
    if written.made:
        return written
    found = written.object.metadata
    sent = asked.resource.kind.decode(_patcher(body.media_type, _patch_of(body))({}))
    shown = with_metadata(
        sent, name=found.name, namespace=found.namespace, uid=found.uid, resource_version=found.resource_version
    )
    return written._replace(object=shown)


def _without_values(asked: Asked, refusal: status.Refusal) -> status.Refusal:
    """Return *refusal*; for a 422 with only the fields, because its values may be the object's."""
    if refusal.code != 422:
        return refusal
    fields = [cause["field"] for cause in (refusal.details or {}).get("causes", ())] or ["patch"]
    problem = "Invalid value: the patch does not fit the object, whose values you may not read"
    return invalid_object(asked, asked.name, [Cause("FieldValueInvalid", problem, field) for field in fields])


def _patch(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    try:
        value = _patch_of(body)
        applied = _patcher(body.media_type, value)
    except status.Refusal:
        if body.media_type != APPLY_PATCH:
            get(desk, asked)  # a missing object is reported first
        raise
    version = _version(value)
    warnings = warnings_of(asked, value, (), options, patch=True) if isinstance(value, Mapping) else ()
    admitted = False

    def change(former: Any) -> Any:
        nonlocal admitted
        if not admitted:  # once, even if concurrent writes cause retries
            admit(former)
            admitted = True
        kind = asked.resource.kind
        try:
            plain = applied(kind.encode(former))
            if body.media_type == STRATEGIC_PATCH and isinstance(plain, dict):  # the result keeps its type
                plain |= {"kind": kind.name, "apiVersion": kind.api_version}
            new = kind.decode(plain)
            check_base64(new)
        except (InvalidEvent, InvalidObject) as error:
            raise bad_patch(value, str(error)) from None
        _check_name(asked, new)
        if new.metadata.namespace != asked.namespace:
            given = f"the namespace of the object ({new.metadata.namespace})"
            raise status.bad_request(f"{given} does not match the namespace on the request ({asked.namespace})")
        if new.metadata.uid not in ("", former.metadata.uid):
            problem = f'Invalid value: "{new.metadata.uid}": field is immutable'
            raise invalid_object(asked, asked.name, [Cause("FieldValueInvalid", problem, "metadata.uid")])
        if body.media_type == JSON_PATCH:
            _check_same_version(desk, asked, former.metadata.resource_version, new.metadata.resource_version)
        return _kept_part(asked, former, new)

    try:
        return Written(_modify(desk, asked, options, change, version=version), warnings=warnings)
    except NotFound:
        if body.media_type != APPLY_PATCH or asked.subresource:
            raise
    try:
        return create(desk, asked, body, options, admit)
    except AlreadyExists:  # created between the two calls
        return Written(_modify(desk, asked, options, change, version=version), warnings=warnings)


def writer(desk: Desk, asked: Asked, options: WriteOptions) -> ObjectWriter[Any]:
    """Return the writer; for a dry run it only validates."""
    objects = desk.objects(asked.resource.kind)
    return objects.dry_run() if options.dry_run else objects


def _modify(
    desk: Desk, asked: Asked, options: WriteOptions, change: Callable[[Any], Any], *, version: str, uid: str = ""
) -> Any:
    def checked(former: Any) -> Any:
        new = change(former)
        check_rules(asked, new, former)
        return new

    objects = writer(desk, asked, options)
    known = desk.versions(asked.resource.kind).to_store(version)
    return objects.modify(asked.name, checked, asked.namespace, version=known, uid=uid)


def _kept_part(asked: Asked, former: Any, new: Any) -> Any:
    """Return *new* with the former fields that this path must not write.

    These are the status, or, for the status path, all fields except status and metadata.
    """
    if asked.subresource:
        return replaced(former, status=new.status, metadata=new.metadata)
    if asked.resource.kind is NAMESPACE:  # only another path, which is not served, writes its finalizers
        new = replaced(new, spec=former.spec)
    return replaced(new, status=former.status) if asked.resource.kind.has_status else new


def _check_name(asked: Asked, new: Any) -> None:
    """Raises: Refusal: 400: the name differs from the name in the path."""
    given = new.metadata.name
    if given != asked.name:
        raise status.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({asked.name})"
            if given
            else f"the name of the object ({asked.name} based on URL) was undeterminable: name must be provided"
        )


def _patch_of(body: Body) -> Any:
    """Return the plain value of a patch; null is an empty patch. Raises: Refusal: 400."""
    try:
        value = body.value()
    except ValueError as error:
        raise status.bad_request(str(error)) from None
    if value is None and body.media_type in (STRATEGIC_PATCH, JSON_PATCH):
        return [] if body.media_type == JSON_PATCH else {}
    return value


def _patcher(media_type: str, value: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that patches an object's JSON.

    Raises: Refusal: 400: not a patch; 413: too large; from the function, 422: it does not fit the object.
    """
    if media_type == JSON_PATCH:
        try:
            steps = read_patch(value)
        except PatchFailed:
            raise _unfit() from None
        except PatchTooLarge as error:
            raise status.too_much(str(error)) from None
        except ValueError as error:
            raise status.bad_request(str(error)) from None
        return lambda plain: _fitting(lambda: apply_patch(plain, steps))
    if not isinstance(value, Mapping):
        text = f"json: cannot unmarshal {sort_of(value)} into Go value of type map[string]interface {{}}"
        raise status.bad_request(text)
    if media_type in (STRATEGIC_PATCH, APPLY_PATCH):
        return lambda plain: _fitting(lambda: strategic_merge(plain, value))
    return lambda plain: _fitting(lambda: merge(plain, value))


def _fitting(apply: Callable[[], Any]) -> Any:
    """Apply a patch, and limit the result in bytes and depth. Raises: Refusal: 400, 413, 422."""
    try:
        result = apply()
        size = len(msgspec.json.encode(result))
    except PatchFailed:
        raise _unfit() from None
    except PatchTooLarge as error:
        raise status.too_much(str(error)) from None
    except (BadDirective, RecursionError, TypeError) as error:
        raise status.bad_request(f"the patch cannot be applied: {error}") from None
    if size > MAX_PATCH:
        raise status.too_much(f"the result of a patch may have {MAX_PATCH} bytes, this one has {size}")
    return result


def _unfit() -> status.Refusal:
    message = "the server rejected our request due to an error in our request"
    return status.Refusal(422, "Invalid", message, details={})


def _version(value: Any) -> str:
    """Return the version in a patch; "" is any version."""
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    version = str(metadata.get("resourceVersion") or "")
    return "" if version == "0" else version


def _check_same_version(desk: Desk, asked: Asked, held: str, given: str) -> None:
    """Raises: Conflict: a JSON patch sets a version that differs from the object's."""
    if given not in ("", "0", held) and desk.versions(asked.resource.kind).to_store(given) != held:
        raise conflict(asked.resource.kind, asked.name)


def _refuse_used(desk: Desk, name: str) -> None:
    """Raises: Refusal: 409: the namespace is stored. One that is only in use may be created."""
    try:
        desk.objects(NAMESPACE).get(name)
    except NotFound:
        return
    raise status.already_exists(NAMESPACE.resource, name)
