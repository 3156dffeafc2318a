"""pod_agent.py: what the end of an agent waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from eventbus.agent.procfile.procfile import line_pod
from eventbus.agent.procfile.procfile_runner import ProcfileRunner, Screen
from eventbus.errors import BusUnavailable
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

    def get(self, *_: Any) -> Pod:
        self._answer()
        assert self.pod
        return self.pod

    def modify(self, _name: str, change: Callable[[Pod], Pod], *_: Any, **_more: Any) -> Pod:
        self._answer()
        assert self.pod
        self.pod = change(self.pod)
        return self.pod

    def _answer(self) -> None:
        if self.away:
            self.asked_by.append(threading.current_thread())
            raise BusUnavailable("it does not answer in time")


class Nobody:
    def event(self, _about: ObjectReference, _type: str, _reason: str, _message: str) -> None:
        pass


def test_the_end_asks_a_bus_that_does_not_answer_only_once(tmp_path: Path) -> None:
    store = Store()
    runner = ProcfileRunner(tmp_path / "up", events=Nobody(), screen=Screen(), clock=SystemClock())
    try:
        runner.start()
        runner.show(cast(ObjectStore, store))
        runner.add([line_pod("web", ("/bin/sleep", "1000"), {}, tmp_path)])
        eventually(lambda: store.pod is not None and store.pod.status.phase == "Running")
        store.away = True
    finally:
        runner.close()
    assert store.asked_by.count(threading.current_thread()) == 1
