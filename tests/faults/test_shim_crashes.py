"""kill -9 of a shim, and of the zygote, at each step: pods are found or started again, no process runs twice, and an
unknown end is reported as unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus.agent.runtime import shim_client
from eventbus.agent.runtime.contract import ContainerRuntimeStatus
from eventbus.agent.shim.procfs import all_processes
from eventbus.model.objects.pod import Pod
from tests.support.runtime_world import UID, RuntimeWorld, make_pod, runtime_world
from tests.thin import thin
from tests.waiting import eventually

SHIM = Path(__file__).parents[2] / "eventbus/agent/shim"
#: Places that a start comes past, in order.
STARTING = (
    "zygote:asked",
    "zygote:forked",
    "shim:forked",
    "shim:begun",
    "shim:answered",
    "shim:created",
    "shim:made",
    "shim:written",
    "shim:released",
)
#: After the release of a process, and between the end of a process and its record.
RELEASED, FORGETS = "shim:released", "shim:ended"
#: Places of an end: of a process by itself, of a pod that is ended.
ENDED = (FORGETS, "shim:kept")
ENDING = ("shim:stop", "shim:stopped", *ENDED, "shim:exit")
UNKNOWN = "ContainerStatusUnknown"


class Crashes:
    """A pod that says when it begins, and the agents that come and go; those of `armed` have shims that die."""

    def __init__(self, world: RuntimeWorld, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self._starts = folder / "starts"
        self._starts.touch()
        self._monkeypatch = monkeypatch

    def armed(self, place: str) -> None:
        self._monkeypatch.setenv("EVENTBUS_CRASH", f"kill:{place}")

    def disarmed(self) -> None:
        """Start another agent. Shims of this agent do not crash any more."""
        self._monkeypatch.delenv("EVENTBUS_CRASH")
        self.world.runtime.close()
        self.world.runtime = self.world.open()

    def pod(self, script: str, policy: str) -> Pod:
        said = f"echo $$$$ >> {self._starts}; {script}"
        return make_pod(said, restartPolicy=policy, terminationGracePeriodSeconds=1)

    @property
    def starts(self) -> list[str]:
        return self._starts.read_text().split()

    def sync_until(self, pod: Pod, settled: Callable[[], bool]) -> None:
        def once() -> bool:
            self.world.sync(pod)
            return settled()

        eventually(once)

    def runs(self) -> list[ContainerRuntimeStatus]:
        status = self.world.runtime.status(UID)
        return list(status.containers) if status is not None else []

    def alive(self) -> bool:
        return any(run.running for run in self.runs())

    def is_left_to_itself(self) -> bool:
        """Return True if there is no shim."""
        status = self.world.runtime.status(UID)
        return status is None or status.sandbox is None or not status.sandbox.ready


@pytest.fixture
def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crashes]:
    with runtime_world(tmp_path / "state") as world:
        yield Crashes(world, tmp_path, monkeypatch)


@pytest.mark.parametrize("policy", ["Always", "Never"])
@pytest.mark.parametrize(
    "place", thin(STARTING, lambda place: place in ("zygote:asked", "shim:made", "shim:written", RELEASED))
)
def test_killed_while_a_pod_starts(crashes: Crashes, place: str, policy: str) -> None:
    pod, world = crashes.pod("exec sleep 1000", policy), crashes.world
    crashes.armed(place)
    world.sync(pod)
    crashes.disarmed()
    comes_back(crashes, pod, place, began=place in STARTING[STARTING.index("shim:created") :])


def comes_back(crashes: Crashes, pod: Pod, place: str, *, began: bool) -> None:
    """Sync until the pod is in its desired state, and its lost run is reported: its shim was killed at *place*."""
    world, policy = crashes.world, pod.spec.restart_policy

    def settled() -> bool:
        # While its shim is just being killed, a run that was begun still shows as running.
        unknown = any(run.reason == UNKNOWN for run in crashes.runs())
        return unknown == began and (crashes.alive() or (policy == "Never" and bool(crashes.runs())))

    crashes.sync_until(pod, settled)

    lost = [run for run in crashes.runs() if run.reason == UNKNOWN]
    assert len(lost) == began, "a run that was begun is said to be unknown, no other"
    assert crashes.alive() == (policy == "Always" or not began)
    eventually(lambda: len(crashes.starts) >= crashes.alive())
    assert len(world.processes()) == crashes.alive(), "nothing runs twice"
    assert len(crashes.starts) <= crashes.alive() + (place == RELEASED), (
        "a process that was never released has done nothing"
    )
    if policy == "Always" and began:
        assert world.told.reasons.count("SandboxChanged") == 1


@pytest.mark.parametrize("place", thin(ENDED, lambda place: place == FORGETS))
def test_killed_when_a_process_has_ended_its_exit_code_is_known_once_it_is_written(
    crashes: Crashes, place: str
) -> None:
    pod = crashes.pod("exit 7", "Never")
    crashes.armed(place)
    crashes.world.sync(pod)
    eventually(crashes.is_left_to_itself)
    crashes.disarmed()
    crashes.sync_until(pod, lambda: not crashes.alive())

    [run] = crashes.runs()
    assert (run.exit_code, run.reason) == ((137, UNKNOWN) if place == FORGETS else (7, "Error"))
    assert len(crashes.starts) == 1


@pytest.mark.parametrize("place", thin(ENDING, lambda place: place == "shim:stopped"))
def test_killed_while_a_pod_is_ended_it_is_ended(crashes: Crashes, place: str) -> None:
    pod, world = crashes.pod("exec sleep 1000", "Always"), crashes.world
    crashes.armed(place)
    world.sync(pod)
    eventually(lambda: crashes.starts)
    world.runtime.kill_pod(UID, pod)

    [run] = crashes.runs()
    known = place in ("shim:kept", "shim:exit")
    assert (run.exit_code, run.reason) == ((143, "Error") if known else (137, UNKNOWN))
    assert world.processes() == []
    crashes.disarmed()
    world.runtime.remove(UID)
    assert world.runtime.status(UID) is None


def test_every_place_of_a_shim_and_its_zygote_is_tried() -> None:
    places = {place for path in SHIM.glob("*.py") for place in re.findall(r'failpoint\("(.+?)"', path.read_text())}
    assert places == {*STARTING, *ENDING}


def test_a_shim_that_was_given_up_on_does_not_take_the_pod_back(
    crashes: Crashes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pod, world = crashes.pod("exec sleep 1000", "Always"), crashes.world
    with monkeypatch.context() as impatient:
        impatient.setattr(shim_client, "ANSWER_S", 1.0)
        impatient.setattr(shim_client, "_ENDS_S", 0.1)
        impatient.setenv("EVENTBUS_CRASH", "stop:shim:begun")  # as if the disk stood still
        impatient.setenv("TEST_OF_SHIMS", str(tmp_path))
        assert world.sync(pod).failed

    eventually(lambda: not [one for one in all_processes() if mentions(one.pid, str(tmp_path))])
    assert not world.sync(pod).failed
    assert crashes.alive()


def mentions(pid: int, word: str) -> bool:
    """Return True if a process has *word* in its environment."""
    try:
        return word.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
