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
from eventbus.api.kube.patches import apply_patch, read_patch, sort_of, strategic_merge
from eventbus.api.kube.request_info import RequestInfo
from eventbus.api.kube.validation import check_base64, check_rules, invalid_object
from eventbus.api.status import Cause
from eventbus.api.thread_context import ThreadContext
from eventbus.errors import AlreadyExists, Expired, InvalidEvent, InvalidObject, NotFound
from eventbus.model.encoding.object_json import merge
from eventbus.model.kinds import LEASE, Kind
from eventbus.model.list_watch import ListOptions, ObjectList
from eventbus.store.calls import Call
from eventbus.store.changes import AheadOfStore
from eventbus.store.storage import conflict, replaced, with_metadata
from eventbus.store.writer import ObjectWriter


class Written(NamedTuple):
    """The result of a write. *created*: the object is new. *warnings* are sent to the client."""

    object: Any
    created: bool = False
    warnings: tuple[str, ...] = ()


def get(context: ThreadContext, info: RequestInfo, version: str = "") -> Any:
    """Return an object, not older than *version*. Raises: NotFound, AheadOfStore."""
    if version not in ("", "0"):
        _expect(context, info.resource.kind, version)
    if info.resource.kind is NAMESPACE:
        return get_namespace(context, info.name)
    return context.objects(info.resource.kind).get(info.name, info.namespace)


def _expect(context: ThreadContext, kind: Kind[Any], version: str) -> None:
    """Raises: AheadOfStore: the store has not reached *version*."""
    with in_client_versions(context, kind, version):
        try:
            context.objects(kind).expect(context.to_store(kind, version))
        except AheadOfStore:
            raise
        except Expired:  # *version* is older than the known history, but the object read is current
            return


def list_objects(context: ThreadContext, info: RequestInfo, options: ListOptions) -> ObjectList[Any]:
    """Return one page. Raises: Expired, InvalidSelector."""
    if info.resource.kind is NAMESPACE:
        return list_namespaces(context, options)
    kind = info.resource.kind
    with in_client_versions(context, kind, options.resource_version):
        return context.objects(kind).list(store_version(context, kind, options))


@contextmanager
def in_client_versions(context: ThreadContext, kind: Kind[Any], info: str) -> Iterator[None]:
    """Convert the store's AheadOfStore to client versions. Raises: AheadOfStore."""
    try:
        yield
    except AheadOfStore as error:
        raise AheadOfStore(info, context.versions(kind).of_list(error.newest)) from None


def store_version(context: ThreadContext, kind: Kind[Any], options: ListOptions) -> ListOptions:
    """Return *options* with the client's version converted to the store's. Raises: Expired."""
    version = context.to_store(kind, options.resource_version)
    return (
        options if version == options.resource_version else msgspec.structs.replace(options, resource_version=version)
    )


#: Called with the object to be written, or, for a patch, the object to be patched. Raises: ApiError.
Admit = Callable[[Any], None]


