"""Reads arguments as kubectl's users type them: `-o=name`, `--watch=false`, `-w=true`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

#: What Go's flag package takes for a boolean.
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def as_click_reads(args: Sequence[str], command: click.Command) -> list[str]:
    """Return *args* with kubectl's `=` in the form that click knows; all others are left as they are.

    `-o=name` becomes `-oname`. A flag's `=true` is dropped; with `=false` the flag goes, or becomes its opposite
    (`--no-…`) where there is one. What stands behind `--`, behind the first word of a command that passes on its
    words, or is the value of another option is not looked at.
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
