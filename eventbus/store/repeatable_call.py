"""Calls functions of the library, once more if the server lacked the library, or has another bus than was opened.

What needs one call is written as steps: a generator that yields the command and is sent its reply. So it is called
alone or, over the same client, together with others, in one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.function_library import load, refusal
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.errors import BusRefused, EventBusError, FunctionsForbidden, FunctionsMissing, OtherBus

R = TypeVar("R")

#: Makes the command of a function, as it is to be sent now: that of another bus is another one.
Command: TypeAlias = Callable[[], tuple[Any, ...]]
#: Yields commands on one partition, is sent the reply to each, and returns what is made of them.
Steps: TypeAlias = Generator[Command, Any, R]


def call(bus: Bus, client: Client, partition: int, function: Callable[[], R]) -> R:
    """Call *function*; if the server lacks the library, or has another bus, see to that and call *function* once more.

    Neither refusal had an effect. Raises: ConfigError: the other bus has another format, or other partitions.
    """
    try:
        return function()
    except (FunctionsMissing, OtherBus) as error:
        _mend(bus, client, partition, error)
    return function()


def call_in_steps(bus: Bus, client: Client, partition: int, steps: Steps[R]) -> R:
    """Take *steps* to their end, each by a `call`. Raises: as `call`, and what they raise."""
    try:
        command = next(steps)
        while True:
            command = steps.send(call(bus, client, partition, partial(_execute, client, command)))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def call_together(bus: Bus, client: Client, partition: int, commands: Sequence[Command]) -> list[Any]:
    """Send the *commands* in one round trip, otherwise each as `call` does.

    Returns: in the place of each its reply, or the error that it has met; of what was cut off nobody knows.
    """
    pipe: Any = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command())
    try:
        with redis_errors():
            replies: list[Any] = pipe.execute(raise_on_error=False)
    except EventBusError as error:
        return [error] * len(commands)
    for place, command in enumerate(commands):
        if not isinstance(replies[place], Exception):
            continue
        replies[place] = translate(replies[place])
        if isinstance(replies[place], FunctionsMissing | OtherBus):
            try:
                _mend(bus, client, partition, replies[place])
                replies[place] = _execute(client, command)
            except EventBusError as error:
                replies[place] = error
    return replies


def _execute(client: Client, command: Command) -> Any:
    with redis_errors():
        return client.execute_command(*command())


def _mend(bus: Bus, client: Client, partition: int, error: EventBusError) -> None:
    """See to what *error* says: the library is missing, or the bus is another one."""
    if isinstance(error, FunctionsForbidden):
        raise refusal(client, error) from error
    if isinstance(error, FunctionsMissing):
        load(client)
        return
    with suppress(BusRefused, FunctionsForbidden):  # who may not open it goes on with one that others have opened
        bus.open_partition(client, partition)
