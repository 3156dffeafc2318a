"""The loop of a shim: what is asked of it, what is due, and what it costs."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventbus.agent.runtime.contract import CommandNotFound, RuntimeProblem, ShimGone
from eventbus.agent.runtime.shim_client import call
from eventbus.agent.shim import protocol
from eventbus.agent.shim.procfs import Process, is_alive, read_process
from tests.support.runtime_world import UID, RuntimeWorld, container, is_idle, lowest_free, make_pod
from tests.waiting import eventually

#: More milliseconds than `poll` takes.
A_YEAR_S = 31_536_000


def test_a_grace_time_of_a_year_is_borne(world: RuntimeWorld) -> None:
    world.sync(make_pod("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    eventually(lambda: "up" in world.log())
    ask(world, op="stop", id=world.run().id, grace_s=A_YEAR_S)

    assert ask(world, op="exec", id=world.run().id, argv=["true"], timeout_s=A_YEAR_S)["exit_code"] == 0
    assert world.status().sandbox.ready  # type: ignore[union-attr]


@pytest.mark.parametrize("words", [[], [1], "no list", [["nested"]], [""]])
def test_a_request_that_makes_no_sense_is_refused(world: RuntimeWorld, words: object) -> None:
    world.sync(make_pod("exec sleep 1000"))
    with pytest.raises(RuntimeProblem) as refused:
        ask(world, op="exec", id=world.run().id, argv=words, timeout_s=1)

    assert not isinstance(refused.value, ShimGone)
    assert world.run().running


def test_a_request_of_another_version_is_refused_with_the_shims_own(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    answer = reply_of(begin_to_ask(world, v=protocol.VERSION + 1, op="stop", id=world.run().id))

    assert (answer["ok"], answer["error"]) == (False, f"this shim speaks version {protocol.VERSION}")
    assert world.run().running


def test_a_shim_without_descriptors_answers_once_it_has_some(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    shim = world.shim_pid
    eventually(lambda: is_idle(shim))  # it is done with whoever has asked before
    former = resource.prlimit(shim, resource.RLIMIT_NOFILE)
    resource.prlimit(shim, resource.RLIMIT_NOFILE, (lowest_free(shim), former[1]))
    replying = begin_to_ask(world, op="stop", id="", grace_s=0)
    eventually(lambda: is_idle(shim))
    resource.prlimit(shim, resource.RLIMIT_NOFILE, former)
    assert reply_of(replying) == {"ok": True}


def test_half_a_request_and_connections_without_one_change_nothing(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    before = open_when_idle(world.shim_pid)
    idle = [connect(world) for _ in range(100)]  # more than it accepts at a time
    with connect(world) as half:
        half.sendall(protocol.encode({"v": protocol.VERSION, "op": "stop", "id": world.run().id, "grace_s": 0})[:-1])
    for connection in idle:
        connection.close()

    assert ask(world, op="stop", id="", grace_s=0) == {"ok": True}
    eventually(lambda: descriptors(world.shim_pid) <= before)
    assert world.run().running


def test_a_request_may_be_large_and_is_refused_when_it_is_too_large(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    with pytest.raises(RuntimeProblem, match="bytes: 8388608 are the most"):
        ask(world, op="stop", id="x" * 16_777_216, grace_s=0)

    with connect(world) as connection, pytest.raises(ConnectionError):
        connection.sendall(b"x" * 16_777_216)
    assert ask(world, op="stop", id="x" * 8_000_000, grace_s=0) == {"ok": True}
    assert world.run().running


def test_a_problem_that_names_much_is_told_in_short(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    with pytest.raises(CommandNotFound, match="xxxx"):
        ask(world, op="exec", id=world.run().id, argv=["x" * 300_000], timeout_s=60)

    assert world.run().running


def test_a_start_is_answered_whose_problem_names_much(world: RuntimeWorld) -> None:
    nowhere = container("main", "exec sleep 1000", workingDir="/" + "x" * 300_000)
    world.sync(make_pod(containers=[nowhere], restartPolicy="Never"))

    assert world.run().reason == "StartError"
    assert world.run().message.startswith("cannot enter its folder /xxx")
    assert len(world.run().message) <= protocol.MOST_PROBLEM_CHARS


def test_an_agent_without_descriptors_takes_no_shim_for_dead(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    run, lowest = world.run().id, lowest_free(os.getpid()) - 1  # without the one that the search used
    for free in range(2):  # a request takes two
        with only_descriptors(lowest + free), pytest.raises(RuntimeProblem) as told:
            ask(world, op="stop", id=run, grace_s=0)
        assert not isinstance(told.value, ShimGone)
    assert world.run().running


def test_who_does_not_wait_for_the_reply_harms_nobody(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    before = open_when_idle(world.shim_pid)
    for _ in range(20):
        begin_to_ask(world, op="stop", id="", grace_s=0).close()

    assert ask(world, op="stop", id="", grace_s=0) == {"ok": True}
    eventually(lambda: descriptors(world.shim_pid) <= before)


@contextmanager
def sleeping_inside(world: RuntimeWorld) -> Iterator[socket.socket]:
    """Start a pod, and a command inside it that does not end. Yields: who asked for that."""
    world.sync(make_pod("exec sleep 1000"))
    with begin_to_ask(world, op="exec", id=world.run().id, argv=["sleep", "2000"], timeout_s=3600) as replying:
        eventually(lambda: len(world.processes()) == 2)
        yield replying


def test_a_command_inside_a_run_is_ended_with_it(world: RuntimeWorld) -> None:
    with sleeping_inside(world) as replying:
        ask(world, op="stop", id=world.run().id, grace_s=0)
        reply = reply_of(replying)

    assert (reply["exit_code"], reply["timed_out"]) == (137, False)
    assert world.processes() == []


def test_a_command_inside_hears_of_no_other_that_calls(world: RuntimeWorld) -> None:
    with sleeping_inside(world):
        os.kill(world.shim_pid, signal.SIGKILL)
        eventually(lambda: not world.status().sandbox.ready)  # type: ignore[union-attr]

        with pytest.raises(ConnectionRefusedError):
            begin_to_ask(world, op="stop", id="", grace_s=0)
    world.sync(make_pod("exec sleep 1000", terminationGracePeriodSeconds=1))
    assert len(world.processes()) == 1


def test_a_process_is_its_shims_child_from_its_first_step(
    fresh_world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fresh_world
    said = world.folder / "parent"
    with monkeypatch.context() as impatient:  # the shim stops in the moment of the release
        impatient.setattr(call, "__defaults__", (0.2,))
        impatient.setenv("EVENTBUS_CRASH", "stop:shim:released")
        assert world.sync(make_pod(f"echo $PPID > {said}.new; mv {said}.new {said}; exec sleep 1000")).failed
    eventually(said.exists)
    shim = world.shim_pid
    os.kill(shim, signal.SIGCONT)

    assert int(said.read_text()) == shim


def test_nothing_is_done_behind_the_word_that_the_shim_ends(world: RuntimeWorld) -> None:
    world.sync(make_pod("exit 0", restartPolicy="Never"))
    world.ended()
    shim = world.shim_pid
    os.kill(shim, signal.SIGSTOP)
    first, second = begin_to_ask(world, op="exit"), begin_to_ask(world, op="stop", id="", grace_s=0)
    os.kill(shim, signal.SIGCONT)
    assert reply_of(first) == {"ok": True}
    with second, pytest.raises(ConnectionResetError):
        second.recv(65536)
    eventually(lambda: read_process(shim) is None)


def test_a_leftover_that_does_not_die_costs_the_shim_nothing(world: RuntimeWorld) -> None:
    world.sync(make_pod("setsid sleep 1000 & sleep 2000", restartPolicy="Never"))
    run = world.run().pid

    def leftovers() -> list[Process]:  # those that have a session of their own by now
        return [one for one in world.processes() if one.session == one.pid != run]

    eventually(leftovers)
    (left,) = leftovers()
    with held_at_its_end(left.pid):
        ask(world, op="stop", id=world.run().id, grace_s=0)
        world.ended()
        eventually(lambda: is_idle(world.shim_pid))
        assert is_alive(left.pid, left.start_ticks)
    eventually(lambda: not world.processes())


@contextmanager
def held_at_its_end(pid: int) -> Iterator[None]:
    """Have a process that is killed stay, as one that hangs in the kernel does."""
    seize, detach, stop_at_exit = 0x4206, 17, 0x40
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    assert ptrace(seize, pid, None, stop_at_exit) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.waitpid(pid, 0)
        ptrace(detach, pid, None, None)


def test_processes_that_come_and_go_do_not_have_the_shim_search_the_machine(world: RuntimeWorld) -> None:
    ends = 300
    world.sync(make_pod(f"for i in $(seq {ends}); do (true &); done; echo done; exec sleep 1000"))
    eventually(lambda: "done" in world.log())

    assert reads(world.shim_pid) < 5 * ends
    assert is_alive(world.shim_pid, read_process(world.shim_pid).start_ticks)  # type: ignore[union-attr]


@contextmanager
def only_descriptors(below: int) -> Iterator[None]:
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (below, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)


def ask(world: RuntimeWorld, **request: object) -> dict[str, object]:
    return call(pod_folder(world), request, 60.0)


def begin_to_ask(world: RuntimeWorld, **request: object) -> socket.socket:
    connection = connect(world)
    connection.sendall(protocol.encode({"v": protocol.VERSION} | request))
    return connection


def connect(world: RuntimeWorld) -> socket.socket:
    return protocol.connect(str(pod_folder(world)), 60.0)


def reply_of(replying: socket.socket) -> dict[str, object]:
    with replying:
        return protocol.decode(protocol.read_line(replying, protocol.MOST_REPLY_BYTES))


def pod_folder(world: RuntimeWorld) -> Path:
    return world.folder / "pods" / UID


def open_when_idle(pid: int) -> set[str]:
    """Return a shim's descriptors once it seems to be done with what it has answered; one that starves seems so too."""
    eventually(lambda: is_idle(pid))
    return descriptors(pid)


def descriptors(pid: int) -> set[str]:
    return set(os.listdir(f"/proc/{pid}/fd"))


def reads(pid: int) -> int:
    """Return how often a process has read since it began."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("syscr:")).split()[1])
