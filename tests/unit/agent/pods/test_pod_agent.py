"""pod_agent.py: what the end of an agent waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from eventbus.agent.pods import pod_agent
from eventbus.agent.procfile.procfile import line_pod
from eventbus.agent.procfile.procfile_runner import ProcfileRunner, Screen
from eventbus.errors import BusUnavailable, NotFound
from eventbus.model.event import ObjectReference
from eventbus.model.list_watch import ObjectList
from eventbus.model.objects.pod import Pod
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from tests.waiting import eventually


class Store:
    """The store of one pod, which may be away. It is its own for every thread."""

    def __init__(self) -> None:
        self.pod: Pod | None = None
        self.away = False
        self.asked_by: list[threading.Thread] = []  #: while it is away

    def for_another_thread(self) -> Store:
        return self

    def close(self) -> None:
        pass

    def objects(self, _kind: Any) -> Store:
        return self

    def list(self, *_: Any) -> ObjectList[Pod]:
        return ObjectList((), "1")

    def create(self, pod: Pod) -> Pod:
        self._answer()
        self.pod = pod
        return pod

    def get(self, name: str, *_: Any) -> Pod:
        self._answer()
        if self.pod is None:
            raise NotFound(name)
        return self.pod

    def modify(self, name: str, change: Callable[[Pod], Pod], *_: Any, **_more: Any) -> Pod:
        self.pod = change(self.get(name))
        return self.pod

    def delete(self, *_: Any, **_more: Any) -> None:
        self.pod = None

    def shows_it_running(self) -> bool:
        return self.pod is not None and self.pod.status.phase == "Running"

    def _answer(self) -> None:
        if self.away:
            self.asked_by.append(threading.current_thread())
            raise BusUnavailable("it does not answer in time")


class Nobody:
    def event(self, _about: ObjectReference, _type: str, _reason: str, _message: str) -> None:
        pass


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Store]:
    """A store that shows the pod of a line of `up`."""
    store = Store()
    runner = ProcfileRunner(tmp_path / "up", events=Nobody(), screen=Screen(), clock=SystemClock())
    try:
        runner.start()
        runner.show(cast(ObjectStore, store))
        runner.add([line_pod("web", ("/bin/sleep", "1000"), {}, tmp_path)])
        eventually(store.shows_it_running)
        yield store
    finally:
        runner.close()
    assert store.asked_by.count(threading.current_thread()) == store.away, "the end asks a bus that is away once"


def test_the_end_asks_a_bus_that_does_not_answer_only_once(shown: Store) -> None:
    shown.away = True


def test_a_mirror_of_a_line_that_a_user_deletes_is_made_again(shown: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_agent, "COMPARE_MIRRORS_S", 0.1)
    shown.pod = None
    eventually(shown.shows_it_running)
