"""Deletes one object or many, with preconditions and finalizers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from eventbus.api import status
from eventbus.api.kube.bodies import Body
from eventbus.api.kube.namespaces import IMMORTAL, NAMESPACE, terminating
from eventbus.api.kube.options import WriteOptions, check_propagation
from eventbus.api.kube.request_info import RequestInfo
from eventbus.api.kube.verbs import get, list_objects, writer
from eventbus.api.thread_context import ThreadContext
from eventbus.errors import NotFound
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList
from eventbus.store.storage import with_metadata

_KIND: Final = "DeleteOptions"
_SECONDS: Final = re.compile(r"-?[0-9]{1,9}")


class DeleteOptions(NamedTuple):
    """Of a delete's body."""

    uid: str = ""
    version: str = ""
    grace_s: int | None = None  #: of a Pod; None: its own


def delete(
    context: ThreadContext, info: RequestInfo, wanted: DeleteOptions, options: WriteOptions
) -> dict[str, Any] | HasMetadata:
    """Delete one object, and return the Status of success, or the object, if its finalizers keep it.

    Raises: NotFound. ApiError: 409, it is another object than the one that was meant.
    """
    if info.resource.kind is NAMESPACE and info.name in IMMORTAL:
        raise status.forbidden(info.resource.label, info.name, "this namespace may not be deleted")
    found = get(context, info)
    _delete(context, info, found, wanted, options)
    if found.metadata.finalizers and options.dry_run:
        return _ending(found)
    if found.metadata.finalizers and (kept := _kept(context, info, found.metadata.uid)):
        return kept
    if info.resource.kind is NAMESPACE:
        return terminating(found)
    details = status.named(info.resource.label, info.name, uid=found.metadata.uid)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def delete_collection(
    context: ThreadContext, info: RequestInfo, options: ListOptions, wanted: DeleteOptions, writing: WriteOptions
) -> ObjectList[Any]:
    """Delete the objects of a namespace, or of a kind that has none, and return the deleted objects."""
    found = list_objects(context, info, options)
    for item in found.items:
        try:
            _delete(context, info, item, wanted, writing)
        except NotFound:
            continue  # another client has deleted it
    return found


def _delete(
    context: ThreadContext, info: RequestInfo, found: Any, wanted: DeleteOptions, options: WriteOptions
) -> None:
    """Raises: NotFound. ApiError: 403, 409."""
    if options.author:
        options.author.check("delete", info.resource.kind, found)
    uid, version = found.metadata.uid, found.metadata.resource_version
    name, namespace = found.metadata.name, found.metadata.namespace
    if wanted.uid and wanted.uid != uid:
        raise _another(
            info,
            name,
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
        )
    if wanted.version and context.versions(info.resource.kind).to_store(wanted.version) != version:
        raise _another(
            info,
            name,
            f"the ResourceVersion in the precondition ({wanted.version}) does not match the ResourceVersion in "
            f"record ({context.versions(info.resource.kind).own(version)}). The object might have been modified",
        )
    if not (wanted.uid or wanted.version):
        version = ""
    # With the version that was compared, so that a concurrent write fails the delete.
    writer(context, info, options).delete(name, namespace, version=version, grace_s=wanted.grace_s)


def _kept(context: ThreadContext, info: RequestInfo, uid: str) -> HasMetadata | None:
    try:
        found: HasMetadata = get(context, info)
    except NotFound:
        return None
    return found if found.metadata.uid == uid and found.metadata.deletion_timestamp else None


def _ending(found: Any) -> HasMetadata:
    """Return the object as a delete leaves it until its finalizers are removed."""
    metadata = found.metadata
    if metadata.deletion_timestamp is None:
        now = datetime.now(UTC).replace(microsecond=0)
        found = with_metadata(found, deletion_timestamp=now, deletion_grace_period_seconds=0)
    ending: HasMetadata = found
    return ending


def _another(info: RequestInfo, name: str, problem: str) -> status.ApiError:
    kind = info.resource.kind.name
    message = f'Operation cannot be fulfilled on {kind} "{name}": {problem}'
    return status.ApiError(409, "Conflict", message, details={"name": name, "kind": kind})


def read_delete_options(body: Body | None, query: Mapping[str, str]) -> tuple[DeleteOptions, tuple[str, ...]]:
    """The preconditions, grace time and dryRun of a delete's body, or of its query. Raises: ApiError: 400, 422."""
    plain = body.read(_KIND) if body is not None and body.data.strip() else query
    plain = {} if plain is None else plain
    if not isinstance(plain, Mapping) or (plain is not query and plain.get("kind") not in (None, "", _KIND)):
        raise status.bad_request("the body of a delete must be DeleteOptions")
    check_propagation(plain.get("propagationPolicy"), plain.get("orphanDependents"))
    given = plain.get("preconditions") or {}
    dry_run = (plain.get("dryRun") or ()) if plain is not query else ()
    if not isinstance(given, Mapping) or not isinstance(dry_run, list | tuple):
        raise status.bad_request("preconditions must be an object, and dryRun a list")
    wanted = DeleteOptions(str(given.get("uid") or ""), str(given.get("resourceVersion") or ""), _grace_s(plain))
    return wanted, tuple(map(str, dry_run))


def _grace_s(plain: Mapping[str, Any]) -> int | None:
    """Raises: ApiError: 400."""
    seconds = plain.get("gracePeriodSeconds")
    if isinstance(seconds, str) and _SECONDS.fullmatch(seconds):  # of a query
        return int(seconds)
    if seconds is None or (isinstance(seconds, int) and not isinstance(seconds, bool) and abs(seconds) < 1 << 31):
        return seconds
    if isinstance(seconds, str):
        raise status.bad_request(f'strconv.ParseInt: parsing "{seconds[:40]}": invalid syntax')
    raise status.bad_request(f"gracePeriodSeconds: a number of seconds is wanted, not {str(seconds)[:40]!r}")
