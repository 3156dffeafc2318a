"""Names that several correlation keys of a scenario have: client-go loses or mixes such events, ours get a suffix."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tests.conformance.correlation_keys import Key
from tests.conformance.driver import Action, Decision, StoredEvent

Name = tuple[str, str]  #: namespace, name


class SharedNames:
    """Records which key has which wanted name. How a suffix is made is open; its key must keep it."""

    def __init__(self) -> None:
        self._keys: dict[Name, set[Key]] = defaultdict(set)
        self._suffixed: dict[Key, str] = {}
        self._written: set[Key] = set()  #: since the store was emptied

    def emptied(self) -> None:
        """The store was."""
        self._written.clear()

    def unsuffixed(self, key: Key, want: Decision, got: Decision) -> Decision:
        """*got* as client-go decides it, if it differs only because another key has the wanted name."""
        sharing = self._keys[want.namespace, want.name]
        others = sharing - {key}
        sharing.add(key)
        is_first = key not in self._written
        self._written.add(key)
        if not others:
            return got
        name = self._suffixed.setdefault(key, got.name)
        if got.name == name and name.startswith(f"{want.name}."):
            got = msgspec.structs.replace(got, name=want.name)
        # There the other's event is patched, here its own is not there yet.
        if is_first and others & self._written and (want.action, got.action) == (Action.PATCH, Action.PATCH_CREATE):
            got = msgspec.structs.replace(got, action=Action.PATCH)
        return got


def without_suffixes(state: Iterable[StoredEvent], shared: set[Name]) -> list[StoredEvent]:
    """*state* with the suffixes of *shared* names cut off."""

    def base(one: StoredEvent) -> str:
        head = one.name.rpartition(".")[0]
        return head if (one.namespace, head) in shared else one.name

    return [msgspec.structs.replace(one, name=base(one)) for one in state]
