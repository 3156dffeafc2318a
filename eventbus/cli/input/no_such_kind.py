"""The message of `eventbus get` for a kind that the store does not hold: kubectl's users ask for pods."""

from __future__ import annotations

from collections.abc import Sequence


def no_such_kind(word: str, stored: Sequence[str]) -> str:
    """Return a sentence for *word*, as `pods` or `pod/web-0`; empty: it is no known kind, perhaps a slip.

    Args: stored: what can be asked for.
    """
    from eventbus.cli.input.kind_names import known_kinds, meant_kinds

    typed, _, name = word.partition("/")
    kind = next((kind for kind in meant_kinds(typed) if kind in known_kinds()), None)
    if kind is None and typed != "all":
        return ""
    kinds = [word for word in stored if word != "all"]
    about = f"{kind}/{name or 'NAME'}" if kind else "KIND/NAME"
    whose = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "an object"
    return (
        f'the store has no "{typed}"; it has {", ".join(kinds)}. Events of {whose}: eventbus get events --for {about}'
    )
