"""Get, list, create, update, patch: thin over the store; `deletes` has the rest. Each runs in a thread of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from eventbus.api import status
from eventbus.api.bodies import APPLY_PATCH, JSON_PATCH, MAX_PATCH, STRATEGIC_PATCH, Body
from eventbus.api.config_rules import check_base64
from eventbus.api.desk import Desk
from eventbus.api.json_patch import PatchFailed, PatchTooLarge, apply_patch, read_patch, sort_of
from eventbus.api.namespaces import NAMESPACE, begun, get_namespace, list_namespaces
from eventbus.api.object_bodies import bad_patch, object_of, warnings_of
from eventbus.api.object_rules import check_rules, invalid_object
from eventbus.api.options import WriteOptions
from eventbus.api.request_info import Asked
from eventbus.api.status import Cause
from eventbus.api.strategic_merge import BadDirective, strategic_merge
from eventbus.errors import AlreadyExists, Expired, InvalidEvent, InvalidObject, NotFound
from eventbus.kinds import LEASE, Kind
from eventbus.list_watch import ListOptions, ObjectList
from eventbus.store.changes import AheadOfStore
from eventbus.store.merge_patch import merge
from eventbus.store.repeatable_call import Steps
from eventbus.store.storage import conflict, replaced, with_metadata
from eventbus.store.writer import ObjectWriter


class Written(NamedTuple):
    """The result of a write; *made*: it was not there before. *warnings* are told the client."""

    object: Any
    made: bool = False
    warnings: tuple[str, ...] = ()


def get(desk: Desk, asked: Asked, version: str = "") -> Any:
    """One object, not older than *version*. Raises: NotFound, AheadOfStore."""
    if version not in ("", "0"):
        _expect(desk, asked.resource.kind, version)
    if asked.resource.kind is NAMESPACE:
        return get_namespace(desk, asked.name)
    return desk.objects(asked.resource.kind).get(asked.name, asked.namespace)


def _expect(desk: Desk, kind: Kind[Any], version: str) -> None:
    """Raises: AheadOfStore: nothing is as new as *version* yet."""
    with in_client_versions(desk, kind, version):
        try:
            desk.objects(kind).expect(desk.to_store(kind, version))
        except AheadOfStore:
            raise
        except Expired:  # it is older than what is still known, and what is read is not
            return


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
    """The object that is to be created, and warnings. Raises: Refusal."""
    made, warnings = object_of(asked, body, options)
    if asked.resource.kind is NAMESPACE:
        made = begun(made)
    if made.metadata.resource_version == "0":  # any, and of what is new none
        made = with_metadata(made, resource_version="")
    if asked.name:  # it is applied
        _check_name(asked, made)
    admit(made)
    check_rules(asked, made)
    if asked.resource.kind is NAMESPACE and not made.metadata.generate_name:
        _refuse_used(desk, made.metadata.name)
    return made, warnings


def update(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Replace an object; of events and leases, make it where it is not there. Raises: Refusal, Conflict, NotFound."""
    new, warnings = object_of(asked, body, options)
    _check_name(asked, new)
    metadata = new.metadata
    version = "" if metadata.resource_version == "0" else metadata.resource_version  # 0 is any
    admit(new)

    def change(former: Any) -> Any:
        if asked.resource.kind is LEASE and not version:  # whoever holds it wants to lose to whoever was quicker
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
    """Raises: Refusal: 400, 409, 422. NotFound, unless it is applied, which makes what is not there."""
    return _patch(desk, asked, body, options, admit)


def patch_unread(desk: Desk, asked: Asked, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Patch, for a user who may not read the object: the answer holds its name, uid and version, and what was sent.

    Raises: as `patch`; no refusal shows values of the object.
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
    """*refusal*; of a 422 only the fields, since what is wrong may be the object's and not the patch's."""
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
            get(desk, asked)  # what is not there is told first
        raise
    version = _version(value)
    warnings = warnings_of(asked, value, (), options, patch=True) if isinstance(value, Mapping) else ()
    admitted = False

    def change(former: Any) -> Any:
        nonlocal admitted
        if not admitted:  # once, however often somebody else writes meanwhile
            admit(former)
            admitted = True
        kind = asked.resource.kind
        try:
            plain = applied(kind.encode(former))
            if body.media_type == STRATEGIC_PATCH and isinstance(plain, dict):  # it is of the type, whatever it says
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
    except AlreadyExists:  # between the two of them
        return Written(_modify(desk, asked, options, change, version=version), warnings=warnings)


def writer(desk: Desk, asked: Asked, options: WriteOptions) -> ObjectWriter[Any]:
    """Return what writes objects, or, of a dry run, only checks."""
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
    """*new*, with what this path does not write: the status, or everything but status and metadata."""
    if asked.subresource:
        return replaced(former, status=new.status, metadata=new.metadata)
    if asked.resource.kind is NAMESPACE:  # its finalizers are another path's, which is not served
        new = replaced(new, spec=former.spec)
    return replaced(new, status=former.status) if asked.resource.kind.has_status else new


def _check_name(asked: Asked, new: Any) -> None:
    """Raises: Refusal: 400: it is another object than the one that the path names."""
    given = new.metadata.name
    if given != asked.name:
        raise status.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({asked.name})"
            if given
            else f"the name of the object ({asked.name} based on URL) was undeterminable: name must be provided"
        )


def _patch_of(body: Body) -> Any:
    """The plain value of a patch; null is none at all. Raises: Refusal: 400."""
    try:
        value = body.value()
    except ValueError as error:
        raise status.bad_request(str(error)) from None
    if value is None and body.media_type in (STRATEGIC_PATCH, JSON_PATCH):
        return [] if body.media_type == JSON_PATCH else {}
    return value


def _patcher(media_type: str, value: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that patches an object's JSON.

    Raises: Refusal: 400, it is no patch; 413, it is too large; when called 422, it does not fit.
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
    """The result of a patch, bounded in bytes and in depth. Raises: Refusal: 400, 413, 422."""
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
    """The version that a patch names, "" or "0" for any."""
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    version = str(metadata.get("resourceVersion") or "")
    return "" if version == "0" else version


def _check_same_version(desk: Desk, asked: Asked, held: str, given: str) -> None:
    """Raises: Conflict: a JSON patch has put another version there than the object has."""
    if given not in ("", "0", held) and desk.versions(asked.resource.kind).to_store(given) != held:
        raise conflict(asked.resource.kind, asked.name)


def _refuse_used(desk: Desk, name: str) -> None:
    """A namespace that something lies in may be made: it is then stored. One that is stored may not."""
    try:
        desk.objects(NAMESPACE).get(name)
    except NotFound:
        return
    raise status.already_exists(NAMESPACE.resource, name)
