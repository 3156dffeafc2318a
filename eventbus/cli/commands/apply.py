"""`eventbus apply -f`: creates or updates stored objects from files, as kubectl does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from eventbus.cli.completion import complete_files
from eventbus.cli.input.options import namespace_option
from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import Session, open_session
from eventbus.errors import InvalidObject, NotFound
from eventbus.model.columns.objects import object_name
from eventbus.model.kinds import EVENT, KINDS, POD, Kind
from eventbus.model.objects.pod import STAYS
from eventbus.util.text import printable

#: The last applied manifest, as kubectl keeps it. Its fields that the new manifest lacks are removed.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
#: Fields that the store sets and a file does not.
_NOT_APPLIED: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE",
              help="A file, a folder of them, or - for standard input; may be repeated.",
              shell_complete=complete_files)  # fmt: skip
@namespace_option("Of objects that name none.")
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Names only, or the objects as JSON.")
def apply(files: tuple[str, ...], namespace: str, dry_run: bool, output: str | None) -> None:
    """Create or change the objects of the files.

    YAML with any number of documents, or JSON: Pods, ConfigMaps, Secrets, Nodes, Leases. A field of the
    previously applied file that is missing in this one is removed; other fields of the object stay. A Pod runs on the
    node of its spec.nodeName, if the agent there accepts its namespace (`eventbus worker agent --pods-from-bus`).
    Pods can run programs, so writing them needs the role operator.

    \b
    Examples:
      eventbus apply -f pod.yaml
      eventbus apply -f manifests/ -n shop
      kubectl get pod web -o yaml | eventbus apply -f -

    \b
    Exit codes:
      0  all of them match the files
      1  Redis does not answer, or another client keeps writing the same object
      2  wrong usage, an object that cannot be read, or no right to write it
    """
    wanted = [_wanted(plain, namespace) for file in files for plain in read_files(file)]
    applied = []
    with open_session() as session:
        for kind, plain in wanted:
            result, action = _apply(session, kind, plain, dry_run=dry_run)
            applied.append(kind.encode(result))
            if output != "json":
                name = printable(object_name(kind, result.metadata.name))
                click.echo(name if output == "name" else f"{name} {action}{' (dry run)' if dry_run else ''}")
    if output == "json":
        write(
            dump_json(applied[0] if len(applied) == 1 else {"kind": "List", "apiVersion": "v1", "items": applied})
            + "\n"
        )
    if not applied:
        click.echo("error: no objects passed to apply", err=True)
        sys.exit(2)


def read_files(file: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file, of the files of a folder, or of standard input. Raises: InvalidObject."""
    from eventbus.agent.config.manifest import read_documents

    path = Path(file)
    if file != "-" and path.is_dir():
        for one in sorted(path.iterdir()):
            if one.suffix in _SUFFIXES:
                yield from read_files(str(one))
        return
    with click.open_file(file, "rb") as opened:
        yield from read_documents(opened.read(), file)


def _wanted(plain: Mapping[str, Any], namespace: str) -> tuple[Kind[Any], dict[str, Any]]:
    """Return the kind of an object and its desired JSON. Raises: InvalidObject."""
    said = plain.get("apiVersion"), plain.get("kind")
    kind = next((one for one in KINDS if one is not EVENT and said == (one.api_version, one.name)), None)
    if kind is None:
        known = ", ".join(f"{one.name} ({one.api_version})" for one in KINDS if one is not EVENT)
        if not all(said):
            raise InvalidObject(f"an object has to say its apiVersion and its kind: there are {known}")
        raise InvalidObject(f"no {said[1]} of {said[0]} can be applied: there are {known}")
    given = plain.get("metadata") if isinstance(plain.get("metadata"), Mapping) else {}
    metadata = {key: value for key, value in (given or {}).items() if key not in _NOT_APPLIED}
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or namespace
    else:
        metadata.pop("namespace", None)
    wanted = {key: value for key, value in plain.items() if key != "status"} | {"metadata": metadata}
    found = kind.decode(wanted)
    if kind is POD:
        from eventbus.model.objects.pod_rules import check_pod

        check_pod(found)
    if not found.metadata.name:
        raise InvalidObject(f"a {kind.name} without metadata.name")
    return kind, wanted


def _apply(session: Session, kind: Kind[Any], wanted: dict[str, Any], *, dry_run: bool) -> tuple[Any, str]:
    """Apply one object. Returns the object and the word for the change."""
    objects: Any = session.store.objects(kind)
    metadata = wanted["metadata"]
    name, place = metadata["name"], metadata.get("namespace", "")
    noted = with_note(wanted)
    try:
        stored = objects.get(name, place)
    except NotFound:
        # The API server sets the first phase; the agent reports the later ones.
        created = kind.decode(noted | ({"status": {"phase": "Pending"}} if kind is POD else {}))
        return (created if dry_run else objects.create(created)), "created"
    plain = kind.encode(stored)
    patch = three_way(_last_applied(plain), noted, plain)
    if kind is POD and stored.spec.node_name and "nodeName" in (patch.get("spec") or {}):
        raise InvalidObject(f'Pod "{name}" is invalid: spec.nodeName: Forbidden: {STAYS}')
    action = "unchanged" if not patch or patch == _note_alone(noted) else "configured"
    return (objects.patch(name, patch, place) if patch and not dry_run else stored), action


def three_way(last: Mapping[str, Any], wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes *stored* match *wanted* and removes fields that only *last* had.

    Lists are replaced whole.
    """
    patch: dict[str, Any] = {key: None for key in last if key not in wanted and key in stored}
    for key, value in wanted.items():
        former = stored.get(key)
        if isinstance(value, Mapping):
            before = last.get(key)
            inner = three_way(
                before if isinstance(before, Mapping) else {}, value, former if isinstance(former, Mapping) else {}
            )
            if inner or (former is None and value):
                patch[key] = inner
        elif value is not None and former != value and not _same_but_defaults(last.get(key), value, former):
            patch[key] = value
    return patch


def _same_but_defaults(last: Any, wanted: Any, stored: Any) -> bool:
    """Return True if two lists differ only by defaults, which the store has added to items since."""
    if not isinstance(wanted, list) or not isinstance(stored, list | tuple) or len(wanted) != len(stored):
        return False
    before = last if isinstance(last, list) else []
    return all(
        not three_way(before_item if isinstance(before_item, Mapping) else {}, wanted_item, stored_item)
        if isinstance(wanted_item, Mapping) and isinstance(stored_item, Mapping)
        else wanted_item == stored_item or _same_but_defaults(before_item, wanted_item, stored_item)
        for before_item, wanted_item, stored_item in zip([*before, *[None] * len(stored)], wanted, stored, strict=False)
    )


def with_note(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return *wanted* with a note of itself. For a Secret it has only names: annotations must not have its values."""
    metadata = wanted["metadata"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    plain = {**wanted, "metadata": {**metadata, "annotations": annotations} if annotations else _bare(metadata)}
    noted = _names_alone(plain) if plain.get("kind") == "Secret" else plain
    note = msgspec.json.encode(noted, order="sorted").decode() + "\n"
    return {**plain, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: note}}}


def _bare(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "annotations"}


def _names_alone(value: Any) -> Any:
    return {key: _names_alone(inner) for key, inner in value.items()} if isinstance(value, Mapping) else ""


def _last_applied(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    note = (plain["metadata"].get("annotations") or {}).get(LAST_APPLIED, "")
    try:
        found = msgspec.json.decode(note)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _note_alone(noted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that changes only the note."""
    return {"metadata": {"annotations": {LAST_APPLIED: noted["metadata"]["annotations"][LAST_APPLIED]}}}
