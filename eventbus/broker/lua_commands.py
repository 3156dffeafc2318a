"""What each function of the library does to which keys, read from its source.

The server checks a function's commands against the rights of whoever calls it, one by one, and undoes nothing when one
is refused in the middle. So the rights of a role are made from the source itself: they cannot fall behind it. Relies
on the form of `lua/`: headers with `KEYS[n] name`, keys as named locals, helpers as `local function` in column 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypeAlias

import msgspec

from eventbus.broker.functions import library

#: Commands that are a family: the right to one of them has its second word in it.
_CONTAINERS = frozenset({"XGROUP", "XINFO"})
_BLOCK = re.compile(r"^local function (\w+)\(([^)]*)\)\n(.*?)^end$", re.M | re.S)
_CALLBACK = re.compile(r"^  callback = function\(\)(.*?)end,$", re.M | re.S)
_REGISTER = re.compile(r"^redis\.register_function.*?'(eb1_\w+)',\s*(?:callback = )?(\w+)", re.M | re.S)
_HEADER = re.compile(r"KEYS\[(\d+)(…?)\]\s+((?:(?:eb:\{p\}:)?[a-z][\w:]*(?:<\w+>|…)?(?:, )?)+)")
_LOCALS = re.compile(r"^\s*local ([\w, ]+) = (keys\[\d+\](?:, keys\[\d+\])*)", re.M)
_CALL = re.compile(r"([\w.]+)\(")


#: Where it begins, its name, its parameters, its body.
_Block: TypeAlias = tuple[int, str, list[str], str]
_Blocks: TypeAlias = list[_Block]


class Use(msgspec.Struct, frozen=True, order=True):
    """One command, `XADD` or `XGROUP|CREATE`, and the names that `Keys` has for what it is used on; none: no key."""

    command: str
    keys: tuple[str, ...] = ()


class Function(msgspec.Struct, frozen=True):
    """One registered function: the names of the keys it is passed, and all that it does, sorted."""

    name: str
    keys: tuple[str, ...]
    uses: tuple[Use, ...]


@cache
def functions_used() -> Mapping[str, Function]:
    """Every function of the library by its name."""
    source = library()
    blocks: _Blocks = [
        (match.start(), match.group(1), match.group(2).split(", "), match.group(3)) for match in _BLOCK.finditer(source)
    ]
    found: dict[str, Function] = {}
    start = 0
    for match in _REGISTER.finditer(source):
        name, callback = match.groups()
        numbered = _keys_in_header(source[start : match.start()])
        start = match.end()
        uses: set[Use] = set()
        block = _block(blocks, callback, match.start())
        if block is not None:
            every = tuple(sorted({key for keys in numbered.values() for key in keys}))
            rest = next((keys for number, keys in numbered.items() if number < 0), every)
            _collect(block, _names(block[3], numbered), rest, blocks, uses)
            found[name] = Function(name, every, tuple(sorted(uses)))
        else:
            found[name] = Function(name, (), ())
    return found


def _keys_in_header(text: str) -> dict[int, tuple[str, ...]]:
    """KEYS of the header by number; those of `KEYS[n…]` under -n."""
    found: dict[int, tuple[str, ...]] = {}
    for line in text.splitlines():
        if line.startswith("--"):
            for number, more, names in _HEADER.findall(line):
                keys = tuple(_attribute(name) for name in names.split(", ") if name)
                # What is said of a key further down the header is no new key.
                found.setdefault(-int(number) if more else int(number), keys)
    return found


def _attribute(name: str) -> str:
    name = name.removeprefix("eb:{p}:").partition("<")[0].partition("…")[0]
    return name.strip(":").replace(":", "_")


def _names(body: str, numbered: Mapping[int, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """What the function's locals, and `keys[n]` itself, stand for."""
    bound = {f"keys[{number}]": keys for number, keys in numbered.items() if number > 0}
    for names, values in _LOCALS.findall(body):
        for name, value in zip(names.split(", "), values.split(", "), strict=True):
            bound[name] = bound[value]
    return bound


def _block(blocks: _Blocks, name: str, before: int) -> _Block | None:
    """The local function that *name* means at a place: the last one above it."""
    return next((block for block in reversed(blocks) if block[1] == name and block[0] < before), None)


def _collect(
    block: _Block, bound: Mapping[str, tuple[str, ...]], rest: tuple[str, ...], blocks: _Blocks, uses: set[Use]
) -> None:
    """Add what *block* and the helpers it calls do. *rest*: the keys that have no name of their own in the source."""
    for called, arguments in _calls(block[3]):
        if called == "redis.call":
            uses.add(_use([_word(bound, argument) for argument in arguments], bound, rest))
        elif helper := _block(blocks, called, block[0]):
            passed = {
                parameter: bound.get(argument) or ((argument,) if argument.startswith("'") else ())
                for parameter, argument in zip(helper[2], arguments, strict=False)
            }
            _collect(helper, {key: value for key, value in passed.items() if value}, rest, blocks, uses)


def _word(bound: Mapping[str, tuple[str, ...]], argument: str) -> str:
    """A literal that was passed as an argument takes its parameter's place."""
    value = bound.get(argument, ())
    return value[0] if value and value[0].startswith("'") else argument


def _use(arguments: list[str], bound: Mapping[str, tuple[str, ...]], rest: tuple[str, ...]) -> Use:
    command, arguments = arguments[0].strip("'"), arguments[1:]
    if command in _CONTAINERS:
        command, arguments = f"{command}|{arguments[0].strip(chr(39))}", arguments[1:]
    if command in ("TIME", "INFO"):
        return Use(command)
    return Use(command, bound.get(arguments[0], rest))


def _calls(body: str) -> Iterator[tuple[str, list[str]]]:
    for match in _CALL.finditer(body):
        yield match.group(1), _arguments(body, match.end())


def _arguments(text: str, at: int) -> list[str]:
    """The arguments of the call whose bracket was opened before *at*."""
    found, depth, quoted, start = [], 0, False, at
    for i in range(at, len(text)):
        character = text[i]
        if character == "'" and text[i - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth < 0 or (character == "," and depth == 0):
            found.append(text[start:i].strip())
            start = i + 1
        if depth < 0:
            break
    return found


__all__ = ["Function", "Use", "functions_used"]
