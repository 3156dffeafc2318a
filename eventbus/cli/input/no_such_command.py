"""Says what to type instead of a command of kubectl's that there is none of here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_INSTEAD: Final = {
    "annotate": "kubectl annotate, through `eventbus worker api`",
    "api-versions": "eventbus api-resources",
    "attach": "the program's own terminal; `eventbus exec -- COMMAND` records its life",
    "cluster-info": "eventbus status",
    "config": "EVENTBUS_REDIS_URL names the bus; `eventbus --help` has its forms",
    "edit": "kubectl edit, through `eventbus worker api`",
    "explain": "kubectl explain, through `eventbus worker api`; docs/wire.md has the fields of an event",
    "label": "kubectl label, through `eventbus worker api`",
    "logs": "eventbus events --for KIND/NAME for what happened; output stays where the program writes it",
    "patch": "kubectl patch, through `eventbus worker api`",
    "rollout": "eventbus events --for KIND/NAME",
    "run": "eventbus exec -- COMMAND",
    "top": "eventbus status for the bus, eventbus get nodes for machines",
    "wait": "eventbus events --for KIND/NAME -w",
    "watch": "eventbus get events -w",
}


def no_such_command(word: str, _commands: Sequence[str]) -> str:
    """Return a sentence for *word*, a command of kubectl's; empty: it is none, perhaps a slip."""
    return f"There is no `eventbus {word}`. Instead: {_INSTEAD[word]}" if word in _INSTEAD else ""
