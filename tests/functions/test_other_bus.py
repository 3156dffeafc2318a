"""Others have made the bus anew, and a process has not noticed yet: what it calls for the former one changes nothing.

The functions that bring something along refuse; all others write only what they have found in the bus itself.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from eventbus.broker.bus import open_bus
from eventbus.broker.functions import Functions
from eventbus.settings import Settings
from tests.functions.partition import Partition, changed
from tests.functions.stories import FAULTS
from tests.functions.write_cases import CASES, Case, about, drain, send

#: `open` comes right behind a look at the bus, and `trim` cuts what the new bus's own groups have finished with. These
#: cases publish as one who does not ask: see test_bus_anew. `checkpoint` holds versions only, and those of a
#: bus that was made later are higher. `announce` is true of both.
LATE = [
    case for case in CASES if case.verb not in ("open", "publish", "publish_once", "trim", "checkpoint", "announce")
]

_prefixes = itertools.count()


@pytest.mark.parametrize("case", LATE, ids=str)
def test_a_call_for_the_former_bus_changes_nothing_in_the_new_one(embedded_url: str, case: Case) -> None:
    partition = Partition(embedded_url, f"other-bus-{next(_prefixes)}", **({"burst": 1_000} | case.options))
    partition.client.besides = partition.keys.object + b"*"  # series, which only their sets name
    try:
        partition.call = Functions(partition.client, partition.keys, partition.bus)
        given = case.prepare(partition)
        admin, prefix = partition.admin, partition.bus.prefix
        admin.delete(*admin.scan_iter(match=f"{prefix}:*", count=1000))
        assert open_bus(embedded_url, Settings(prefix=prefix)).id != partition.bus.id
        partition.call = Functions(partition.client, partition.keys)
        send(partition, "other", about("other"))
        drain(partition)
        before = partition.state()
        partition.call = Functions(partition.client, partition.keys, partition.bus)
        with suppress(*FAULTS):
            case.act(partition, given)
        # Who beats says nothing but the truth: it lives.
        assert changed(before, partition.state()) - {"workers"} == set()
    finally:
        partition.close()
