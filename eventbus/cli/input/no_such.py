"""Says what to type instead of a command or a kind that there is none of here, and that kubectl's users know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_INSTEAD: Final = {
    "annotate": "kubectl annotate, through `eventbus worker api`",
    "api-versions": "eventbus api-resources",
    "attach": "the program's own terminal; `eventbus exec -- COMMAND` records its life",
    "auth": "eventbus doctor says what this user may; kubectl auth can-i, through `eventbus worker api`",
    "autoscale": "nothing here runs programs by the number; `eventbus exec --restart` runs one again",
    "cluster-info": "eventbus status",
    "cordon": "kubectl cordon, through `eventbus worker api`",
    "cp": "nothing here has files: scp or rsync",
    "debug": "eventbus describe KIND/NAME for what happened",
    "diff": "eventbus get KIND/NAME -o yaml, and diff",
    "drain": "kubectl drain, through `eventbus worker api`",
    "edit": "kubectl edit, through `eventbus worker api`",
    "explain": "kubectl explain events.involvedObject, through `eventbus worker api`",
    "label": "kubectl label, through `eventbus worker api`",
    "patch": "kubectl patch, through `eventbus worker api`",
    "port-forward": "ssh -L",
    "replace": "kubectl replace, through `eventbus worker api`",
    "rollout": "eventbus events --for KIND/NAME",
    "run": "eventbus exec -- COMMAND",
    "scale": "nothing here runs programs by the number",
    "taint": "kubectl taint, through `eventbus worker api`",
    "top": "eventbus status for the bus, eventbus get nodes for machines",
    "uncordon": "kubectl uncordon, through `eventbus worker api`",
    "watch": "eventbus get events -w",
}


def no_such_command(word: str, _commands: Sequence[str]) -> str:
    """Return a sentence for *word*, a command of kubectl's; empty: it is none, perhaps a slip."""
    return f"There is no `eventbus {word}`. Instead: {_INSTEAD[word]}" if word in _INSTEAD else ""


def no_such_kind(word: str, stored: Sequence[str]) -> str:
    """Return a sentence for *word*, as `orders` or `order/7`; empty: it is a slip, or no kind.

    Args: stored: what can be asked for.
    """
    from difflib import get_close_matches

    from eventbus.reference import known_kinds, meant_kinds

    typed, _, name = word.partition("/")
    kind = next((kind for kind in meant_kinds(typed) if kind in known_kinds()), None)
    if kind is None and typed != "all" and (not typed.isalpha() or get_close_matches(typed, stored, cutoff=0.8)):
        return ""
    kinds = [word for word in stored if word != "all"]
    about = f"{kind or 'KIND'}/{name or 'NAME'}"
    whose = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "an object"
    return (
        f'the store has no "{typed}"; it has {", ".join(kinds)}. Events of {whose}: eventbus get events --for {about}'
    )
