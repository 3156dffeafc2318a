"""A written event is copied to `incoming` before it is stored: no copy may be left of what is not stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions.breaking import Answer, Breaker, Refusal, breakable_server
from tests.functions.stories import Story, tell
from tests.functions.write_cases import COPYING, Case


@pytest.fixture(scope="module")
def breaker() -> Iterator[Breaker]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder)) as found:
        yield found


@pytest.mark.parametrize("case", COPYING, ids=str)
def test_whatever_right_is_lacking_nothing_is_copied_that_is_not_stored(breaker: Breaker, case: Case) -> None:
    writes = tell(breaker, case).writes
    assert writes[0].command == "XADD", "the copy goes first"
    wrong = []
    for command, key in dict.fromkeys((one.command, one.keys[0]) for one in writes):
        with Story(breaker, case) as story:
            partition, root = story.partition, story.partition.keys.root
            before = (partition.version(), partition.admin.xlen(partition.keys.incoming))
            breaker.refuse(Refusal(function=case.verb, right=(command, root + key)))
            error = story.attempt()
            stored = partition.admin.exists(partition.keys.note_of("events")) or partition.version() != before[0]
            copied = partition.admin.xlen(partition.keys.incoming) - before[1]
            if error is None or copied != int(stored):
                wrong.append(f"{command} {key.decode()}: {copied} copied, stored: {bool(stored)}, {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", COPYING, ids=str)
def test_what_no_server_says_beforehand_can_leave_a_copy_too_many_and_never_one_too_few(
    breaker: Breaker, case: Case
) -> None:
    wrong = []
    for k, write in enumerate(tell(breaker, case).writes, 1):
        with Story(breaker, case) as story:
            partition = story.partition
            before = partition.admin.xlen(partition.keys.incoming)
            breaker.refuse(Refusal(function=case.verb, write=k, answer=Answer.WRONGTYPE))
            story.attempt()
            stored = bool(partition.admin.exists(partition.keys.note_of("events")))
            copied = partition.admin.xlen(partition.keys.incoming) - before
            if copied != int(k > 1) or stored != (k > 3):
                wrong.append(f"write {k}, {write.command}: {copied} copied, stored: {stored}")
            breaker.allow()
            story.end()
    assert not wrong, "\n".join(wrong)
