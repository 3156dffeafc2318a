"""Describes an object from its events."""

from __future__ import annotations

from datetime import timedelta

from eventbus.cli.printers.description import describe_objects, description_to_json, format_description
from eventbus.model.event import Event, EventSource
from tests.builders import NOW, make_event, make_reference


def minutes(n: float) -> timedelta:
    return timedelta(minutes=n)


def events_of_web_0() -> list[Event]:
    """A pod that was scheduled, then failed again and again; it was made anew once."""
    old, new = make_reference(uid="old"), make_reference(uid="new")
    return [
        make_event(
            involved_object=new,
            type="Warning",
            reason="BackOff",
            message="restarting failed container",
            first_timestamp=NOW - minutes(11),
            last_timestamp=NOW - minutes(3.45),
            count=40,
        ),
        make_event(
            involved_object=old,
            reason="Scheduled",
            source=EventSource(component="scheduler"),
            first_timestamp=NOW - minutes(50),
            last_timestamp=NOW - minutes(50),
        ),
        make_event(
            involved_object=new,
            type="Warning",
            reason="EventsSuppressed",
            first_timestamp=NOW - minutes(2),
            last_timestamp=NOW - minutes(2),
            count=12,
        ),
    ]


def test_times_span_all_events_and_uids_are_told_the_latest_first() -> None:
    (described,) = describe_objects(events_of_web_0())
    assert described.first_seen == NOW - minutes(50)
    assert described.last_seen == NOW - minutes(2)
    assert described.uids == ["new", "old"]
    assert described.sources == ["kubelet, node-1", "scheduler"]


def test_reasons_are_counted_without_what_was_held_back() -> None:
    (described,) = describe_objects(events_of_web_0())
    assert [(row.type, row.reason, row.seen) for row in described.reasons] == [
        ("Warning", "BackOff", 40),
        ("Normal", "Scheduled", 1),
    ]
    assert described.suppressed == 12


def test_the_page_has_kubectl_s_events_section_at_its_end() -> None:
    (described,) = describe_objects(events_of_web_0()[:1])
    assert format_description(described, now=NOW) == (
        "Name:         web-0\n"
        "Namespace:    default\n"
        "Kind:         Pod\n"
        "API Version:  v1\n"
        "UID:          new\n"
        "First Seen:   Mon, 01 Jan 2024 11:49:00 +0000 (11m ago)\n"
        "Last Seen:    Mon, 01 Jan 2024 11:56:33 +0000 (3m27s ago)\n"
        "Reasons:      Warning  BackOff x40\n"
        "Sources:      kubelet on node-1\n"
        "Events:\n"
        "  Type     Reason   Age                   From     Message\n"
        "  ----     ------   ----                  ----     -------\n"
        "  Warning  BackOff  3m27s (x40 over 11m)  kubelet  restarting failed container\n"
    )


def test_text_from_outside_cannot_write_on_the_terminal() -> None:
    event = make_event(source=EventSource(component="\x1b]52;c;evil\x07"), message="a\rb")
    (described,) = describe_objects([event])
    text = format_description(described, now=NOW)
    assert "\x1b" not in text
    assert "\r" not in text


def test_the_same_name_in_two_namespaces_is_two_objects() -> None:
    other = make_event(involved_object=make_reference(namespace="shop"))
    assert [one.namespace for one in describe_objects([make_event(), other])] == ["default", "shop"]


def test_json_has_times_of_rfc_3339_and_events_of_core_v1() -> None:
    (described,) = describe_objects(events_of_web_0()[:1])
    data = description_to_json(described)
    assert data["firstSeen"] == "2024-01-01T11:49:00Z"
    assert data["events"][0]["involvedObject"]["name"] == "web-0"
    assert data["reasons"] == [{"type": "Warning", "reason": "BackOff", "events": 1, "seen": 40}]
