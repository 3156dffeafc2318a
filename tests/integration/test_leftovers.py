"""Shims that are ended by force are gone before anything is done in their place."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.agent.runtime.leftovers import kill_shim
from eventbus.agent.shim.procfs import children, is_alive
from eventbus.agent.shim.state import read_state
from tests.support.runtime_world import UID, RuntimeWorld, make_pod, runtime_world
from tests.waiting import eventually


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RuntimeWorld]:
    with runtime_world(tmp_path / "state") as made:
        yield made


def test_a_shim_that_is_killed_is_dead_when_that_returns(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    state = read_state(str(world.folder / "pods" / UID))
    assert state is not None
    os.kill(world.shim_pid, signal.SIGSTOP)
    kill_shim(state, world.clock)

    assert not is_alive(state["sandbox"]["shim_pid"], state["sandbox"]["shim_ticks"])


def test_a_zygote_whose_shim_died_behind_its_request_forks_the_next(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000"))
    connection = world.runtime._zygote._connection
    assert connection is not None
    connection.settimeout(1.0)
    connection.sendall(b"half a request")  # its shim waits for the rest
    eventually(lambda: others(world) and unread(connection) == 0)
    os.kill(others(world)[0], signal.SIGKILL)
    assert b"it died" in connection.recv(4096)
    world.sync(make_pod("exec sleep 2000", hostname="another sandbox"))
    assert world.run().running


def others(world: RuntimeWorld) -> list[int]:
    """Return the shims that are not the pod's."""
    return [one.pid for one in children(world.runtime._zygote.pid) if one.pid != world.shim_pid and not one.gone]


def unread(connection: socket.socket) -> int:
    """Return the bytes that the other end has not taken yet."""
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
