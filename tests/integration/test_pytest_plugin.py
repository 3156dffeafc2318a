"""The pytest plugin, used as a user's test suite uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import os

from eventbus import EventBroadcaster, ObjectReference, make_event_recorder, make_events_recorder

WEB = ObjectReference("Pod", "default", "web-0")
OF_THE_PROGRAM = make_event_recorder("program")
OF_ITS_SERIES = make_events_recorder("example.com/program")


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


def record_all():
    OF_THE_PROGRAM.event(WEB, "Normal", "Started", "at once")
    OF_ITS_SERIES.eventf(WEB, None, "Normal", "Scaled", "Scaling", "to %d", 3)
    make_event_recorder("made in a test").event(WEB, "Normal", "Done", "all")


def test_recorders_that_the_program_has(recorded_events):
    record_all()
    assert recorded_events.reasons == ["Started", "Scaled", "Done"]


def test_they_record_for_each_test(recorded_events):
    record_all()
    assert recorded_events.reasons == ["Started", "Scaled", "Done"]


def test_they_record_on_the_bus(bus):
    record_all()
    for reason in ("Started", "Scaled", "Done"):
        bus.wait_for(reason, within_s=120)


def test_they_record_on_each_bus(bus):
    record_all()
    bus.wait_for("Started", within_s=120)


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
    environ |= {"EVENTBUS_FLUSH_S": "60", "EVENTBUS_STATE_DIR": str(tmp_path / "state")}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # ours is in the conftest.py
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout
    assert not (tmp_path / "state").exists(), "an event went to the bus of the machine"
