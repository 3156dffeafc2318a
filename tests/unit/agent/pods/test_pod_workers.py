"""Workers of pods: what waits, what is never replaced, when a pod is looked at again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from eventbus.agent.pods.pod_workers import Done, ExpectedError, Perform, PodWork, PodWorkers
from eventbus.agent.pods.updates import Work
from eventbus.model.objects.pod import Pod
from eventbus.testing.clock import FakeClock
from tests.unit.agent.pods.pods import a_pod


class Inline(PodWorkers):
    """Does its work in the thread of the caller, and reports no errors but to *failed*."""

    def __init__(self, perform: Perform, *, failed: Callable[[Pod, Exception], object] = print, **more: Any) -> None:
        super().__init__(perform, failed=failed, **more)

    def _start(self, worker: Any) -> None:
        self._run(worker)


class Slow:
    """Performs work when it is let to."""

    def __init__(self) -> None:
        self.done: list[tuple[Work, str, float | None]] = []
        self.began = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def perform(self, work: PodWork) -> Done:
        self.began.release()
        assert self.go.acquire(timeout=30)
        self.done.append((work.kind, work.pod.metadata.labels.get("n", ""), work.grace_s))
        return Done(over=work.kind is Work.KILL)

    def next(self) -> None:
        assert self.began.acquire(timeout=30)
        self.go.release()


def labelled(n: int) -> Pod:
    import msgspec

    pod = a_pod()
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels={"n": str(n)}))


def test_a_busy_worker_keeps_only_the_latest_update() -> None:
    slow = Slow()
    workers = PodWorkers(slow.perform, clock=FakeClock(), failed=print)
    workers.update(PodWork(Work.CREATE, labelled(0)))
    assert slow.began.acquire(timeout=30)
    for n in (1, 2, 3):
        workers.update(PodWork(Work.UPDATE, labelled(n)))
    slow.go.release()
    slow.next()
    assert workers.stop(30)
    assert [label for _, label, _ in slow.done] == ["0", "3"]


def test_a_kill_that_waits_is_never_replaced_and_may_only_get_shorter() -> None:
    slow = Slow()
    workers = PodWorkers(slow.perform, clock=FakeClock(), failed=print)
    workers.update(PodWork(Work.CREATE, labelled(0)))
    assert slow.began.acquire(timeout=30)
    workers.update(PodWork(Work.KILL, labelled(1), 10.0))
    workers.update(PodWork(Work.UPDATE, labelled(2)))
    workers.update(PodWork(Work.KILL, labelled(3), 30.0))
    assert workers.is_terminating("uid-web")
    slow.go.release()
    slow.next()
    while not workers.is_finished("uid-web"):
        pass
    assert [(kind, grace) for kind, _, grace in slow.done] == [(Work.CREATE, None), (Work.KILL, 10.0)]
    workers.update(PodWork(Work.SYNC, labelled(4)))  # it has ended for good
    assert workers.stop(30)
    assert len(slow.done) == 2


def test_a_kill_that_comes_while_the_pod_completes_is_done() -> None:
    done: list[Work] = []

    def perform(work: PodWork) -> Done:
        done.append(work.kind)
        if work.kind is Work.CREATE:
            workers.update(PodWork(Work.KILL, a_pod()))  # deleted in the instant in which it completes
        return Done(over=True)

    workers = Inline(perform, clock=FakeClock())
    workers.update(PodWork(Work.CREATE, a_pod()))
    assert done == [Work.CREATE, Work.KILL]
    assert workers.is_finished("uid-web")


def test_a_pod_is_looked_at_again_after_a_minute_more_or_less() -> None:
    for chance, seconds in ((0.0, 30.0), (0.5, 60.0), (1.0, 90.0)):
        clock = FakeClock()
        workers = Inline(lambda _work: Done(), clock=clock, chance=lambda chance=chance: chance)
        workers.update(PodWork(Work.CREATE, a_pod()))
        clock.advance(seconds - 0.1)
        assert workers.due() == []
        clock.advance(0.2)
        assert workers.due() == ["uid-web"]
        assert workers.due() == []


def test_an_error_is_told_and_tried_again_after_ten_seconds() -> None:
    clock, told = FakeClock(), []

    def perform(_work: PodWork) -> Done:
        raise ExpectedError("no such thing")

    workers = Inline(perform, clock=clock, failed=lambda pod, error: told.append(str(error)))
    workers.update(PodWork(Work.CREATE, a_pod()))
    assert told == ["no such thing"]
    clock.advance(9.9)
    assert workers.due() == []
    clock.advance(0.2)
    assert workers.due() == ["uid-web"]


def test_a_kill_that_fails_is_tried_again_though_nobody_knows_the_pod() -> None:
    clock, attempts = FakeClock(), []

    def perform(work: PodWork) -> Done:
        attempts.append(work.kind)
        if len(attempts) == 1:
            raise ExpectedError("busy")
        return Done(over=True)

    workers = Inline(perform, clock=clock)
    workers.update(PodWork(Work.KILL, a_pod()))
    clock.advance(11)
    assert workers.retry_kills(workers.due()) == []
    assert attempts == [Work.KILL, Work.KILL]
    assert workers.is_finished("uid-web")


def test_a_static_pod_waits_until_the_one_of_its_name_has_ended() -> None:
    slow = Slow()
    workers = PodWorkers(slow.perform, clock=FakeClock(), failed=print)
    old, new = a_pod(uid="old", source="file"), a_pod(uid="new", source="file")
    workers.update(PodWork(Work.CREATE, old))
    slow.next()
    workers.update(PodWork(Work.KILL, old))
    workers.update(PodWork(Work.CREATE, new))
    assert "new" not in workers.phases()
    slow.next()
    slow.next()
    assert workers.stop(30)
    assert [kind for kind, _, _ in slow.done] == [Work.CREATE, Work.KILL, Work.CREATE]


def test_a_static_pod_that_goes_before_its_turn_never_begins() -> None:
    slow = Slow()
    workers = PodWorkers(slow.perform, clock=FakeClock(), failed=print)
    old, new = a_pod(uid="old", source="file"), a_pod(uid="new", source="file")
    workers.update(PodWork(Work.CREATE, old))
    slow.next()
    workers.update(PodWork(Work.CREATE, new))
    workers.update(PodWork(Work.KILL, new))
    workers.update(PodWork(Work.KILL, old))
    slow.next()
    assert workers.stop(30)
    assert workers.phases().keys() == {"old"}


def test_what_has_finished_is_forgotten_once_nobody_wants_it() -> None:
    workers = Inline(lambda _work: Done(over=True), clock=FakeClock())
    workers.update(PodWork(Work.KILL, a_pod()))
    workers.forget({"uid-web"})
    assert workers.is_finished("uid-web")
    workers.forget(set())
    assert workers.phases() == {}
