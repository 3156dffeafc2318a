"""The fields of a kind as `kubectl explain` lays them out, from the types themselves and their docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from textwrap import fill, indent
from typing import Any

from msgspec import inspect

from eventbus.kinds import Kind
from eventbus.printers.field_texts import field_text

_WIDTH = 80
#: A field as docstrings name it: *restart_policy*.
_NAMED = re.compile(r"\*(\w+)\*")


class NoSuchField(ValueError):
    """The path names a field that there is not."""


def explain(kind: Kind[Any], path: list[str], *, recursive: bool = False) -> str:
    """Lay out the kind, or the field at *path*. Raises: NoSuchField."""
    head = f"KIND:       {kind.name}\nVERSION:    {kind.api_version}\n\n"
    found: inspect.Type = inspect.type_info(kind.type)
    word, meaning = "", ""
    for name in path:
        owner = _plain(found)[0]
        fields = _fields(owner, top=not word)
        if name not in fields:
            raise NoSuchField(f'field "{name}" does not exist')
        found, word, meaning = fields[name], name, _meaning(owner, name)
    shape, said = _plain(found)
    text = head + (f"FIELD: {word} <{said}>\n\n" if word else "")
    text += f"DESCRIPTION:\n{_description(shape, meaning)}\n"
    if _fields(shape, top=not word):
        text += "\nFIELDS:\n" + "".join(_lines(shape, "  ", top=not word, recursive=recursive))
    return text


def _plain(found: inspect.Type) -> tuple[inspect.Type, str]:
    """Return the type behind Optional and lists, and kubectl's name of it."""
    if isinstance(found, inspect.UnionType):
        some = [one for one in found.types if not isinstance(one, inspect.NoneType)]
        # A number or a name, as of a port: a string, as OpenAPI says.
        return _plain(next((one for one in some if isinstance(one, inspect.StrType)), some[0]))
    if isinstance(found, inspect.VarTupleType | inspect.ListType):
        inner, said = _plain(found.item_type)
        return inner, f"[]{said}"
    if isinstance(found, inspect.DictType | inspect.CollectionType):
        return found, "map[string]string"
    if isinstance(found, inspect.StructType):
        return found, found.cls.__name__.lstrip("_")
    names: dict[type[inspect.Type], str] = {
        inspect.StrType: "string",
        inspect.IntType: "integer",
        inspect.BoolType: "boolean",
        inspect.FloatType: "number",
        inspect.DateTimeType: "string",
    }
    return found, names.get(type(found), "Object")


def _fields(shape: inspect.Type, *, top: bool) -> dict[str, inspect.Type]:
    if not isinstance(shape, inspect.StructType):
        return {}
    of_all: dict[str, inspect.Type] = {"apiVersion": inspect.StrType(), "kind": inspect.StrType()} if top else {}
    return dict(sorted((of_all | {field.encode_name: field.type for field in shape.fields}).items()))


def _lines(owner: inspect.Type, lead: str, *, top: bool = False, recursive: bool) -> Iterator[str]:
    for name, found in _fields(owner, top=top).items():
        shape, said = _plain(found)
        yield f"{lead}{name}\t<{said}>\n"
        if recursive:
            yield from _lines(shape, lead + "  ", recursive=True)
        elif (meaning := _meaning(owner, name)) or isinstance(shape, inspect.StructType):
            yield f"{_description(shape, meaning, lead + '  ')}\n\n"


def _meaning(owner: inspect.Type, field: str) -> str:
    return field_text(owner.cls.__name__, field) if isinstance(owner, inspect.StructType) else ""


def _description(shape: inspect.Type, meaning: str, lead: str = "    ") -> str:
    """*meaning* of a field, else what its type says of itself."""
    said = shape.cls.__doc__ if isinstance(shape, inspect.StructType) else None
    text = meaning or described(said or "")
    return indent(fill(text, _WIDTH - len(lead)), lead) if text else f"{lead}<empty>"


def described(docstring: str) -> str:
    """Return its first paragraph in one line, fields by their names in JSON. What follows is for who writes Python."""
    text = cleandoc(docstring).partition("\n\n")[0]
    return " ".join(_NAMED.sub(lambda found: _camel(found[1]), text).split())


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


__all__ = ["NoSuchField", "described", "explain"]
