"""The state of the notifier in Redis, on partition 0: its lease with a term, positions, alerts and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgpack
import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.calls import call_function
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import name_bytes, name_text, whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.model.decodable import decodable
from eventbus.model.event import ObjectReference
from eventbus.util.log import log

#: Alerts and groups in one call, and read at once.
MANY: Final = 500
#: Fields of the hash: the state of an expected event by its id, and the time of `NotifyState.caught_up_ms`.
_EXPECTED: Final = b"expected:"
_TERM: Final = b"term"
CAUGHT_UP: Final = "caught_up"


class NotifyHold(msgspec.Struct, frozen=True):
    """The reply of `acquire`: ours, under *term*, or held by *holder* with the counter *beats*.

    *now_ms*: the server's time, milliseconds since 1970.
    """

    ours: bool
    now_ms: int
    term: int = 0
    holder: str = ""
    beats: str = ""


class Report(msgspec.Struct, frozen=True):
    """An event that the notifier records, once under its *identity*."""

    identity: str
    type: str
    reason: str
    message: str
    at_ms: int


class ExpectedEvent(msgspec.Struct, kw_only=True):
    """The state of an expected event, as it is stored; times are milliseconds since 1970, 0: never.

    *since_ms*: when a notifier first knew it. *base_ms*: the deadline counts from here: its last arrival, or the last
    change of its rule. *due_ms*: the next time, *deadline_ms*: with its grace. *missing_ms*: since when it is missing.
    *reports*: not confirmed as recorded yet. *events*: uid → count of the last arrivals. *definition*: of its rule.
    """

    name: str
    object: ObjectReference
    since_ms: int
    base_ms: int
    due_ms: int = 0
    deadline_ms: int = 0
    last_ms: int = 0
    missing_ms: int = 0
    reports: list[Report] = []
    events: dict[str, int] = {}
    definition: str = ""


class NotifyState(msgspec.Struct, frozen=True):
    """The stored state: positions by partition, alerts and groups by name and expected events by id, still packed.

    *caught_up_ms*: a notifier had taken in all changes before this time.
    """

    positions: Mapping[int, int]
    records: Mapping[str, bytes]
    expected: Mapping[str, bytes] = {}
    caught_up_ms: int = 0


class NotifyStore:
    """The notifier's state, as *consumer*. One client; use it from one thread at a time."""

    def __init__(self, *, bus: Bus, client: Client, consumer: str) -> None:
        self._bus = bus
        self._client = client
        self._consumer = consumer
        self._keys = bus.keys[0]
        self._note = self._keys.note_of("bus:notify")
        self._term = self._number = 0

    def acquire(self, rules: str, holder: str = "", beats: str = "") -> NotifyHold:
        """Take or keep the lease if it is free or ours, or if *holder* has it and its counter still is *beats*.

        *rules*: the hash of this worker's rules, and ` rejected` if a newer file has a mistake. Safe to repeat.
        """
        reply = call_function(
            self._client,
            "notify_acquire",
            (self._keys.notify, self._keys.index_notify, self._note, self._keys.corrupt, self._keys.meta),
            *(self._consumer, rules, name_bytes(holder), name_bytes(beats), self._bus.id),
        )
        if reply[0] == b"OK":
            term = int(reply[1])
            if term != self._term:
                self._term, self._number = term, 0
            return NotifyHold(True, int(reply[2]), term)
        return NotifyHold(False, int(reply[3]), 0, name_text(reply[1]), name_text(reply[2]))

    def release(self) -> None:
        """Give the lease up, if we have it. Safe to repeat."""
        call_function(self._client, "notify_release", (self._keys.notify,), self._consumer)

    def settle(self, records: Mapping[str, bytes], fields: Mapping[str, str], *, life_ms: int) -> bool:
        """Store *records* and *fields*, all of them or nothing; an empty value deletes. False: another worker acts.

        *records* are `MANY` at most. Values are absolute, so it is safe to repeat, also with more of them.
        """
        self._number += 1
        given = [list(records.values()), dict(fields)]
        return bool(
            call_function(
                self._client,
                "notify_settle",
                (
                    *(self._keys.notify, self._keys.index_notify, self._note, self._keys.corrupt),
                    *(self._keys.notify_state + name.encode() for name in records),
                ),
                *(self._term, self._number, life_ms, msgpack.packb(given, use_bin_type=False)),
            )
        )

    def load(self) -> NotifyState:
        """Read the whole state. Redis: HGETALL, then as `read_records`."""
        with redis_errors():
            fields: Any = self._client.hgetall(self._keys.notify)
        positions, expected = {}, {}
        for field, text in fields.items():
            partition, position = whole_number(field.removeprefix(b"position:")), whole_number(text)
            if field.startswith(b"position:") and partition is not None and position is not None:
                positions[partition] = position
            elif field.startswith(_EXPECTED):
                expected[name_text(field.removeprefix(_EXPECTED))] = text
        caught_up_ms = whole_number(fields.get(CAUGHT_UP.encode(), b"")) or 0
        return NotifyState(positions, dict(read_records(self._bus, self._client)), expected, caught_up_ms)


