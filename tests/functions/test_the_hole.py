"""One key that has another type for a while must not make the store lose what comes after it.

It has done so: a function that stopped in the middle of its writes had given out versions and not noted them, and from
then on every `correlate_and_store` acknowledged its batches and then failed to write them.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from eventbus.errors import EventBusError
from tests.builders import make_event, make_reference
from tests.functions.corrupting import Corruption, corrupt_for_a_while
from tests.functions.partition import Partition

HOUR = 3_600_000


def drain(partition: Partition) -> None:
    """Work as a sink worker does: what is pending for it first, then what is new."""
    reader = partition.reader()
    if deliveries := [*reader.own_pending(), *reader.read(0)]:
        partition.record_deliveries(deliveries)


@pytest.mark.parametrize("key", ["an event", "the index of objects"])
def test_a_key_that_is_a_list_for_a_while_costs_no_event(partition: Partition, key: str) -> None:
    events = [make_event(involved_object=make_reference(name=f"web-{n}")) for n in range(15)]
    for event in events[:5]:
        partition.record(event)
    keys = partition.keys
    last = partition.admin.zrange(keys.index_expiry, 0, -1)[-1]

    with corrupt_for_a_while(
        partition.admin, keys.object + last if key == "an event" else keys.index_object, Corruption.LIST
    ):
        with suppress(EventBusError):
            partition.expire(in_ms=HOUR)
        partition.publish(events[5])
        with suppress(EventBusError):
            drain(partition)
    for event in events[6:]:
        partition.publish(event)
        with suppress(EventBusError):
            drain(partition)

    published = int(partition.admin.hget(keys.incoming_meta, "events"))
    assert published == 15
    assert (partition.meta("events"), partition.pending()) == (published, [])
    assert {event.involved_object.name for event in partition.stored()} >= {f"web-{n}" for n in range(5, 15)}
