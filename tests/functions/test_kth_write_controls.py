"""The controls of the k-th write: with the protocol broken in one place, the same stories lose, double or stop."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functions.breaking import Answer, Refusal, breakable_server, replaced
from tests.functions.stories import End, everybody_else, tell, tell_refused
from tests.functions.write_cases import CASES
from tests.thin import one

#: What is broken → (what stands in the library, what stands there instead, a case, what is said of it in the end).
CONTROLS = {
    "notes are never finished": (
        "  if not text then return false end\n",
        "  if true then return false end\n",
        "correlate_and_store: batches of new events",
        "stored are",
    ),
    "what is done is acknowledged before it is written": (
        "  redis.call('MSET', unpack(strings))\n  if noted[2] then write_changes(c) end\n",
        "  for _, each in ipairs(steps) do if each[1] == 'XACK' then perform(each, false) end end\n"
        "  redis.call('MSET', unpack(strings))\n  if noted[2] then write_changes(c) end\n",
        "correlate_and_store: batches of new events",
        "published",
    ),
    "a version is shown before what has it": (
        "  add_entry(c)\n  if #c.unnamed > 0",
        "  redis.call('SET', c.version_key, integer_text(c.last) .. ' ' .. integer_text(c.bytes))\n"
        "  add_entry(c)\n  if #c.unnamed > 0",
        "correlate_and_store: batches of new events",
        "never learns of",
    ),
    "the note is written behind the rest": (
        "  redis.call('MSET', unpack(strings))\n  if noted[2]",
        "  if #strings > 2 then redis.call('MSET', unpack(strings, 1, #strings - 2)) end\n  if noted[2]",
        "bury: a whole batch",
        "published",
    ),
    "an export's call is settled as often as it is made": (
        "if known[2] == args[5] then return 1 end",
        "",
        "export_settle: what a sink will not take",
        "dead:",
    ),
    "an entry without its counters is passed over": (
        "  if not count_late_entries(incoming, incoming_meta, known) then return nil end\n",
        "",
        "publish: the first batch of a producer",
        "published",
    ),
}


@pytest.mark.parametrize("name", one(CONTROLS))
def test_control_a_library_that_is_broken_in_one_place_is_found_out(name: str) -> None:
    right, wrong, case, sign = CONTROLS[name]
    told = whatever_fails(replaced(right, wrong), case)
    assert any(sign in line for line in told), "\n".join(told) or "it is as it should be"


def whatever_fails(change: Callable[[str], str], name: str) -> list[str]:
    """List what goes wrong in the case *name*, refused at each of its writes, with a library that was changed."""
    case = next(case for case in CASES if str(case) == name)
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder), change) as breaker:
        end: End = tell(breaker, case, everybody_else)
        found = []
        for k in range(1, len(end.writes) + 1):
            refusal = Refusal(function=case.verb, write=k, answer=Answer.WRONGTYPE)
            found += tell_refused(breaker, case, refusal, end, everybody_else)
        return found
