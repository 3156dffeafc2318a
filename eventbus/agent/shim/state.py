"""State of a pod on disk: its sandbox, and of each container the newest run and the one before.

One file, `state.json` in the pod's folder. Its shim alone writes it while the shim lives. Any process may read it at
any time, since it is replaced whole. It holds no environment: no secret gets to disk.
"""

from __future__ import annotations

import json
import os
from typing import Any, TypedDict

from eventbus.agent.shim.procfs import boot_id

FORMAT = 1
STATE, SOCKET = "state.json", "shim.sock"
CREATED, RUNNING, EXITED = "created", "running", "exited"
#: Runs of a container that are kept: the newest, and the one that `logs -p` shows.
KEPT_RUNS = 2
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Run(TypedDict):
    """One run of a container. Times are seconds since 1970, 0.0: not yet."""

    id: str
    name: str
    attempt: int
    init: bool
    hash: str
    image: str
    grace_s: float
    phase: str
    pid: int
    start_ticks: int
    created_at: float
    started_at: float
    finished_at: float
    exit_code: int
    signal: int
    reason: str
    message: str
    grace_exceeded: bool
    kill_at: float  #: when SIGKILL is due, on the monotonic clock; 0.0: it was not asked to end
    log: str
    cgroup: str


class Sandbox(TypedDict):
    """The sandbox of a pod, and the shim that it lives by."""

    attempt: int
    hash: str
    created_at: float
    shim_pid: int
    shim_ticks: int


class State(TypedDict):
    """All that is known of a pod. *boot_id*: after another boot none of its processes is alive."""

    format: int
    boot_id: str
    uid: str
    name: str
    namespace: str
    sandbox: Sandbox
    runs: list[Run]


def new_run(fields: dict[str, Any]) -> Run:
    """A run that is about to start, with the agent's fields: id, name, attempt, hash, …"""
    blank = Run(
        id="",
        name="",
        attempt=0,
        init=False,
        hash="",
        image="",
        grace_s=30.0,
        phase=CREATED,
        pid=0,
        start_ticks=0,
        created_at=0.0,
        started_at=0.0,
        finished_at=0.0,
        exit_code=0,
        signal=0,
        reason="",
        message="",
        grace_exceeded=False,
        kill_at=0.0,
        log="",
        cgroup="",
    )
    for key in blank.keys() & fields.keys():
        blank[key] = fields[key]  # type: ignore[literal-required]
    return blank


def read_state(folder: str) -> State | None:
    """Return the state in *folder*; None: there is none, or it cannot be read."""
    try:
        with open(os.path.join(folder, STATE), "rb") as file:
            state: State = json.load(file)
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and state.get("format") == FORMAT else None


def write_state(folder: str, state: State) -> None:
    """Replace the state, at once or not at all. Raises: OSError."""
    path = f"{folder}/{STATE}"
    new = f"{path}.{os.getpid()}"
    # Plain descriptors: a text file's buffers and codec would be 0.3 MB of each shim's own.
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        left = memoryview(_encode(state).encode())
        while left:
            left = left[os.write(file, left) :]
        os.replace(new, path)
    except OSError:  # the next writer has another pid
        os.unlink(new)
        raise
    finally:
        os.close(file)


def is_this_boot(state: State) -> bool:
    """Return False if the machine was restarted since: the pids are invalid then."""
    return state["boot_id"] == boot_id()


def forget_old_runs(runs: list[Run]) -> list[Run]:
    """Return *runs*, newest first, without old runs that are not needed any more."""
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: (run["name"], -run["attempt"])):
        newer = [other for other in kept if other["name"] == run["name"]]
        if len(newer) < KEPT_RUNS or run["phase"] != EXITED:
            kept.append(run)
    return kept
