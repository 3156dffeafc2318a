"""All stories of the docs at once, with take-overs in the middle: exactly these messages, each explained by a trace."""

from __future__ import annotations

import re

import pytest

from eventbus.model.matchers import labels_of
from eventbus.notify.alerts import alert_id
from eventbus.notify.engine import Occurrence
from eventbus.notify.explain import NotifierView, trace
from eventbus.notify.rules import parse_rules
from tests.unit.notify.test_engine import MUTE, NODE
from tests.unit.notify.test_silencing import Quiet

RULES = """
route:
  receiver: chat
  group_by: [reason]
  repeat_interval: 2h
  resolve_after: 4h
  routes:
  - {matchers: [reason="Flaps"], group_interval: 10m}
  - {matchers: [reason="Muted"], mute_time_intervals: [noon]}
receivers:
- {name: chat, webhook_configs: [{url: "https://chat.example"}]}
%s
%s
"""


class Story(Quiet):
    """A world with traces, and a group for each reason."""

    def __init__(self) -> None:
        super().__init__(parse_rules(RULES % (MUTE, NODE)).rules)

    def of(self, reason: str) -> list[tuple[float, str, int, int]]:
        """Return minute, reason, firing and resolved alerts of the messages about *reason*."""
        return [
            (message.minute, message.reason, message.firing, message.resolved)
            for message, sent in zip(self.messages, self.sent, strict=True)
            if sent.group_labels.get("reason") == reason
        ]

    def explain(self, occurrence: Occurrence) -> str:
        """Return the trace of an event from the stored state."""
        id_ = alert_id(labels_of(occurrence.event))
        groups = [group for group in self.engine.groups.values() if id_ in group.alerts]
        silences, acknowledgements = [*self.silences.values()], [*self.acknowledgements.values()]
        stored = NotifierView(groups, self.engine.alerts, {}, silences, acknowledgements)
        return "\n".join(trace(self.rules, occurrence.event, stored, self.now_ms))


@pytest.mark.parametrize("deaths", [(), (7, 33, 61, 123)], ids=["one worker", "take-overs"])
def test_the_stories_of_the_docs_at_once(deaths: tuple[int, ...]) -> None:
    world = Story()
    pods = [world.event(f"api-{n}", "FailedScheduling") for n in range(400)]
    lost = [world.event(f"db-{n}", "NodeLost", host="node-1") for n in range(30)]
    world.happens(*pods, *lost, world.event("node-1", "NodeNotReady", kind="Node"), world.event("m", "Muted"))
    traces: dict[str, str] = {}
    for minute in range(0, 181):
        world.until(minute)
        if minute in deaths:
            world.take_over()
        if minute % 5 == 0:
            loop = world.event("loop", "BackOff")
            world.happens(loop)
        if minute % 2 == 0 and minute < 60:
            world.happens(flap := world.event("flap", "Flaps"))
        if minute % 2 == 1 and minute < 60:
            world.happens(world.event("flap", "Ready", type_="Normal"))
        if minute == 30:
            traces |= {"loop": world.explain(loop), "pods": world.explain(pods[7]), "flap": world.explain(flap)}
            traces |= {"lost": world.explain(lost[0]), "muted": world.explain(world.event("m", "Muted", times=0))}
        if minute == 100:
            world.happens(world.event("node-1", "NodeReady", kind="Node", type_="Normal"))
    world.until(245)
    promised: dict[str, list[tuple[float, str, int, int]]] = {
        "FailedScheduling": [(0.5, "first", 400, 0), (120.5, "repeat", 400, 0), (240.5, "all-resolved", 0, 400)],
        "BackOff": [(0.5, "first", 1, 0), (120.5, "repeat", 1, 0), (195.5, "all-resolved", 0, 1)],
        "NodeNotReady": [(0.5, "first", 1, 0), (100.5, "all-resolved", 0, 1)],
        "NodeLost": [(100.5, "first", 30, 0), (220.5, "repeat", 30, 0), (240.5, "all-resolved", 0, 30)],
        "Flaps": [(0.5, "first", 1, 0), (60.5, "all-resolved", 0, 1)],
        "Muted": [(60, "first", 1, 0), (180, "repeat", 1, 0), (240, "all-resolved", 0, 1)],
    }
    for reason, messages in promised.items():
        assert [row[1:] for row in world.of(reason)] == [row[1:] for row in messages]
        # A take-over looks at groups at once, so the times of later checks move by less than a `group_interval`.
        moves = [found[0] - wanted[0] for found, wanted in zip(world.of(reason), messages, strict=True)]
        assert all(abs(move) < 5 if deaths else move == 0 for move in moves), (reason, moves)
    for name, line in {
        "loop": r"webhook\[0\]: number 1 \(first\) of 2026-11-25 12:00:30Z was accepted .*, as firing",
        "pods": r"opened 2026-11-25 12:00:00Z, 400 alerts\n  webhook\[0\]: number 1 \(first\)",
        "flap": r"webhook\[0\]: number 1 \(first\) of 2026-11-25 12:00:30Z",
        "lost": r"this alert is inhibited by alert \w+: Node shop node-1 NodeNotReady",
        "muted": r"muted until 2026-11-25 13:00:00Z by the time intervals of",
    }.items():
        assert re.search(line, traces[name]), (name, traces[name])


def test_a_silence_over_all_of_it_and_its_trace() -> None:
    world = Story()
    world.silence('namespace="shop"', 0, 50)
    pods = [world.event(f"api-{n}", "FailedScheduling") for n in range(400)]
    world.happens(*pods, *[world.event(f"db-{n}", "NodeLost", host="node-1") for n in range(30)])
    world.happens(world.event("node-1", "NodeNotReady", kind="Node"), world.event("m", "Muted"))
    for minute in range(0, 80):
        world.until(minute)
        if minute in (7, 48, 52):
            world.take_over()
        if minute % 5 == 0:
            world.happens(world.event("loop", "BackOff"))
        if minute == 30:
            explained = world.explain(pods[0])
    for reason, messages in {
        "FailedScheduling": [(50, "first", 400, 0)],
        "NodeNotReady": [(50, "first", 1, 0)],
        "BackOff": [(50, "first", 1, 0)],
        "Muted": [(60, "first", 1, 0)],
        "NodeLost": [],
    }.items():
        assert world.of(reason) == messages
    assert "silenced by s until 2026-11-25 12:50:00Z, created by ann" in explained
    assert "webhook[0]: nothing was sent: silenced, inhibited, muted, or resolved before" in explained
