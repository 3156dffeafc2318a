"""`eventbus watch-systemd` as processes, with a stand-in for journalctl: each change is recorded once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventbus import Event, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.model.kinds import EVENT
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from tests.acceptance.programs import Program, environment, run
from tests.support.api_in_process import serving
from tests.support.journalctl import JOB_FAILED, STARTED, STOPPED, JournalFile
from tests.waiting import eventually

UNIT = "shop@1.service"


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Iterator[Bus]:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=20)
    runner.start()
    yield bus
    runner.stop(30)


@pytest.fixture
def journal(tmp_path: Path) -> JournalFile:
    journal = JournalFile(tmp_path)
    journal.manage("old.service", STARTED, "Started old.service.", "0" * 32)
    return journal


@pytest.fixture
def env(embedded_url: str, prefix: str, journal: JournalFile, tmp_path: Path) -> dict[str, str]:
    env = environment(embedded_url, prefix, state_dir=str(tmp_path / "state"))
    return env | {"PATH": f"{journal.programs}:{env['PATH']}"}


@contextmanager
def watching(env: dict[str, str], folder: Path, *words: str) -> Iterator[Program]:
    """Run one that has begun; it ends tidily."""
    with Program("watch-systemd", *words, env=env, folder=folder) as program:
        eventually(lambda: (folder / "state" / "watch-systemd").exists())
        yield program
        assert program.stop() == 0


def stored(bus: Bus) -> dict[tuple[str, str], Event]:
    with ObjectStore.of(bus) as store:
        found = store.objects(EVENT).list().items
    return {(event.involved_object.name, event.reason): event for event in found}


def counts(bus: Bus) -> dict[tuple[str, str], int]:
    return {key: event.count for key, event in stored(bus).items()}


def test_starts_stops_failures_and_restarts_of_a_unit_are_recorded(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with watching(env, tmp_path, "-n", "shop", "--node", "n1"):
        for number in (1, 2):
            invocation = f"{number:032x}"
            journal.start(UNIT, invocation)
            journal.say(UNIT, "of another run", "f" * 32)
            journal.say(UNIT, "connecting", invocation)
            journal.say(UNIT, "cannot open config")  # of a process that was too short for journald
            journal.fail(UNIT, invocation)
            journal.restart(UNIT, invocation, number)
        journal.start("job.service", "a" * 32, "Finished job.service - A job.")
        journal.manage("web.service", STOPPED, "web.service: Deactivated successfully.", "b" * 32)
        eventually(lambda: ("web.service", "Stopped") in stored(bus))
    found = stored(bus)
    assert counts(bus) == {
        (UNIT, "Started"): 2,
        (UNIT, "Failed"): 2,
        (UNIT, "Restarting"): 2,
        ("job.service", "Completed"): 1,
        ("web.service", "Stopped"): 1,
    }
    failed = found[UNIT, "Failed"]
    assert failed.message == "result exit-code, exit code 3. Last lines: connecting | cannot open config"
    assert (failed.type, failed.source.component, failed.source.host) == ("Warning", "systemd", "n1")
    assert (failed.involved_object.kind, failed.involved_object.namespace) == ("Unit", "shop")
    assert {event.type for (_, reason), event in found.items() if reason != "Failed"} == {"Normal"}


def test_a_signal_is_named(bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path) -> None:
    with watching(env, tmp_path, "--lines", "0"):
        journal.say("a.service", "a secret", "1" * 32)
        journal.fail("a.service", "1" * 32, "killed", "9")
        journal.fail("b.service", "2" * 32, "dumped", "11")
        journal.fail("c.service", "3" * 32, "killed", "40")
        eventually(lambda: len(stored(bus)) == 3)
    assert {name: event.message for (name, _), event in stored(bus).items()} == {
        "a.service": "result signal, signal SIGKILL",
        "b.service": "result core-dump, signal SIGSEGV, core dumped",
        "c.service": "result signal, signal 40",
    }


def test_nothing_is_recorded_that_is_no_change_of_a_selected_unit(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with watching(env, tmp_path, "shop*", "*.timer"):
        forged = {"_PID": "4711", "_COMM": "systemd", "UNIT": "shop.service", "INVOCATION_ID": "1" * 32}
        journal.add(**forged, MESSAGE_ID=STARTED, MESSAGE="forged")
        journal.start("other.service", "2" * 32)
        journal.start("shop.service", "", "shop.service was skipped because of an unmet condition check.")
        journal.manage("shop.service", JOB_FAILED, "Failed to start shop.", "3" * 32, JOB_RESULT="failed")
        journal.manage("shop.service", JOB_FAILED, "Dependency failed for shop.", "", JOB_RESULT="dependency")
        journal.start("a.timer", "4" * 32)
        eventually(lambda: ("a.timer", "Started") in stored(bus))
    assert counts(bus) == {("shop.service", "Failed"): 1, ("a.timer", "Started"): 1}
    assert stored(bus)["shop.service", "Failed"].message == "Dependency failed for shop. (dependency)"


def test_texts_of_a_unit_are_bounded_and_without_control_characters(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with watching(env, tmp_path, "--lines", "20"):
        for text in ("x" * 4000, "\x1b[2Jred\n", [0xFF, 0x41], None, *["y" * 300] * 9):
            journal.say(UNIT, text, "1" * 32)
        journal.fail(UNIT, "1" * 32)
        eventually(lambda: stored(bus))
    [event] = stored(bus).values()
    assert len(event.message.encode()) <= 1024
    assert event.message.isprintable()
    assert "xxx... | \\x1b[2Jred\\x0a | \N{REPLACEMENT CHARACTER}A |  | yyy" in event.message


def test_a_restarted_watcher_records_the_changes_in_between_and_no_other(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with watching(env, tmp_path):
        journal.start("a.service", "1" * 32)
        eventually(lambda: stored(bus))
    journal.fail("a.service", "1" * 32)
    with watching(env, tmp_path):
        eventually(lambda: ("a.service", "Failed") in stored(bus))
        journal.start("b.service", "2" * 32)
        eventually(lambda: ("b.service", "Started") in stored(bus))
    assert set(counts(bus).values()) == {1}


def test_a_killed_watcher_records_nothing_twice(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with Program("watch-systemd", env=env | {"EVENTBUS_CRASH": "kill:systemd:recorded:2"}, folder=tmp_path) as program:
        eventually(lambda: (tmp_path / "state" / "watch-systemd").exists())
        for name in ("a", "b"):
            journal.start(f"{name}.service", "1" * 32)
        assert program.wait() == -9
    with watching(env, tmp_path):
        journal.start("c.service", "3" * 32)
        eventually(lambda: ("c.service", "Started") in stored(bus))
    assert counts(bus) == {(f"{name}.service", "Started"): 1 for name in "abc"}


def test_changes_before_the_bus_answers_are_recorded_later(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    away = run("watch-systemd", env=env | {"EVENTBUS_REDIS_URL": f"unix://{tmp_path}/nobody"})
    assert away.returncode == 1
    journal.fail(UNIT, "1" * 32)
    with watching(env, tmp_path):
        eventually(lambda: counts(bus) == {(UNIT, "Failed"): 1})


def test_a_host_without_redis_records_through_an_api_worker(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with serving(bus) as url:
        remote = {name: value for name, value in env.items() if name != "EVENTBUS_REDIS_URL"} | {"EVENTBUS_URL": url}
        with watching(remote, tmp_path):
            journal.fail(UNIT, "1" * 32)
            eventually(lambda: counts(bus) == {(UNIT, "Failed"): 1})


def test_a_second_watcher_with_the_same_position_is_refused(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    with watching(env, tmp_path, "shop*"):
        second = run("watch-systemd", "db*", env=env)
        assert (second.returncode, second.stdout) == (2, "")
        assert f"another watch-systemd uses {tmp_path / 'state' / 'watch-systemd'}: stop it" in second.stderr
        assert "--state FILE" in second.stderr


@pytest.mark.parametrize("case", ["no journalctl", "no messages", "damaged position"])
def test_what_cannot_be_read_ends_with_a_cure(
    env: dict[str, str], journal: JournalFile, tmp_path: Path, case: str
) -> None:
    if case == "no journalctl":
        (journal.programs / "journalctl").unlink()
        cure = "This needs systemd"
        env = env | {"PATH": str(journal.programs)}
    elif case == "no messages":
        journal.path.write_text("")
        cure = "add its user to the group systemd-journal, and check that systemd runs on this host"
    else:
        (tmp_path / "state").mkdir(mode=0o700)
        (tmp_path / "state" / "watch-systemd").write_text("--file=/etc/shadow\n")
        cure = "has no position in a journal: remove it"
    found = run("watch-systemd", env=env)
    assert (found.returncode, found.stdout) == (2, "")
    assert cure in found.stderr


def test_the_units_of_a_user_are_those_of_its_own_manager(
    bus: Bus, env: dict[str, str], journal: JournalFile, tmp_path: Path
) -> None:
    mine = {"_COMM": "systemd", "_UID": str(os.getuid()), "MESSAGE_ID": STARTED, "USER_UNIT": "mine.service"}
    state = tmp_path / "user"
    journal.add(**mine, _PID="812", MESSAGE="Started mine.", USER_INVOCATION_ID="1" * 32)
    with Program("watch-systemd", "--user", "--state", str(state), env=env, folder=tmp_path) as program:
        eventually(state.exists)
        journal.add(**mine | {"_UID": "4711"}, _PID="813", MESSAGE="Started other.", USER_INVOCATION_ID="2" * 32)
        journal.add(**mine, _PID="812", MESSAGE="Started mine.", USER_INVOCATION_ID="3" * 32)
        eventually(lambda: counts(bus) == {("mine.service", "Started"): 1})
        assert program.stop() == 0
