"""A case told on a bus of its own: without a fault, or with one, and then compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeAlias

import msgspec
from redis.exceptions import ResponseError

from eventbus.errors import EventBusError
from tests.functions.breaking import Breaker, Executed, Refusal
from tests.functions.partition import Partition
from tests.functions.picture import Follower, balance, differences, inconsistencies, picture
from tests.functions.write_cases import Case, about, candidates, drain, go_on, send

#: What others do meanwhile.
Others: TypeAlias = Callable[[Partition], None]

#: What a call raises, and what a look at a key raises that a housekeeper takes before its call.
FAULTS = (EventBusError, ResponseError)

_prefixes = itertools.count()


class End(msgspec.Struct, frozen=True):
    """The end of an undisturbed story: the picture, and the function's commands. Keys are without the root."""

    picture: dict[str, Any]
    executed: list[Executed]

    @property
    def writes(self) -> list[Executed]:
        """In their order."""
        return [one for one in self.executed if one.writes]


class Story:
    """One run of *case*. *others*: what everybody else does between the call that has failed and its repetition."""

    def __init__(self, breaker: Breaker, case: Case, others: Others | None = None) -> None:
        self._breaker = breaker
        self._case = case
        self._others = others
        self.partition = Partition(breaker.url, f"k{next(_prefixes)}", **({"burst": 1_000} | case.options))
        self.partition.client.besides = self.partition.keys.root + b"*"
        self._given = case.prepare(self.partition)
        self._follower = Follower(self.partition)
        self._follower.look()
        self.error: Exception | None = None  #: of the last attempt
        self.is_read = True  #: a reader lists behind each attempt
        breaker.executed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._breaker.allow()
        self.partition.close()

    def undisturbed(self) -> list[Executed]:
        """Tell it without a fault. Returns what the function of the case did in its first call that wrote."""
        self._case.act(self.partition, self._given)
        root = self.partition.keys.root
        executed = [
            msgspec.structs.replace(one, arguments=tuple(word.removeprefix(root) for word in one.arguments))
            for one in self._breaker.executed()
            if one.function == self._case.verb
        ]
        self.end()
        first = next((one for one in executed if one.writes), executed[0])
        return [one for one in executed if one.call == first.call]

    def refused(self, refusal: Refusal) -> None:
        """Tell it with a write that is refused (the key of a right without the root), for a while if that is so."""
        command, key = refusal.right
        if command:
            refusal = msgspec.structs.replace(refusal, right=(command, self.partition.keys.root + key))
        self._breaker.refuse(refusal)
        self.attempt()
        if refusal.lasting:
            self.attempt_again()
            self.others()
            self.attempt_again()
        assert self._breaker.allow(), f"nothing came to {refusal}"
        self.end()

    def attempt(self) -> Exception | None:
        """Do what the case is about. Returns the error, if there was one."""
        try:
            self._case.act(self.partition, self._given)
            self.error = None
        except FAULTS as error:
            self.error = error
        if self.is_read:
            with suppress(*FAULTS):  # a reader tries again too
                self._follower.look()
        return self.error

    def attempt_again(self) -> None:
        """Repeat what has failed, and nothing else, as its caller does."""
        if self.error:
            self.attempt()

    def others(self) -> None:
        """Let the others work; they too can meet a fault."""
        if self._others:
            with suppress(*FAULTS):  # they try again in `end`
                self._others(self.partition)

    def end(self) -> None:
        """The fault is over: everybody goes on. Raises: one of FAULTS: work does not go on."""
        if self._others:
            self._others(self.partition)
        if self.error:
            self._case.act(self.partition, self._given)
        self._follower.look()
        go_on(self.partition)

    def look(self) -> tuple[dict[str, Any], list[str]]:
        """The picture, and what is wrong whatever the case: events lost or doubled, indexes, what readers have seen."""
        state = self.partition.state()
        published, accounted = balance(self.partition)
        faults = [*inconsistencies(self.partition, state), *self._follower.disagreements()]
        if published != accounted and self._case.balanced:
            faults.append(f"{published} published, {accounted} counted, buried or pending")
        return picture(self.partition, state), faults

    def not_as(self, end: End) -> list[str]:
        """A line for each thing that is wrong, or not as in the undisturbed story."""
        found, faults = self.look()
        return [*faults, *differences(end.picture, found)]


def tell(breaker: Breaker, case: Case, others: Others | None = None) -> End:
    """The story without a fault."""
    with Story(breaker, case, others) as story:
        executed = story.undisturbed()
        found, faults = story.look()
        assert not faults, faults
        return End(found, executed)


def tell_refused(breaker: Breaker, case: Case, refusal: Refusal, end: End, others: Others | None = None) -> list[str]:
    """The story with a refusal: a line for each thing that is not as in the *end* without it."""
    with Story(breaker, case, others) as story:
        try:
            story.refused(refusal)
        except FAULTS as error:
            return [f"work does not go on: {error}"]
        return story.not_as(end)


def everybody_else(partition: Partition) -> None:
    """Another producer, another worker, the housekeeper."""
    partition.call.open("0" * 16, "sink")
    send(partition, "other", about("other"))
    drain(partition, "two")
    the_house_is_kept(partition)


def the_house_is_kept(partition: Partition) -> None:
    """The housekeeper comes first: nothing is due, but streams are trimmed."""
    partition.call.trim(partition.options)
    partition.expire(keys=candidates(partition))
