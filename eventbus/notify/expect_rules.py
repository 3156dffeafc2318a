"""The entries of `expect` in a rules file: the matchers of an event, and when it must arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Self

from eventbus.errors import InvalidEvent
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.model.matchers import Matchers, MatchType
from eventbus.model.reference import named_reference, reference_to
from eventbus.notify.alerts import digest, ms_of
from eventbus.notify.fields import Duration, Strict
from eventbus.notify.time_intervals import Location
from eventbus.util.extras import is_needed

#: The notifier's own events about expected events.
MISSING_REASON: Final = "ExpectedEventMissing"
ARRIVED_REASON: Final = "ExpectedEventArrived"
MAX_EXPECTED: Final = 1000
#: Entries that each event is compared with, because they have no index.
MAX_UNINDEXED: Final = 20
#: Labels that entries are found by, the most selective first.
INDEXED: Final = ("name", "reason", "kind")
#: An event so much before its scheduled time counts for this time: clocks differ by seconds.
EARLY_MS: Final = 60_000
_MAX_SCHEDULE: Final = 200
_OBJECT_LABELS: Final = ("kind", "namespace", "name")


class Schedule:
    """A cron expression of five fields, with the rules of Debian's cron at changes of the clock."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def parse_field(cls, text: str) -> Self:
        """Raises: ValueError."""
        try:
            from cronsim import CronSimError
        except ImportError:
            raise ValueError(is_needed("notify")) from None
        found = cls(text)
        if len(text.split()) != 5 or len(text) > _MAX_SCHEDULE:
            raise ValueError(f"{text[:_MAX_SCHEDULE]!r} is no schedule: write five fields, as 0 3 * * *")
        try:
            found.after(datetime.now(UTC))
        except CronSimError as error:
            raise ValueError(f"{text!r} is no schedule: {error}") from None
        except StopIteration:
            raise ValueError(f"{text!r} does not happen in the next 50 years") from None
        return found

    def after(self, at: datetime) -> datetime:
        """Return the next time after *at*, in its zone."""
        from cronsim import CronSim

        return next(CronSim(self.text, at))


class ExpectRule(Strict, frozen=True, kw_only=True):
    """One entry of `expect`. *object*: the Warning is about it; "": the object that the matchers name."""

    name: str
    matchers: Matchers
    every: Duration | None = None
    schedule: Schedule | None = None
    timezone: Location = Location("UTC", UTC)
    grace: Duration | None = None
    object: str = ""

    @property
    def about(self) -> ObjectReference:
        """Return the object that the Warning is about. Raises: ValueError: nothing names it."""
        try:
            if self.object:
                return reference_to(self.object)
            named = {each.name: each.value for each in self.matchers.all if each.type is MatchType.EQUAL}
            others = {each.name for each in self.matchers.all if each.type is not MatchType.EQUAL}
            if named.get("kind") and named.get("name") and not others.intersection(_OBJECT_LABELS):
                about = named_reference(named["kind"], named["name"], named.get("namespace", ""))
                return reference_to(about)
        except InvalidEvent as error:
            raise ValueError(str(error)) from None
        raise ValueError("the matchers do not name one object with kind= and name=: add object: NAMESPACE/KIND/NAME")

    @property
    def index(self) -> tuple[str, str]:
        """Return a label and the value that each event needs which matches; ("", ""): there is none."""
        named = {each.name: each.value for each in self.matchers.all if each.type is MatchType.EQUAL}
        return next(((label, named[label]) for label in INDEXED if label in named), ("", ""))

    def takes(self, event: Event, labels: Mapping[str, str]) -> bool:
        """Return True if *event* is the expected one: a Normal one, unless a matcher has the type."""
        if event.reason in (MISSING_REASON, ARRIVED_REASON):
            return False
        return (event.type != EventType.WARNING or "type" in self.matchers.names()) and self.matchers.match(labels)

    @property
    def definition(self) -> str:
        """Return the fingerprint of what changes deadlines."""
        every, grace = (each.ms if each else 0 for each in (self.every, self.grace))
        schedule = self.schedule.text if self.schedule else ""
        return digest(str(every), str(grace), schedule, self.timezone.name, str(self.matchers))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield mistakes that the types cannot find: a field and the problem."""
        if (self.every is None) is (self.schedule is None):
            yield "every", "give every or schedule, one of them"
        if self.every is not None and not self.every.ms:
            yield "every", "must be longer than 0"
        if self.schedule is not None and self.grace is None:
            yield "grace", "a schedule takes grace: how long after each time the event may still arrive"
        if self.timezone.zone is None:
            yield "timezone", "workers may run on several machines: name the zone, as Europe/Berlin"
        if not self.matchers.all:
            yield "matchers", "give at least one"
        try:
            self.about  # noqa: B018
        except ValueError as error:
            yield "object", str(error)

    def due_ms(self, after_ms: int) -> int:
        """Return when the next event is due, if the last one was at *after_ms*."""
        if self.schedule is None:
            return after_ms + (self.every.ms if self.every else 0)
        return ms_of(self.schedule.after(self.local(after_ms + EARLY_MS)))

    def local(self, ms: int) -> datetime:
        """Return *ms* in the entry's time zone."""
        return datetime.fromtimestamp(ms / 1000, self.timezone.zone or UTC)