def create(context: ThreadContext, info: RequestInfo, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Raises: ApiError: 400, 409, 422, 429."""
    new, warnings = _to_create(context, info, body, options, admit)
    return Written(writer(context, info, options).create(new), created=True, warnings=warnings)


def creation(
    context: ThreadContext, info: RequestInfo, body: Body, options: WriteOptions, admit: Admit
) -> Call[Written]:
    """Return the call that creates an event, for a bus of one partition. Raises: as `create`."""
    new, warnings = _to_create(context, info, body, options, admit)
    call = context.objects(info.resource.kind).creation(new)
    return Call(call.command, lambda reply: Written(call.result(reply), created=True, warnings=warnings))


def _to_create(
    context: ThreadContext, info: RequestInfo, body: Body, options: WriteOptions, admit: Admit
) -> tuple[Any, tuple[str, ...]]:
    """Return the object to create, and warnings. Raises: ApiError."""
    new, warnings = object_of(info, body, options)
    if info.resource.kind is NAMESPACE:
        new = begun(new)
    if new.metadata.resource_version == "0":  # "0" is any version; a new object has none
        new = with_metadata(new, resource_version="")
    if info.name:  # an apply
        _check_name(info, new)
    if options.author:
        new = options.author.signed(info.verb, info.resource.kind, new)
        options.author.check_count(context, info.resource.kind, new)
    admit(new)
    check_rules(info, new)
    if info.resource.kind is NAMESPACE and not new.metadata.generate_name:
        _refuse_used(context, new.metadata.name)
    return new, warnings


def update(context: ThreadContext, info: RequestInfo, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Replace an object; create missing events and leases. Raises: ApiError, Conflict, NotFound."""
    new, warnings = object_of(info, body, options)
    _check_name(info, new)
    metadata = new.metadata
    version = "" if metadata.resource_version == "0" else metadata.resource_version  # "0" is any version
    admit(new)

    def change(former: Any) -> Any:
        if info.resource.kind is LEASE and not version:  # a holder without a version could overwrite a faster one
            problem = "Invalid value: 0x0: must be specified for an update"
            cause = Cause("FieldValueInvalid", problem, "metadata.resourceVersion")
            raise status.invalid(LEASE.plural, info.name, [cause], group=info.resource.group)
        return _kept_part(info, former, new)

    try:
        written = _modify(context, info, options, change, version=version, uid=metadata.uid)
        return Written(written, warnings=warnings)
    except NotFound:
        if not info.resource.made_by_update or info.subresource:
            raise
        if metadata.uid:
            problem = f"Precondition failed: UID in precondition: {metadata.uid}, UID in object meta: "
            message = f'Operation cannot be fulfilled on {info.resource.label} "{info.name}": {problem}'
            details = status.named(info.resource.label, info.name)
            raise status.ApiError(409, "Conflict", message, details=details) from None
    check_rules(info, new)
    created = with_metadata(new, resource_version="")
    return Written(writer(context, info, options).create(created), created=True, warnings=warnings)


def patch_unread(context: ThreadContext, info: RequestInfo, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Patch for a user without read access: the answer has only name, uid, version, and the fields of the patch.

    Raises: as `patch`, but no error shows values of the object.
    """
    try:
        written = patch(context, info, body, options, admit)
    except status.ApiError as error:
        raise _without_values(info, error) from None
    except (InvalidEvent, InvalidObject) as error:
        raise _without_values(info, status.api_error_of(error)) from None
    if written.created:
        return written
    metadata = written.object.metadata
    sent = info.resource.kind.decode(_patcher(body.media_type, _patch_of(body))({}))
    shown = with_metadata(
        sent,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    return written._replace(object=shown)


def _without_values(info: RequestInfo, error: status.ApiError) -> status.ApiError:
    """Return *error*; for a 422 with only the fields, because its values may be the object's."""
    if error.code != 422:
        return error
    fields = [cause["field"] for cause in (error.details or {}).get("causes", ())] or ["patch"]
    problem = "Invalid value: the patch does not fit the object, and you have no right to read its values"
    return invalid_object(info, info.name, [Cause("FieldValueInvalid", problem, field) for field in fields])


def patch(context: ThreadContext, info: RequestInfo, body: Body, options: WriteOptions, admit: Admit) -> Written:
    """Raises: ApiError: 400, 409, 422. NotFound, except for an apply, which creates a missing object."""
    try:
        value = _patch_of(body)
        applied = _patcher(body.media_type, value)
    except status.ApiError:
        if body.media_type != APPLY_PATCH:
            get(context, info)  # a missing object is reported first
        raise
    version = _version(value)
    warnings = warnings_of(info, value, options, patch=True) if isinstance(value, Mapping) else ()
    admitted = False

    def change(former: Any) -> Any:
        nonlocal admitted
        if not admitted:  # once, even if concurrent writes cause retries
            admit(former)
            admitted = True
        kind = info.resource.kind
        try:
            plain = applied(kind.encode(former))
            if body.media_type == STRATEGIC_PATCH and isinstance(plain, dict):  # the result keeps its type
                plain |= {"kind": kind.name, "apiVersion": kind.api_version}
            new = kind.decode(plain)
            check_base64(new)
        except (InvalidEvent, InvalidObject) as error:
            raise bad_patch(value, str(error)) from None
        _check_name(info, new)
        if new.metadata.namespace != info.namespace:
            given = f"the namespace of the object ({new.metadata.namespace})"
            raise status.bad_request(f"{given} does not match the namespace on the request ({info.namespace})")
        if new.metadata.uid not in ("", former.metadata.uid):
            problem = f'Invalid value: "{new.metadata.uid}": field is immutable'
            raise invalid_object(info, info.name, [Cause("FieldValueInvalid", problem, "metadata.uid")])
        if body.media_type == JSON_PATCH:
            _check_same_version(context, info, former.metadata.resource_version, new.metadata.resource_version)
        return _kept_part(info, former, new)

    try:
        return Written(_modify(context, info, options, change, version=version), warnings=warnings)
    except NotFound:
        if body.media_type != APPLY_PATCH or info.subresource:
            raise
    try:
        return create(context, info, body, options, admit)
    except AlreadyExists:  # created between the two calls
        return Written(_modify(context, info, options, change, version=version), warnings=warnings)


def writer(context: ThreadContext, info: RequestInfo, options: WriteOptions) -> ObjectWriter[Any]:
    """Return the writer; for a dry run it only validates."""
    objects = context.objects(info.resource.kind)
    return objects.dry_run() if options.dry_run else objects


def _modify(
    context: ThreadContext,
    info: RequestInfo,
    options: WriteOptions,
    change: Callable[[Any], Any],
    *,
    version: str,
    uid: str = "",
) -> Any:
    def checked(former: Any) -> Any:
        new = change(former)
        if options.author:
            new = options.author.signed(info.verb, info.resource.kind, new, former)
            options.author.check_count(context, info.resource.kind, new, former)
        check_rules(info, new, former)
        return new

    objects = writer(context, info, options)
    stored_version = context.versions(info.resource.kind).to_store(version)
    return objects.modify(info.name, checked, info.namespace, version=stored_version, uid=uid)


def _kept_part(info: RequestInfo, former: Any, new: Any) -> Any:
    """Return *new* with the former fields that this path must not write.

    These are the status, or, for the status path, all fields except status and metadata.
    """
    if info.subresource:
        return replaced(former, status=new.status, metadata=new.metadata)
    if info.resource.kind is NAMESPACE:  # only another path, which is not served, writes its finalizers
        new = replaced(new, spec=former.spec)
    return replaced(new, status=former.status) if info.resource.kind.has_status else new


def _check_name(info: RequestInfo, new: Any) -> None:
    """Raises: ApiError: 400: the name differs from the name in the path."""
    name = new.metadata.name
    if name != info.name:
        raise status.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({info.name})"
            if name
            else f"the name of the object ({info.name} based on URL) was undeterminable: name must be provided"
        )


def _patch_of(body: Body) -> Any:
    """Return the plain value of a patch; null is an empty patch. Raises: ApiError: 400."""
    try:
        value = body.value()
    except ValueError as error:
        raise status.bad_request(str(error)) from None
    if value is None and body.media_type in (STRATEGIC_PATCH, JSON_PATCH):
        return [] if body.media_type == JSON_PATCH else {}
    return value


def _patcher(media_type: str, value: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that patches an object's JSON.

    Raises: ApiError: 400: not a patch; 413: too large; from the function, 422: it does not fit the object.
    """
    if media_type == JSON_PATCH:
        steps = read_patch(value)
        return lambda plain: _fitting(lambda: apply_patch(plain, steps))
    if not isinstance(value, Mapping):
        text = f"json: cannot unmarshal {sort_of(value)} into Go value of type map[string]interface {{}}"
        raise status.bad_request(text)
    if media_type in (STRATEGIC_PATCH, APPLY_PATCH):
        return lambda plain: _fitting(lambda: strategic_merge(plain, value))
    return lambda plain: _fitting(lambda: merge(plain, value))


def _fitting(apply: Callable[[], Any]) -> Any:
    """Apply a patch, and limit the result in bytes and depth. Raises: ApiError: 400, 413, 422."""
    try:
        result = apply()
        size = len(msgspec.json.encode(result))
    except (RecursionError, TypeError) as error:
        raise status.bad_request(f"the patch cannot be applied: {error}") from None
    if size > MAX_PATCH:
        raise status.too_much(f"the result of a patch may have {MAX_PATCH} bytes, this one has {size}")
    return result


def _version(value: Any) -> str:
    """Return the version in a patch; "" is any version."""
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    version = str(metadata.get("resourceVersion") or "")
    return "" if version == "0" else version


def _check_same_version(context: ThreadContext, info: RequestInfo, current: str, sent: str) -> None:
    """Raises: Conflict: a JSON patch sets a version that differs from the object's."""
    if sent not in ("", "0", current) and context.versions(info.resource.kind).to_store(sent) != current:
        raise conflict(info.resource.kind, info.name)


def _refuse_used(context: ThreadContext, name: str) -> None:
    """Raises: ApiError: 409: the namespace is stored. One that is only in use may be created."""
    try:
        context.objects(NAMESPACE).get(name)
    except NotFound:
        return
    raise status.already_exists(NAMESPACE.resource, name)
