"""Calls functions of the library, and once more after the server lacked the library or had another bus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.function_library import load, refusal
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.errors import BusRefused, EventBusError, FunctionsForbidden, FunctionsMissing, OtherBus

R = TypeVar("R")

#: Makes the command of a function. Made again for a second call, because it contains the id of the bus.
Command: TypeAlias = Callable[[], tuple[Any, ...]]


class Call(NamedTuple, Generic[R]):
    """A call that is not sent yet: send it alone (`call`) or, over the same client, with others (`call_together`).

    *result* decodes the reply to *command*, and raises if it is a refusal.
    """

    command: Command
    result: Callable[[Any], R]

    def send(self, bus: Bus, client: Client, partition: int) -> R:
        """Send it alone. Raises: as `call`, and as *result*."""
        return self.result(call(bus, client, partition, lambda: _execute(client, self.command)))


def call(bus: Bus, client: Client, partition: int, function: Callable[[], R]) -> R:
    """Call *function*. If the server lacks the library, or has another bus, repair this and call *function* once more.

    Neither refusal had an effect. Raises: ConfigError: the other bus has another format, or other partitions.
    """
    try:
        return function()
    except (FunctionsMissing, OtherBus) as error:
        _repair(bus, client, partition, error)
    return function()


def call_together(bus: Bus, client: Client, partition: int, commands: Sequence[Command]) -> list[Any]:
    """Send the *commands* in one round trip, otherwise each as `call` does.

    Returns: for each command its reply or its error. If the connection was lost, any of them may have been executed.
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
                _repair(bus, client, partition, replies[place])
                replies[place] = _execute(client, command)
            except EventBusError as error:
                replies[place] = error
    return replies


def _execute(client: Client, command: Command) -> Any:
    with redis_errors():
        return client.execute_command(*command())


def _repair(bus: Bus, client: Client, partition: int, error: EventBusError) -> None:
    """Load the missing library, or open the other bus."""
    if isinstance(error, FunctionsForbidden):
        raise refusal(client, error) from error
    if isinstance(error, FunctionsMissing):
        load(client)
        return
    with suppress(BusRefused, FunctionsForbidden):  # without the right to open it, use it as others have opened it
        bus.open_partition(client, partition)
