"""The pytest plugin, used as a user's test suite uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import os

from eventbus import EventBroadcaster, ObjectReference, make_event_recorder

WEB = ObjectReference("Pod", "default", "web-0")


def program():
    make_event_recorder("shop").event(WEB, "Warning", "BackOff", "restarting %s" % "app")


def test_recorded(recorded_events):
    program()
    with EventBroadcaster() as broadcaster:
        broadcaster.new_recorder("other").event("Job/7", "Normal", "Done", "all")
    assert recorded_events.lines == ["Warning BackOff Pod/web-0: restarting app", "Normal Done Job/7: all"]
    assert recorded_events.reasons == ["BackOff", "Done"]
    assert [event.type for event in recorded_events.about("Pod/web-0")] == ["Warning"]
    assert not recorded_events.about("shop/Pod/web-0")


def test_nothing_is_left_over(recorded_events):
    assert len(recorded_events) == 0


def test_bus(bus):
    assert os.environ["EVENTBUS_PREFIX"] == bus.settings.prefix
    with EventBroadcaster() as broadcaster:
        recorder = broadcaster.new_recorder("shop")
        for _ in range(3):
            recorder.event(WEB, "Warning", "BackOff", "restarting app")
    assert bus.wait_for(lambda event: event.count == 3, within_s=120).involved_object.name == "web-0"


def test_a_bus_of_its_own(bus):
    assert not bus.store.list().items
"""


def test_a_suite_that_uses_it(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["eventbus.testing.plugin"]\n')
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("EVENTBUS_", "PYTEST_"))}
    environ["EVENTBUS_FLUSH_S"] = "60"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
