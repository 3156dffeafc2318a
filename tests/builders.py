"""Values for tests: one sensible event with what matters to the test changed, many similar ones, and any valid one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from eventbus.model.event import Event, EventSeries, EventSource, ObjectMeta, ObjectReference
from eventbus.model.reference import reference_to
from eventbus.record.packing import Pending, pack

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)


def make_reference(**overrides: Any) -> ObjectReference:
    """The pod default/web-0."""
    fields = {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "uid-1", "api_version": "v1"}
    return ObjectReference(**(fields | overrides))


def make_event(**overrides: Any) -> Event:
    """Make the event that a recorder makes at NOW about `make_reference()`. Metadata follows the involved object."""
    about: ObjectReference = overrides.get("involved_object", make_reference())
    first: datetime = overrides.get("first_timestamp", NOW)
    source: EventSource = overrides.get("source", EventSource(component="kubelet", host="node-1"))
    fields: dict[str, Any] = {
        "metadata": ObjectMeta(name=f"{about.name}.17a6101701650000", namespace=about.namespace or "default"),
        "involved_object": about,
        "reason": "Started",
        "message": "Started container web",
        "source": source,
        "first_timestamp": first,
        "last_timestamp": first,
        "count": 1,
        "type": "Normal",
        "reporting_component": source.component,
        "reporting_instance": source.host,
    }
    return Event(**(fields | overrides))


def make_packed_in_series(
    at_ms: int,
    *,
    controller: str = "example.com/c",
    instance: str = "one",
    reason: str = "Failed",
    action: str = "Binding",
    type: str = "Normal",
    name: str = "web-0",
    uid: str = "uid-1",
    related: str = "",
    note: str = "note",
) -> bytes:
    """The bytes of the event that a recorder of events.k8s.io makes at that time, in ms since 1970."""
    return pack(
        Pending(
            (controller, instance),
            make_reference(name=name, uid=uid),
            type,
            reason,
            note,
            at_ms * 1_000_000,
            action=action,
            related=reference_to(related) if related else None,
        )
    )


def make_similar_events(n: int, *, message: str = "message", **overrides: Any) -> list[Event]:
    """*n* events that differ in nothing but their message and their name: what an aggregator folds."""
    return [
        make_event(metadata=_named(i, overrides), message=f"{message}-{i}", **_without_metadata(overrides))
        for i in range(n)
    ]


def make_repeated_events(n: int, *, every: timedelta = timedelta(seconds=1), **overrides: Any) -> list[Event]:
    """*n* times the same event, *every* so long after the one before: what an observer counts."""
    return [
        make_event(
            metadata=_named(i, overrides),
            **{"first_timestamp": NOW + i * every, "last_timestamp": NOW + i * every} | _without_metadata(overrides),
        )
        for i in range(n)
    ]


def _named(i: int, overrides: dict[str, Any]) -> ObjectMeta:
    about: ObjectReference = overrides.get("involved_object", make_reference())
    given: ObjectMeta | None = overrides.get("metadata")
    namespace = given.namespace if given else about.namespace or "default"
    return ObjectMeta(
        name=f"{about.name}.{0x17A6101701650000 + i:x}",
        namespace=namespace,
        labels=given.labels if given else {},
        annotations=given.annotations if given else {},
    )


def _without_metadata(overrides: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in overrides.items() if field != "metadata"}


def texts(max_size: int = 40) -> st.SearchStrategy[str]:
    """Any text that can be stored: no surrogates, no NUL."""
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=max_size)


def times(*, whole_seconds: bool = False) -> st.SearchStrategy[datetime]:
    """A time in UTC from year 2 to 9998; year 1 begins with what Go calls no time at all."""
    moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))
    return moments.map(lambda moment: moment.replace(microsecond=0)) if whole_seconds else moments


#: The characters of names. Without an alphabet, st.text and st.from_regex compute that of UTF-8, which takes 2 s.
ascii_characters = st.characters(codec="ascii")
#: DNS-1123 labels.
labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True, alphabet=ascii_characters)
namespaces = st.just("") | labels
qualified_names = st.from_regex(
    r"([a-z0-9]{1,9}\.example/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,9}[A-Za-z0-9])?",
    fullmatch=True,
    alphabet=ascii_characters,
)
counts = st.integers(-(2**31), 2**31 - 1)


def references(namespace: st.SearchStrategy[str] = namespaces) -> st.SearchStrategy[ObjectReference]:
    """Any valid reference, also one without kind or name."""
    return st.builds(
        ObjectReference,
        kind=texts(15),
        namespace=namespace,
        name=texts(),
        uid=texts(),
        api_version=texts(),
        resource_version=texts(),
        field_path=texts(),
    )


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Any valid event with any of its fields set; old or new style; times as JSON can hold them, in UTC."""
    about = draw(references())
    new_style = draw(st.booleans())
    cluster_scoped = ["default", "kube-system"] if new_style else ["default", ""]
    required = texts(30).filter(bool) if new_style else texts(30)
    unset = st.none()
    return Event(
        metadata=draw(_metadata(about.namespace or draw(st.sampled_from(cluster_scoped)))),
        involved_object=about,
        reason=draw(required),
        message=draw(texts(200)),
        source=draw(st.builds(EventSource, component=texts(30), host=texts(30))),
        first_timestamp=draw(unset | times(whole_seconds=True)),
        last_timestamp=draw(unset | times(whole_seconds=True)),
        count=draw(counts),
        type=draw(st.sampled_from(["Normal", "Warning"])),
        event_time=draw(times()) if new_style else None,
        series=draw(unset | st.builds(EventSeries, count=counts, last_observed_time=unset | times())),
        action=draw(required),
        related=draw(unset | references()),
        reporting_component=draw(qualified_names if new_style else texts(30)),
        reporting_instance=draw(required),
    )


def _metadata(namespace: str) -> st.SearchStrategy[ObjectMeta]:
    return st.builds(
        ObjectMeta,
        name=texts(),
        generate_name=texts(),
        namespace=st.just(namespace),
        uid=texts(),
        resource_version=texts(),
        creation_timestamp=st.none() | times(whole_seconds=True),
        labels=st.dictionaries(qualified_names, st.just("") | labels, max_size=3),
        annotations=st.dictionaries(texts(20).filter(bool), texts(), max_size=3),
    )
