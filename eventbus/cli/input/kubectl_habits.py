"""Accepts arguments as users of kubectl type them, and names a replacement for its other commands and kinds.

`-o=name`, `--watch=false`, options before the kind, and several kinds at once are rewritten for click.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import click

#: The booleans of Go's flag package.
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def as_click_reads(args: Sequence[str], command: click.Command) -> list[str]:
    """Return *args* with kubectl's `=` in the form that click knows; all others are left as they are.

    `-o=name` becomes `-oname`. A flag's `=true` is dropped; with `=false` the flag goes, or becomes its opposite
    (`--no-…`) where there is one. Words after `--`, after the first word of a command that passes on its
    words, and values of other options are not changed.
    """
    options = {name: option for option in command.params if isinstance(option, click.Option) for name in _names(option)}
    passes_on = not command.context_settings.get("allow_interspersed_args", command.allow_interspersed_args)
    known: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--" or (passes_on and not word.startswith("-")):
            return [*known, word, *rest]
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is None:
            known.append(word)
        elif not equals:
            known.append(word)
            if not _is_flag(option) and rest:
                known.append(rest.pop(0))
        elif _is_flag(option) and value in _TRUE | _FALSE:
            known += _flag(option, name, wanted=value in _TRUE)
        else:
            known.append(word if name.startswith("--") else f"{name}{value}")
    return known


def _names(option: click.Option) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _is_flag(option: click.Option) -> bool:
    return option.is_flag or option.count


def _flag(option: click.Option, name: str, *, wanted: bool) -> list[str]:
    if name in option.secondary_opts:
        return [name] if wanted else option.opts[:1]
    return [name] if wanted else option.secondary_opts[:1]


#: Options with a value that kubectl's users put before the kind.
_SHORT: Final = ("-o", "-n", "-l", "-L")
_LONG: Final = ("--output", "--namespace", "--selector", "--field-selector", "--sort-by", "--label-columns")
_WITH_VALUE: Final = frozenset((*_SHORT, *_LONG, "--chunk-size", "--context"))


def get_words(args: list[str]) -> list[str]:
    """Convert the arguments of `get` for click: `-o name events` and `events,nodes`, `node/n1 lease/n1`."""
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


#: Commands of kubectl that work on the objects of the store, but only through the API.
_OF_KUBECTL: Final = frozenset(
    ("annotate", "cordon", "drain", "edit", "explain", "label", "patch", "replace", "taint", "uncordon")
)


def no_such_command(word: str, _commands: Sequence[str]) -> str:
    """Return a hint for *word* if only kubectl has it; "": it is another word, maybe a typo."""
    if word not in _OF_KUBECTL:
        return ""
    return f"There is no `eventbus {word}`. Use `kubectl {word}`, through `eventbus worker api`"


def no_such_kind(word: str, stored: Sequence[str]) -> str:
    """Return a sentence for *word*, as `orders` or `order/7`; empty: it is a slip, or no kind.

    Args: stored: the kinds of the store.
    """
    from difflib import get_close_matches

    from eventbus.model.reference import known_kinds, meant_kinds

    typed, _, name = word.partition("/")
    kind = next((kind for kind in meant_kinds(typed) if kind in known_kinds()), None)
    if kind is None and typed != "all" and (not typed.isalpha() or get_close_matches(typed, stored, cutoff=0.8)):
        return ""
    kinds = [word for word in stored if word != "all"]
    about = f"{kind or 'KIND'}/{name or 'NAME'}"
    owner = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "an object"
    return (
        f'the store has no "{typed}"; it has {", ".join(kinds)}. Events of {owner}: eventbus get events --for {about}'
    )