def read_records(bus: Bus, client: Client, initial: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the alerts (names with `a`) and groups (`g`) by name, still packed; *initial*: only those of one letter.

    In the order of their last writes, and each once, although the notifier moves records to the end meanwhile.
    Redis: ZRANGE and MGET in pages.
    """
    seen: set[bytes] = set()
    start, offset = b"-inf", 0
    while True:
        with redis_errors():
            page: Any = client.execute_command(
                *("ZRANGE", bus.keys[0].index_notify, start, "+inf", "BYSCORE", "LIMIT", offset, MANY, "WITHSCORES")
            )
        names = [name for name in page[::2] if name not in seen]
        seen.update(names)
        wanted = [name for name in names if name.startswith(initial.encode())]
        yield from get_records(bus, client, [name.decode("ascii", "replace") for name in wanted]).items()
        if len(page) < 2 * MANY:
            return
        # From the last score again, because other members may have it too.
        start, offset = page[-1], offset + MANY if page[-1] == start else 0


def get_records(bus: Bus, client: Client, names: Sequence[str]) -> dict[str, bytes]:
    """Return the records of *names* that are there. Redis: MGET in pages."""
    found: dict[str, bytes] = {}
    for at in range(0, len(names), MANY):
        chunk = names[at : at + MANY]
        with redis_errors():
            values: Any = client.mget([bus.keys[0].notify_state + name.encode() for name in chunk])
        found.update((name, value) for name, value in zip(chunk, values, strict=True) if value is not None)
    return found


class FailingIntegration(msgspec.Struct, frozen=True, rename="camel"):
    """An integration of a receiver that is tried again. *error*: of the last try."""

    name: str
    since_ms: int
    error: str


class ReceiverState(msgspec.Struct, frozen=True):
    """A receiver of the acting rules."""

    name: str
    failing: tuple[FailingIntegration, ...] = ()


class NotifierFile(msgspec.Struct, frozen=True):
    """The rules file of a worker: its hash, and if a newer one was rejected; *seen_ms*: by the server's clock."""

    worker: str
    hash: str
    rejected: bool
    seen_ms: int


class NotifierStatus(msgspec.Struct, frozen=True):
    """The acting worker ("": none), its positions by partition, the files of all workers, its receivers."""

    holder: str
    positions: Mapping[int, int]
    files: tuple[NotifierFile, ...]
    receivers: tuple[ReceiverState, ...] = ()


_RECEIVERS: Final = msgspec.json.Decoder(decodable(tuple[ReceiverState, ...]))


def read_notifier_status(bus: Bus, client: Client) -> NotifierStatus | None:
    """Read the state of the notifier; None: there was never one, or it is forgotten. Redis: HGETALL."""
    with redis_errors():
        fields: Any = client.hgetall(bus.keys[0].notify)
    if not fields.keys() - {_TERM}:
        return None
    positions = {
        partition: position
        for partition in range(bus.partitions)
        if (position := whole_number(fields.get(b"position:%d" % partition))) is not None
    }
    files = []
    for field, text in fields.items():
        ms, _, rest = text.decode("ascii", "replace").partition(" ")
        if field.startswith(b"file:"):
            hash_, _, rejected = rest.partition(" ")
            files.append(NotifierFile(name_text(field[5:]), hash_, bool(rejected), whole_number(ms) or 0))
    try:
        receivers = _RECEIVERS.decode(fields.get(b"receivers", b"[]"))
    except msgspec.DecodeError:  # corrupt: as if it were missing, until the notifier writes it
        receivers = ()
    return NotifierStatus(name_text(fields.get(b"holder", b"")), positions, tuple(files), receivers)


def forget_notifier(bus: Bus, client: Client) -> bool:
    """Delete alerts, groups and positions: the next notifier starts as a first one. Safe to repeat.

    The term stays, so a notifier of before that still runs cannot write. Returns: False: one has taken over meanwhile.
    Redis: HGETALL, `NotifyStore.acquire`, then ZRANGE and `NotifyStore.settle` in pages.
    """
    keys = bus.keys[0]
    store = NotifyStore(bus=bus, client=client, consumer="group-delete")
    with redis_errors():
        fields: Any = client.hgetall(keys.notify)
    holder, beats = (name_text(fields.get(field, b"")) for field in (b"holder", b"beats"))
    if not store.acquire("", holder, beats).ours:
        return False
    while True:
        with redis_errors():
            names: Any = client.zrange(keys.index_notify, 0, MANY - 1)
        if not names:
            break
        if not store.settle({name_text(name): b"" for name in names}, {}, life_ms=1):
            return False
    with redis_errors():
        fields = client.hgetall(keys.notify)
    store.settle({}, {name_text(field): "" for field in fields if field != _TERM}, life_ms=1)
    return read_notifier_status(bus, client) is None


def receivers_field(receivers: Sequence[ReceiverState]) -> dict[str, str]:
    """Return the field that stores *receivers*, for `settle`."""
    return {"receivers": msgspec.json.encode(receivers).decode()}


def read_expected(bus: Bus, client: Client) -> list[ExpectedEvent]:
    """Read the expected events by name. Corrupt ones are logged and left out. Redis: HGETALL."""
    with redis_errors():
        fields: Any = client.hgetall(bus.keys[0].notify)
    found = []
    for field, text in fields.items():
        if field.startswith(_EXPECTED):
            try:
                found.append(_STATE.decode(text))
            except msgspec.DecodeError:
                log.error("the stored state of the expected event %s cannot be read", name_text(field))
    return sorted(found, key=lambda each: (each.name, each.object.namespace))


_STATE: Final = msgspec.json.Decoder(decodable(ExpectedEvent))


def expected_fields(states: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that store expected events by id, for `settle`; "" deletes one."""
    return {f"{_EXPECTED.decode()}{id_}": text for id_, text in states.items()}


def position_fields(positions: Mapping[int, int]) -> dict[str, str]:
    """Return the fields that store *positions*, for `settle`."""
    return {f"position:{partition}": str(position) for partition, position in positions.items()}
