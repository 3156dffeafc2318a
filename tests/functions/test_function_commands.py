"""The table that rights are made of says what the functions do: held against every command they really run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.acl import Function, functions_used, name_of
from tests.functions.breaking import Breaker, Executed, breakable_server
from tests.functions.stories import Story
from tests.functions.write_cases import CASES, COPYING, Case


@pytest.fixture(scope="module")
def breaker() -> Iterator[Breaker]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder)) as found:
        yield found


def allowed(function: Function, one: Executed, story: Story) -> bool:
    """Return True if one use of the table covers the command and all its keys."""
    keys, prefix = story.partition.keys, story.partition.bus.prefix

    def is_named(key: bytes, name: str) -> bool:
        start = name_of(prefix, keys, name)
        return key.startswith(start) if start.endswith(b":") or name == "object" else key == start

    return any(
        use.command == one.command and all(any(is_named(key, name) for name in use.keys) for key in one.keys)
        for use in function.uses
    )


@pytest.mark.parametrize("case", [*CASES, *COPYING], ids=str)
def test_each_command_that_runs_stands_in_the_table(breaker: Breaker, case: Case) -> None:
    with Story(breaker, case) as story:
        case.act(story.partition, story._given)
        executed = [one for one in breaker.executed() if one.function == case.verb]
        assert executed
        function = functions_used()[case.verb]
        missing = {f"{one.command} {one.keys[:3]}" for one in executed if not allowed(function, one, story)}
        assert not missing
