"""A program that records events and ends in one of many ways. Arguments: URL PREFIX WAY METHOD FLUSH_S.

It says `ready`, waits for a line, records, says `ending`, and ends. METHOD is how it starts children, or `-`.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from eventbus import EventBroadcaster, ObjectReference, Settings, install_signal_handlers

POD = ObjectReference("Pod", "default", "web-0")
#: events of one piece of work
EVENTS = 50
#: those of a program that makes the same mistake each time
REFUSED = 3_000
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is what is tried here
SETTINGS = Settings(prefix=sys.argv[2], flush_s=float(sys.argv[5]))

broadcaster: EventBroadcaster


def wire() -> None:
    global broadcaster
    broadcaster = EventBroadcaster(sys.argv[1], settings=SETTINGS)


def work(who: object = "main") -> None:
    recorder = broadcaster.new_recorder("c")
    for i in range(EVENTS):
        recorder.event(POD, "Normal", "Said", f"{who} {i}")


def ready() -> None:
    os.setsid()  # its children are killed with it, should any be left
    print("ready", flush=True)
    sys.stdin.readline()


def ending() -> None:
    print("ending", flush=True)


def ending_at_exit() -> None:
    """Said first of all when the interpreter ends: what interrupts before it would be an end of another kind."""
    atexit.register(ending)


def wait_for_a_signal() -> NoReturn:
    """Wait, and not in one wait: of a signal that comes the moment before it Python learns when it ends."""
    while True:
        time.sleep(0.2)


def work_until_signalled() -> None:
    work()
    ending()
    wait_for_a_signal()


# -- one process ---------------------------------------------------------------------------------------------------


def returns() -> None:
    work()
    ending_at_exit()


def exits() -> None:
    work()
    ending_at_exit()
    sys.exit(3)


def raises() -> None:
    work()
    ending_at_exit()
    raise RuntimeError


def with_block() -> None:
    with broadcaster:
        work()
        ending()


def shuts_down() -> None:
    work()
    ending()
    broadcaster.shutdown()


def shuts_down_then_records() -> None:
    broadcaster.shutdown()
    work()
    ending()


def refuse(_who: object = "main") -> None:
    """Record what no event can be."""
    recorder = broadcaster.new_recorder("c")
    for i in range(REFUSED):
        recorder.event(POD, "Info", "Said", f"refused {i}")


def refused() -> None:
    refuse()
    ending()


def refused_until_signalled() -> None:
    refuse()
    ending()
    wait_for_a_signal()


def interrupt(calls: Any, name: str) -> None:
    """Have SIGTERM come in the middle of the next call of *name*."""
    real = getattr(calls, name)

    def interrupted(*args: object, **options: object) -> object:
        setattr(calls, name, real)
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **options)

    setattr(calls, name, interrupted)


def refused_then_signalled_at_work() -> None:
    refuse()
    interrupt(broadcaster._outbox, "_clear")
    ending()


def refused_then_signalled_while_telling() -> None:
    refuse()
    interrupt(logging.getLogger("eventbus"), "log")
    ending()


def refused_in_pool() -> None:
    with context().Pool(1) as workers:
        workers.map(refuse, range(1))
        ending()


def records_in_late_callbacks() -> None:
    work()
    ending()


def waits() -> None:
    work_until_signalled()


def own_handler_exits() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    work_until_signalled()


def own_handler_shuts_down() -> None:
    def handle(*_: object) -> None:
        broadcaster.shutdown()
        os._exit(0)

    signal.signal(signal.SIGTERM, handle)
    work_until_signalled()


def asked_for_hangup() -> None:
    install_signal_handlers(signal.SIGHUP)
    work_until_signalled()


def os_exit() -> None:
    work()
    ending()
    os._exit(0)


def flushes_then_os_exit() -> None:
    work()
    ending()
    os._exit(0 if broadcaster.flush() else 1)


def execs() -> None:
    work()
    ending()
    os.execv("/bin/true", ["true"])


def aborts() -> None:
    work()
    ending()
    os.abort()


def asyncio_waits() -> None:
    async def main() -> None:
        with broadcaster:
            work()
            ending()
            while True:  # not in one wait, see `wait_for_a_signal`
                await asyncio.sleep(0.2)

    asyncio.run(main())


def threads() -> None:
    all_threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in all_threads:
        thread.start()
    ending()


def in_a_thread() -> None:
    """Its main thread knows nothing of events."""
    thread = threading.Thread(target=lambda: (wire(), work()))  # type: ignore[func-returns-value]
    thread.start()
    thread.join()
    ending()
    wait_for_a_signal()


def in_a_thread_with_handlers() -> None:
    install_signal_handlers()
    in_a_thread()


# -- children of multiprocessing -----------------------------------------------------------------------------------


def context() -> Any:
    return multiprocessing.get_context(sys.argv[4])


def process() -> None:
    children = [context().Process(target=work, args=(n,)) for n in range(2)]
    for child in children:
        child.start()
    ending()
    for child in children:
        child.join()
        assert child.exitcode == 0, child.exitcode


def _work_and_wait(done: Any) -> None:
    work()
    done.set()
    wait_for_a_signal()


def _end_child_by(end: Callable[[Any], None], **given: Any) -> None:
    done = context().Event()
    child = context().Process(target=_work_and_wait, args=(done,), **given)
    child.start()
    assert done.wait(30)
    ending()
    end(child)
    if not child.daemon:
        child.join()


def process_terminated() -> None:
    _end_child_by(lambda child: child.terminate())


def _work_and_wait_in_c(done: Any, lock: Any) -> None:
    """Have the signal come the moment before the main thread goes to sleep: it wakes another thread only."""
    work()

    def signal_this_thread() -> None:
        done.set()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    lock.acquire()
    threading.Timer(0.2, signal_this_thread).start()  # by then the main thread waits for what nobody releases
    lock.acquire()


def process_waits_in_c() -> None:
    done, lock = context().Event(), context().Lock()
    child = context().Process(target=_work_and_wait_in_c, args=(done, lock))
    child.start()
    assert done.wait(30)
    ending()
    child.join()
    assert child.exitcode == -signal.SIGTERM, child.exitcode


def process_killed() -> None:
    _end_child_by(lambda child: child.kill())


def process_daemon() -> None:
    """A daemon child is terminated when its parent exits."""
    _end_child_by(lambda child: None, daemon=True)


def pool() -> None:
    with context().Pool(2) as workers:  # which terminates them at its end
        workers.map(work, range(8))
        ending()


def pool_warm() -> None:
    with context().Pool(2) as workers:
        workers.map(work, range(4))
        workers.map(_flush, range(4))
        workers.map(work, range(4))
        ending()


def pool_closed() -> None:
    workers = context().Pool(2)
    workers.map(work, range(8))
    ending()
    workers.close()
    workers.join()


def pool_renewed() -> None:
    """Its workers are replaced after each piece of work, by a thread of the parent."""
    with context().Pool(2, maxtasksperchild=1) as workers:
        workers.map(work, range(8), chunksize=1)
        ending()


def executor() -> None:
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context()) as workers:
        list(workers.map(work, range(8)))
        ending()


def thread_pool() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        list(workers.map(work, range(8)))
        ending()


def _flush(_n: int) -> None:
    broadcaster.flush()


# -- children of os.fork, and of C ---------------------------------------------------------------------------------


def _fork(child: Callable[[int], None], fork: Callable[[], int] = os.fork, children: int = 2) -> list[int]:
    pids = []
    for n in range(children):
        pid = fork()
        if pid == 0:
            child(n)
            sys.exit(0)
        pids.append(pid)
    return pids


def _reap(pids: list[int]) -> None:
    for pid in pids:
        code = os.waitpid(pid, 0)[1]
        assert code == 0, code


def forks() -> None:
    pids = _fork(work)
    ending()
    _reap(pids)


def forks_then_os_exit() -> None:
    def child(n: int) -> None:
        work(n)
        os._exit(0)

    pids = _fork(child)
    ending()
    _reap(pids)


def forks_at_the_first_event() -> None:
    """While the flusher is importing, resolving and connecting."""
    broadcaster.new_recorder("c").event(POD, "Normal", "Said", "first")
    pids = _fork(work, children=8)
    ending()
    _reap(pids)


def prefork() -> None:
    """End as a preloaded WSGI server does: workers with a handler of their own, told to end by the parent."""
    work()
    told, tell = os.pipe()

    def child(n: int) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        work(n)
        os.write(tell, b"x")
        wait_for_a_signal()

    pids = _fork(child)
    for _ in pids:
        os.read(told, 1)
    ending()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    _reap(pids)


def forks_in_c() -> None:
    """A fork that Python is not told of, while nothing waits."""
    work()
    assert broadcaster.flush()
    while not broadcaster._outbox._asleep:
        threading.Event().wait(0.001)
    pids = _fork(work, ctypes.PyDLL(None).fork)
    ending()
    _reap(pids)


def forks_in_c_at_work() -> None:
    """The same while the parent's events wait."""
    work()
    pids = _fork(work, ctypes.PyDLL(None).fork, children=1)
    ending()
    _reap(pids)


if __name__ in ("__main__", "__mp_main__") and "in_a_thread" not in sys.argv[3]:
    if sys.argv[3] == "records_in_late_callbacks":
        atexit.register(lambda: work("late"))  # before the broadcaster's own, so called after it
    wire()
if __name__ == "__main__":
    ready()
    globals()[sys.argv[3]]()
