"""Agents and shims that die: processes go on or are found, none runs twice, and an unknown end is reported."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.agent.runtime import shim_client
from eventbus.agent.runtime.contract import SyncResult
from eventbus.agent.shim.procfs import is_alive, read_process
from tests.support.runtime_world import UID, RuntimeWorld, make_pod, runtime_world
from tests.waiting import eventually


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RuntimeWorld]:
    with runtime_world(tmp_path / "state") as made:
        yield made


def test_an_agent_that_comes_later_finds_what_runs_and_what_ended(world: RuntimeWorld) -> None:
    pod = make_pod("exec sleep 1000", "sleep 0.2; exit 9")
    world.sync(pod)
    runs = world.run("c0").pid
    world.runtime.close()  # the zygote ends, as when the agent is killed
    eventually(lambda: not world.run("c1").running)

    world.runtime = world.open()
    assert world.run("c0").pid == runs
    assert (world.run("c1").exit_code, world.run("c1").reason) == (9, "Error")
    world.sync(pod)
    assert (world.run("c0").pid, world.run("c1").attempt) == (runs, 1)


def test_a_shim_that_is_killed_is_made_anew_and_nothing_runs_twice(world: RuntimeWorld) -> None:
    pod = make_pod("(setsid sleep 1000 &); exec sleep 1000", terminationGracePeriodSeconds=1)
    world.sync(pod)
    eventually(lambda: len(world.processes()) == 2)
    before = world.processes()
    os.kill(_shim(world), signal.SIGKILL)
    eventually(lambda: not world.status().sandbox.ready)  # type: ignore[union-attr]
    assert world.run().running  # found by pid and start time

    world.sync(pod)
    assert world.told.reasons.count("SandboxChanged") == 1
    assert not any(is_alive(one.pid, one.start_ticks) for one in before)
    lost = world.status().previous("main")
    assert lost is not None
    assert (lost.exit_code, lost.reason) == (137, "ContainerStatusUnknown")
    assert (world.run().attempt, world.run().running) == (1, True)
    assert world.status().sandbox.attempt == 1  # type: ignore[union-attr]


def test_what_ended_without_its_shim_is_unknown(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000", restartPolicy="Never"))
    run = world.run()
    os.kill(_shim(world), signal.SIGKILL)
    os.kill(run.pid, signal.SIGTERM)

    ended = world.ended()
    assert (ended.exit_code, ended.reason) == (137, "ContainerStatusUnknown")
    assert "not known" in ended.message


def test_a_pod_that_runs_once_is_not_run_again_when_its_shim_died(world: RuntimeWorld) -> None:
    pod = make_pod("exec sleep 1000", restartPolicy="Never", terminationGracePeriodSeconds=1)
    world.sync(pod)
    os.kill(_shim(world), signal.SIGKILL)
    eventually(lambda: not world.status().sandbox.ready)  # type: ignore[union-attr]
    world.sync(pod)

    assert (world.run().attempt, world.run().reason) == (0, "ContainerStatusUnknown")
    assert world.processes() == []


def test_a_pod_whose_shim_is_frozen_is_ended_all_the_same(world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_client.call, "__defaults__", (0.2,))
    pod = make_pod("exec sleep 1000", terminationGracePeriodSeconds=1)
    world.sync(pod)
    os.kill(_shim(world), signal.SIGSTOP)
    world.runtime.kill_pod(UID, pod)

    assert world.processes() == []
    assert not world.status().active


def test_a_shim_asked_to_end_ends_its_pod_first(world: RuntimeWorld) -> None:
    world.sync(make_pod("trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"))
    eventually(lambda: "up" in world.log())
    os.kill(_shim(world), signal.SIGTERM)
    eventually(lambda: not world.status().active)

    assert (world.run().exit_code, world.run().reason) == (5, "Error")


@pytest.mark.parametrize("how", ["ignored", "blocked"])
def test_an_agent_that_hears_of_no_child_runs_its_pods_all_the_same(world: RuntimeWorld, how: str) -> None:
    numbers = (signal.SIGCHLD, signal.SIGUSR1)
    former = {number: signal.getsignal(number) for number in numbers}
    try:
        if how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        else:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
        world.sync(make_pod("exec grep -E '^Sig(Blk|Ign)' /proc/self/status"))
        assert world.ended().exit_code == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        for number in numbers:
            signal.signal(number, former[number])

    # Above 31 are the C library's own: the parent of the tests may have left some of them ignored.
    assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in world.log().splitlines()] == [0, 0]


def test_a_zygote_waits_for_its_shims_and_ends_when_it_is_asked_to(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    shim, zygote = _shim(world), read_process(world.runtime._zygote.pid)
    assert zygote is not None
    os.kill(shim, signal.SIGKILL)
    eventually(lambda: read_process(shim) is None)

    os.kill(zygote.pid, signal.SIGTERM)
    eventually(lambda: not is_alive(zygote.pid, zygote.start_ticks))


def test_a_zygote_that_was_killed_is_started_again(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    os.kill(_zygote(world), signal.SIGKILL)
    again = make_pod("exec sleep 2000", hostname="other")
    world.sync(again)

    assert world.run().running
    assert world.status().sandbox.attempt == 1  # type: ignore[union-attr]


def test_a_zygote_that_stands_still_is_replaced_and_forks_nothing_when_it_is_woken(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_client, "_ENDS_S", 0.1)
    world.sync(make_pod("exec sleep 1000"))
    zygote, connection = _zygote(world), world.runtime._zygote._connection
    assert connection is not None
    connection.settimeout(0.1)  # of this zygote only: another takes as long to start as it takes
    os.kill(zygote, signal.SIGSTOP)
    world.sync(make_pod("exec sleep 2000", hostname="other"))

    assert world.run().running
    assert world.status().sandbox.attempt == 1  # type: ignore[union-attr]
    with pytest.raises(ProcessLookupError):
        os.kill(zygote, signal.SIGCONT)


def test_an_agent_that_ends_waits_for_no_zygote_that_stands_still(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_client, "ANSWER_S", 3600.0)
    monkeypatch.setattr(shim_client, "_ENDS_S", 0.1)
    world.sync(make_pod("exec sleep 1000"))
    zygote, results = world.runtime._zygote, list[SyncResult]()
    os.kill(_zygote(world), signal.SIGSTOP)
    other = make_pod("exec sleep 2000", hostname="other")
    worker = threading.Thread(target=lambda: results.append(world.runtime.sync_pod(other)), daemon=True)
    worker.start()
    eventually(zygote._lock.locked)

    world.runtime.close()
    worker.join()
    assert "the agent ends" in results[0].sandbox_failure
    assert zygote.pid == 0


def test_whoever_is_in_haste_kills_also_what_lost_its_shim(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    os.kill(_shim(world), signal.SIGKILL)
    eventually(lambda: not world.status().sandbox.ready)  # type: ignore[union-attr]
    world.runtime.kill_at_once()

    eventually(lambda: not world.processes())


def test_a_process_that_prints_when_its_shim_is_dead_waits_and_does_not_die(world: RuntimeWorld) -> None:
    script = f"{sys.executable} -c 'import time\nwhile 1: print(1000 * \"x\", flush=True); time.sleep(0.001)'"
    world.sync(make_pod(f"exec {script}"))
    eventually(lambda: len(world.log()) > 10)
    os.kill(_shim(world), signal.SIGKILL)
    eventually(lambda: not world.status().sandbox.ready)  # type: ignore[union-attr]

    eventually(lambda: _waits_in_write(world.run().pid))
    assert world.run().running


def _waits_in_write(pid: int) -> bool:
    """Return True if the pipe that is its standard output is full."""
    pipe = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select([], [pipe], [], 0)[1]
    finally:
        os.close(pipe)


def _shim(world: RuntimeWorld) -> int:
    sandbox = world.status().sandbox
    assert sandbox is not None
    return sandbox.shim_pid


def _zygote(world: RuntimeWorld) -> int:
    pid = world.runtime._zygote.pid
    assert pid > 0  # a signal to 0 is one to all of these tests' own processes
    return pid
