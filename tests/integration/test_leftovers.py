"""Killed processes are gone before their pod starts again, and the pod of a process is always known."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest
from msgspec.structs import replace

from eventbus.agent.runtime.sandboxes import end_leftovers, kill_shim, send_signal
from eventbus.agent.shim import procfs
from eventbus.agent.shim.procfs import MARK, is_alive, mark_of
from eventbus.agent.shim.state import read_state
from tests.support.runtime_world import UID, RuntimeWorld, children, container, make_pod
from tests.waiting import PATIENCE_S, eventually

OTHER_UID = "99999999-2222-3333-4444-555555555555"
#: A program that becomes itself, over and over.
AGAIN = 'exec /bin/sh -c "$0" "$0"'


def test_a_shim_that_is_killed_is_dead_when_that_returns(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    state = read_state(str(world.folder / "pods" / UID))
    assert state is not None
    os.kill(world.shim_pid, signal.SIGSTOP)
    kill_shim(state, world.clock)

    assert not is_alive(state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"])


def test_no_signal_goes_to_a_number_that_may_be_another_processs_by_now(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = make_pod("exec sleep 1000")
    world.sync(pod)
    state, run = read_state(str(world.folder / "pods" / UID)), world.run()
    assert state is not None
    hit: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: hit.append(pid))
    kill_shim(state, world.clock)
    assert end_leftovers(state, str(world.folder / "pods" / UID), 0.0, world.clock)

    assert hit == []
    assert not is_alive(run.pid, run.start_ticks)


def test_a_process_that_took_over_a_number_gets_no_signal() -> None:
    with subprocess.Popen(["/bin/sleep", "1000"]) as other:
        found = procfs.read_process(other.pid)
        assert found is not None
        send_signal(other.pid, found.start_ticks - 1, signal.SIGKILL)  # that of a process before it
        assert other.poll() is None
        send_signal(other.pid, found.start_ticks, signal.SIGKILL)
        assert other.wait(PATIENCE_S) == -signal.SIGKILL
    send_signal(other.pid, found.start_ticks, signal.SIGKILL)  # no process has it


def test_a_zygote_whose_shim_failed_or_died_forks_the_next(
    fresh_world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fresh_world
    monkeypatch.setenv("EVENTBUS_CRASH", f"kill:shim:forked@{OTHER_UID}")
    world.sync(make_pod("exec sleep 1000"))
    connection, zygote = world.runtime._zygote._connection, world.runtime._zygote.pid
    assert connection is not None
    connection.settimeout(PATIENCE_S)
    connection.sendall(b"nonsense\n")
    assert b"JSONDecodeError" in connection.recv(4096)
    other = make_pod("exec sleep 1000")
    other = replace(other, metadata=replace(other.metadata, uid=OTHER_UID))
    assert "it died" in world.sync(other).sandbox_failure

    assert not world.sync(make_pod("exec sleep 2000", hostname="another sandbox")).failed
    assert world.runtime._zygote.pid == zygote


def test_whose_a_process_is_is_known_while_it_becomes_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "_BECOMES_WITHIN_S", 3600.0)
    with subprocess.Popen(["/bin/sh", "-c", AGAIN, AGAIN], env={MARK: "mine"}) as process:
        try:
            eventually(lambda: mark_of(process.pid) == "mine")
            assert {mark_of(process.pid) for _ in range(500)} == {"mine"}
        finally:
            process.kill()


def test_a_process_that_has_no_environment_or_no_more_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "_BECOMES_WITHIN_S", 3600.0)  # it is not waited for
    with subprocess.Popen(["/bin/sleep", "1000"], env={}) as process:
        try:
            assert mark_of(process.pid) == ""
        finally:
            process.kill()
        eventually(lambda: any(one.pid == process.pid and one.gone for one in children(os.getpid())))
        assert mark_of(process.pid) == ""
    assert mark_of(process.pid) == ""


def test_a_pod_whose_folder_was_taken_away_is_ended_before_it_runs_anew(world: RuntimeWorld) -> None:
    pod = make_pod(containers=[container("main", "exec sleep 1000")])
    world.sync(pod)
    former = world.run()
    shutil.rmtree(world.folder)

    found = [(one.uid, one.active, one.sandbox is not None and one.sandbox.ready) for one in world.runtime.pods()]
    assert found == [(UID, True, False)]
    world.sync(pod)
    assert "SandboxChanged" in world.told.reasons
    assert not is_alive(former.pid, former.start_ticks)
    assert world.run().running
