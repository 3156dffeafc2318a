"""encoded_items.py: an object is encoded once in each shape, and another of equal value is another."""

from __future__ import annotations

from eventbus.api.kube import tables
from eventbus.api.kube.tables import EncodedItems
from eventbus.model.event import Event


def test_an_object_is_encoded_once_in_each_shape() -> None:
    kept: EncodedItems[bytes] = EncodedItems()
    encoded = list[str]()
    one, equal = Event(message="a"), Event(message="a")

    def encode(event: Event) -> bytes:
        encoded.append(event.message)
        return b"%d" % len(encoded)

    assert kept.of([one, one, equal], "v1", encode) == [b"1", b"1", b"2"]
    assert kept.of([equal, one], "v1", encode) == [b"2", b"1"]
    assert kept.of([one], "events", encode) == [b"3"]


def test_it_keeps_a_bounded_number_and_the_latest_of_them() -> None:
    kept: EncodedItems[bytes] = EncodedItems()
    events = [Event(count=n) for n in range(3 * tables.MOST)]
    for first in range(0, len(events), 100):
        kept.of(events[first : first + 100], "v1", lambda event: b"%d" % event.count)
    held = sum(map(len, (*kept._recent.values(), *kept._before.values())))
    assert held <= 2 * tables.MOST + 100
    assert kept.of(events[-1:], "v1", lambda _event: b"anew") == [b"%d" % events[-1].count]
