"""Steps through changes once for all watches that wait and would be told the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from eventbus.api.kube.rendering import Renderer
from eventbus.model.list_watch import WatchEvent
from eventbus.store.changes import Change
from eventbus.store.selection import Selection
from eventbus.store.watch import WatchState
from eventbus.util.log import log

#: Bytes that are collected before they are written: what comes at once goes out at once.
CHUNK: Final = 64 * 1024

#: What `Subscriber.offer` takes.
Offer: TypeAlias = tuple[int, Sequence[Change[Any]], int]


class Lines(Protocol):
    """Makes lines of watches, and counts those that were told."""

    def line(self, renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes: ...

    def note(self, renderer: Renderer, line: bytes, times: int = 1) -> None: ...


class Piece(NamedTuple):
    """Some lines, as they are and as a chunk of a reply."""

    lines: bytes
    chunk: bytes


def chunk_of(lines: bytes) -> bytes:
    """Return some lines, one byte at least, as a chunk of a reply."""
    return b"%x\r\n%b\r\n" % (len(lines), lines)


class Taker(Protocol):
    """The way out of one watch."""

    def take(self, piece: Piece) -> bool:
        """Write it at once; False: there may be no room, and nothing was written."""
        ...

    def has_room(self) -> bool:
        """Return True if all that was written has left."""
        ...


class Tone(NamedTuple):
    """What makes watches of a kind alike: what they select, and how they are told."""

    renderer: Renderer
    selection: Selection[Any]


class Crowd:
    """Watches that wait, all at one position. Lives in the loop.

    It has a watch of its own that steps for them all; who has no room for what it tells goes on alone.
    """

    def __init__(self, tone: Tone, first: WatchState[Any], lines: Lines) -> None:
        self._renderer = tone.renderer
        self._lead: WatchState[Any] = first.twin()
        self._lines = lines
        self._takers: dict[WatchState[Any], Taker] = {}

    def __len__(self) -> int:
        return len(self._takers)

    def fits(self, state: WatchState[Any]) -> bool:
        """Return True if what comes next is the same for *state* as for those inside."""
        return state.position == self._lead.position and state.is_level

    def add(self, state: WatchState[Any], taker: Taker) -> None:
        self._takers[state] = taker

    def remove(self, state: WatchState[Any]) -> None:
        """Let it go on alone, from where they all are."""
        del self._takers[state]
        state.skip_to(self._lead.position)

    def tell(self, offered: Iterable[Offer]) -> list[WatchState[Any]]:
        """Write the changes that are *offered*. Returns: those that have left, which have yet to be offered them."""
        left: list[WatchState[Any]] = []
        told = self._lead.position
        for each in offered:
            self._lead.offer(*each)
        try:
            lines, size = [], 0
            while isinstance(step := self._lead.next(0.0), WatchEvent):
                lines.append(self._lines.line(self._renderer, step, first=False))
                size += len(lines[-1])
                if size >= CHUNK:
                    left += self._write(lines, told)
                    lines, size, told = [], 0, self._lead.position
            if lines:
                left += self._write(lines, told)
            if step is not None:
                return left
        except Exception:
            log.debug("watches of %s go on one by one", self._renderer.resource.plural, exc_info=True)
        # It has ended: each of them finds out by itself what it ends with.
        for state in self._takers:
            state.skip_to(told)
        left += self._takers
        self._takers.clear()
        return left

    def _write(self, lines: Sequence[bytes], before: tuple[int, ...]) -> list[WatchState[Any]]:
        """Returns: who had no room, and who has none left. *before*: where they are without these *lines*."""
        joined = b"".join(lines)
        piece = Piece(joined, chunk_of(joined))
        refused = [state for state, taker in self._takers.items() if not taker.take(piece)]
        for state in refused:
            del self._takers[state]
            state.skip_to(before)
        for line in lines:
            self._lines.note(self._renderer, line, len(self._takers))
        full = [state for state, taker in self._takers.items() if not taker.has_room()]
        for state in full:
            self.remove(state)
        return refused + full
