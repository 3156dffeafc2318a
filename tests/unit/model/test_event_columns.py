"""Events are printed as kubectl prints them; the expected text is written by hand from its rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventbus.model.columns.events import (
    by_last_seen,
    describe_events,
    events_headers,
    events_row,
    get_headers,
    get_row,
    interval,
)
from eventbus.model.event import Event, EventSeries, EventSource, ObjectMeta, ObjectReference
from eventbus.util.table import Cell, Colour, format_table

NOW = datetime(2024, 3, 1, 12, 0, 0, tzinfo=UTC)


def ago(**units: float) -> datetime:
    return NOW - timedelta(**units)


def event(**fields: Any) -> Event:
    return Event(
        **{
            "metadata": ObjectMeta(name="web-0.17b8", namespace="shop"),
            "involved_object": ObjectReference(kind="Pod", namespace="shop", name="web-0"),
            "type": "Normal",
            "reason": "Pulled",
            "message": "Container image pulled",
            **fields,
        }
    )


BACK_OFF = event(
    metadata=ObjectMeta(name="web-0.17b8c0ffee", namespace="shop"),
    involved_object=ObjectReference(
        kind="Pod", namespace="shop", name="web-0", field_path="spec.containers{web}", uid="u-1"
    ),
    type="Warning",
    reason="BackOff",
    message="  Back-off restarting failed container\n",
    source=EventSource(component="kubelet", host="node-1"),
    count=5,
    first_timestamp=ago(minutes=11),
    last_timestamp=ago(minutes=3, seconds=27),
)
#: A lone event of the new kind: no count, no timestamps but eventTime.
BOUND = event(
    metadata=ObjectMeta(name="db.17b8", namespace="data"),
    involved_object=ObjectReference(kind="StatefulSet", namespace="data", name="db"),
    reason="Bound",
    message="Volume bound",
    event_time=ago(seconds=45),
    reporting_component="volume-controller",
    reporting_instance="vc-7",
)
SERIES = event(
    metadata=ObjectMeta(name="web-0.series", namespace="shop"),
    reason="Probing",
    message="still probing",
    event_time=ago(hours=2),
    series=EventSeries(count=40, last_observed_time=ago(seconds=9)),
    reporting_component="prober",
)


def cells(row: Any) -> list[str]:
    return [cell.text if isinstance(cell, Cell) else cell for cell in row]


# -- get events ---------------------------------------------------------------------------------------------------


def test_get_events_prints_how_often_before_the_message() -> None:
    assert format_table(get_headers(), [get_row(each, now=NOW) for each in (BACK_OFF, BOUND, SERIES)]) == (
        "LAST SEEN   TYPE      REASON    OBJECT           COUNT   MESSAGE\n"
        "3m27s       Warning   BackOff   pod/web-0        5       Back-off restarting failed container\n"
        "45s         Normal    Bound     statefulset/db   1       Volume bound\n"
        "9s          Normal    Probing   pod/web-0        40      still probing\n"
    )


def test_get_events_wide_prints_ten_columns() -> None:
    rows = [get_row(each, now=NOW, wide=True) for each in (BACK_OFF, BOUND)]
    assert format_table(get_headers(wide=True), rows).splitlines() == [
        "LAST SEEN   TYPE      REASON    OBJECT           SUBOBJECT              SOURCE                    "
        "MESSAGE                                FIRST SEEN   COUNT   NAME",
        "3m27s       Warning   BackOff   pod/web-0        spec.containers{web}   kubelet, node-1           "
        "Back-off restarting failed container   11m          5       web-0.17b8c0ffee",
        "45s         Normal    Bound     statefulset/db                          volume-controller, vc-7   "
        "Volume bound                           45s          1       db.17b8",
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_get_events_of_all_namespaces_puts_the_namespace_first(wide: bool) -> None:
    headers = get_headers(wide=wide, all_namespaces=True)
    row = get_row(BOUND, now=NOW, wide=wide, all_namespaces=True)
    assert headers[:2] == ("Namespace", "Last Seen")
    assert cells(row)[:2] == ["data", "45s"]
    assert len(headers) == len(row) == (11 if wide else 7)


def test_an_object_without_a_name_is_only_its_kind() -> None:
    nameless = event(involved_object=ObjectReference(kind="Node"))
    assert cells(get_row(nameless, now=NOW))[3] == "node"


@pytest.mark.parametrize(
    ("times", "last_seen", "first_seen"),
    [
        ({}, "<unknown>", "<unknown>"),
        ({"event_time": ago(seconds=5)}, "5s", "5s"),
        ({"first_timestamp": ago(seconds=7)}, "7s", "7s"),
        ({"first_timestamp": ago(seconds=7), "event_time": ago(seconds=5)}, "7s", "7s"),
        ({"first_timestamp": ago(seconds=7), "last_timestamp": ago(seconds=3)}, "3s", "7s"),
        ({"event_time": ago(seconds=5), "last_timestamp": ago(seconds=3)}, "3s", "5s"),
        (
            {"last_timestamp": ago(seconds=3), "series": EventSeries(count=2, last_observed_time=ago(seconds=1))},
            "1s",
            "<unknown>",
        ),
        ({"last_timestamp": ago(seconds=3), "series": EventSeries(count=2)}, "<unknown>", "<unknown>"),
    ],
)
def test_get_events_takes_each_time_from_the_first_field_that_has_it(
    times: dict[str, Any], last_seen: str, first_seen: str
) -> None:
    row = cells(get_row(event(**times), now=NOW, wide=True))
    assert (row[0], row[7]) == (last_seen, first_seen)


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({}, ""),
        ({"source": EventSource(component="kubelet")}, "kubelet"),
        ({"source": EventSource(component="kubelet", host="node-1")}, "kubelet, node-1"),
        ({"reporting_component": "prober"}, "prober"),
        ({"reporting_component": "prober", "reporting_instance": "prober-1"}, "prober, prober-1"),
        ({"source": EventSource(component="kubelet"), "reporting_instance": "prober-1"}, "kubelet, prober-1"),
        (
            {
                "source": EventSource(component="kubelet", host="node-1"),
                "reporting_component": "prober",
                "reporting_instance": "prober-1",
            },
            "kubelet, node-1",
        ),
    ],
)
def test_the_source_falls_back_to_who_reports(fields: dict[str, Any], source: str) -> None:
    assert cells(get_row(event(**fields), now=NOW, wide=True))[5] == source


# -- events -------------------------------------------------------------------------------------------------------


def test_events_prints_how_often_and_the_kind_as_it_is_written() -> None:
    assert format_table(events_headers(), [events_row(each, now=NOW) for each in (BACK_OFF, BOUND, SERIES)]) == (
        "LAST SEEN             TYPE      REASON    OBJECT           MESSAGE\n"
        "3m27s (x5 over 11m)   Warning   BackOff   Pod/web-0        Back-off restarting failed container\n"
        "45s                   Normal    Bound     StatefulSet/db   Volume bound\n"
        "9s (x40 over 120m)    Normal    Probing   Pod/web-0        still probing\n"
    )


def test_events_of_all_namespaces_puts_the_namespace_first() -> None:
    rows = [events_row(BOUND, now=NOW, all_namespaces=True)]
    assert format_table(events_headers(all_namespaces=True), rows) == (
        "NAMESPACE   LAST SEEN   TYPE     REASON   OBJECT           MESSAGE\n"
        "data        45s         Normal   Bound    StatefulSet/db   Volume bound\n"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "<unknown>"),
        ({"first_timestamp": ago(seconds=7)}, "7s"),
        ({"first_timestamp": ago(seconds=7), "event_time": ago(seconds=5)}, "5s"),
        ({"first_timestamp": ago(minutes=11), "last_timestamp": ago(seconds=5), "count": 1}, "11m"),
        ({"first_timestamp": ago(minutes=11), "last_timestamp": ago(seconds=5), "count": 2}, "5s (x2 over 11m)"),
        ({"first_timestamp": ago(minutes=11), "count": 2}, "<unknown> (x2 over 11m)"),
        (
            {
                "first_timestamp": ago(minutes=11),
                "last_timestamp": ago(seconds=5),
                "count": 2,
                "series": EventSeries(count=1, last_observed_time=ago(seconds=3)),
            },
            "3s (x1 over 11m)",
        ),
    ],
)
def test_the_interval_is_that_of_the_series_else_of_the_count_else_the_first_time(
    fields: dict[str, Any], said: str
) -> None:
    assert interval(event(**fields), NOW) == said


def test_events_are_sorted_by_when_they_were_last_seen_and_stay_in_order_otherwise() -> None:
    timeless = event(reason="timeless")
    by_count = event(reason="by count", last_timestamp=ago(minutes=2), event_time=ago(seconds=1))
    by_event_time = event(reason="by event time", event_time=ago(minutes=1), first_timestamp=ago(days=1))
    twin = event(reason="twin", event_time=ago(minutes=1))
    by_series = event(
        reason="by series", last_timestamp=ago(days=1), series=EventSeries(last_observed_time=ago(seconds=30))
    )
    mixed = [by_series, by_event_time, twin, by_count, timeless]
    assert [each.reason for each in by_last_seen(mixed)] == [
        "timeless",
        "by count",
        "by event time",
        "twin",
        "by series",
    ]


# -- describe -----------------------------------------------------------------------------------------------------


def test_describe_prints_the_events_section_sorted_by_last_timestamp() -> None:
    back_off = event(
        type="Warning",
        reason="BackOff",
        message="Back-off restarting failed container",
        source=EventSource(component="kubelet", host="node-1"),
        count=5,
        first_timestamp=ago(minutes=11),
        last_timestamp=ago(minutes=3, seconds=38),
    )
    starting = event(
        reason="Starting",
        message=" Starting web ",
        reporting_component="prober",
        reporting_instance="prober-1",
        event_time=ago(seconds=2),
    )
    assert describe_events([back_off, starting], now=NOW) == (
        "Events:\n"
        "  Type     Reason    Age                  From     Message\n"
        "  ----     ------    ----                 ----     -------\n"
        "  Normal   Starting  2s                   prober   Starting web\n"
        "  Warning  BackOff   3m38s (x5 over 11m)  kubelet  Back-off restarting failed container\n"
    )


def test_describe_says_which_part_of_the_object_is_meant() -> None:
    assert (
        describe_events([BACK_OFF], now=NOW)
        .splitlines()[-1]
        .endswith("  kubelet  spec.containers{web}: Back-off restarting failed container")
    )


def test_describe_without_events_says_none_where_the_other_values_stand() -> None:
    assert describe_events([], now=NOW) == "Events:  <none>\n"
    assert describe_events([], now=NOW, label_width=14) == "Events:       <none>\n"


# -- colour --------------------------------------------------------------------------------------------------------


def test_only_warnings_are_coloured_and_only_when_told() -> None:
    assert get_row(BACK_OFF, now=NOW, colour=True)[1] == Cell("Warning", Colour.YELLOW)
    assert events_row(BACK_OFF, now=NOW, colour=True)[1] == Cell("Warning", Colour.YELLOW)
    assert "\x1b[33mWarning\x1b[0m  BackOff" in describe_events([BACK_OFF], now=NOW, colour=True)
    assert get_row(BOUND, now=NOW, colour=True)[1] == Cell("Normal", Colour.PLAIN)
    assert get_row(BACK_OFF, now=NOW)[1] == Cell("Warning", Colour.PLAIN)
    assert "\x1b" not in describe_events([BACK_OFF], now=NOW)
