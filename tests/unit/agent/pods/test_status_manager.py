"""Statuses that are forgotten while they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.status_manager import StatusManager
from eventbus.errors import BusUnavailable, EventBusError, PasswordRefused
from eventbus.model.objects.pod import Pod, PodStatus
from eventbus.testing.clock import FakeClock
from tests.unit.agent.pods.pods import a_pod

POD = a_pod("web")


class Store:
    """With *meanwhile*: takes no first write, and has that done in its time."""

    def __init__(
        self, meanwhile: Callable[[], object] | None = None, error: type[EventBusError] = BusUnavailable
    ) -> None:
        self.written: list[str] = []
        self._error = error
        self._meanwhile = meanwhile

    def get(self, name: str, namespace: str = "") -> Pod:
        raise NotImplementedError

    def create(self, found: Pod) -> Pod:
        raise NotImplementedError

    def modify(
        self, name: str, change: Callable[[Pod], Pod], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> Pod:
        if self._meanwhile is not None:
            self._meanwhile()
            self._meanwhile = None
            raise self._error("no answer")
        self.written.append(change(POD).status.phase)
        return change(POD)

    def delete(self, name: str, namespace: str = "", *, version: str = "") -> None:
        raise NotImplementedError


@pytest.mark.parametrize("error", [BusUnavailable, PasswordRefused])
@pytest.mark.parametrize("dropped", [False, True], ids=["forgotten", "dropped"])
def test_a_status_whose_write_has_no_answer_is_written_later_unless_it_was_dropped(
    dropped: bool, error: type[EventBusError]
) -> None:
    statuses = StatusManager(PodManager(), clock=FakeClock(), changed=lambda: None)
    store = Store(lambda: statuses.drop(POD.metadata.uid) if dropped else statuses.forget(set()), error)
    statuses.set(POD, PodStatus(phase="Failed"))
    with pytest.raises(error):
        statuses.flush(store)
    statuses.flush(store)
    assert store.written == ([] if dropped else ["Failed"])
    statuses.forget(set())
    assert statuses.get(POD).phase == POD.status.phase


def test_the_same_status_is_not_written_again() -> None:
    statuses = StatusManager(PodManager(), clock=FakeClock(), changed=lambda: None)
    store = Store()
    for phase in ("Running", "Running", "Failed"):
        statuses.set(POD, PodStatus(phase=phase))
        statuses.flush(store)
    assert store.written == ["Running", "Failed"]
