"""Rewords what is typed behind `get`: options before the kind, and several kinds at once."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

#: Options that take the next word, as far as kubectl's users put them before the kind.
_SHORT: Final = ("-o", "-n", "-l", "-L")
_LONG: Final = ("--output", "--namespace", "--selector", "--field-selector", "--sort-by", "--label-columns")
_WITH_VALUE: Final = frozenset((*_SHORT, *_LONG, "--chunk-size", "--context"))


def get_words(args: list[str]) -> list[str]:
    """Return the words of `get` as click reads them: `-o name events` and `events,nodes`, `node/n1 lease/n1`."""
    return _several_kinds(_kind_first(args))


def _kind_first(args: list[str]) -> list[str]:
    position = 0
    while position < len(args) and args[position].startswith("-") and args[position] not in ("-h", "--help"):
        position += 2 if args[position] in _WITH_VALUE else 1
    kind = args[position : position + 1]
    return [*kind, *args[:position], *args[position + 1 :]] if kind and not kind[0].startswith("-") else args


def _several_kinds(args: list[str]) -> list[str]:
    names = list(takewhile(lambda word: not word.startswith("-"), args))
    if names and "," in names[0] and "/" not in names[0]:
        return ["all", f"--kinds={names[0]}", *args[1:]]
    kinds = {kind for kind, slash, _ in (name.partition("/") for name in names) if slash}
    if len(kinds) > 1 and all("/" in name for name in names):
        return ["all", *args]
    return args
