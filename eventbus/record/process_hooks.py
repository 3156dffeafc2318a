"""Ends and renews broadcasters when a process ends or forks: exit, signals, children of multiprocessing, fork.

At the end every broadcaster sends its events, by the steps of `EventBroadcaster.shutdown`. These may be repeated, and
nothing ever waits for code that a signal has interrupted.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import eventbus.model.decodable  # noqa: F401  # registers its hooks of forks before these, so that its lock is the inner one
from eventbus.errors import ConfigError
from eventbus.util.log import log

if TYPE_CHECKING:
    from eventbus.record.broadcaster import EventBroadcaster

#: seconds that watchers have for the events they are handling, even if the flush has taken all the time of a shutdown
LAST_HANDLER_S = 2.0
#: seconds that a fork waits for flushers that are in the middle of a round
PARK_S = 0.1
#: seconds that a handler has to start by itself, and between two attempts to wake the main thread
PAUSE_S = 0.05


#: Every broadcaster of this process, so that a signal, and a child after fork, finds them.
_ALL: weakref.WeakSet[EventBroadcaster] = weakref.WeakSet()
#: those with watchers
_kept_alive: set[EventBroadcaster] = set()
#: signals that flush before they end the process, where the program has no handler of its own
_flushing: set[int] = {signal.SIGTERM}
#: whether it was logged that they cannot
_unarmed_logged = False
#: whether an event was recorded in this process
_started = False

#: the process in which multiprocessing is to have the last losses logged
_last_log_pid = 0

#: signals with a handler that has started
_handled: set[int] = set()

#: Held during imports and forks: a fork in the middle of an import would leave the child half a module for ever.
_fork_lock = threading.RLock()
#: the calls that undo the preparations of the fork under way, last first
_undo: list[Callable[[], object]] = []
#: the signal mask before them; None: it was left alone
_mask: set[signal.Signals | int] | None = None


def register(broadcaster: EventBroadcaster) -> None:
    """Have *broadcaster* flushed at the exit of the process, unless it is collected before.

    Nothing here keeps it alive: its flusher does, and `keep_alive` when it has watchers. Signals: `arm`.
    """
    _ALL.add(broadcaster)
    # Not by weakref.finalize: that imports at exit, which never ends in a child that was forked during an import.
    end = partial(_end, weakref.ref(broadcaster, lambda _: atexit.unregister(end)))
    atexit.register(end)
    broadcaster.at_exit = end
    _end_with_child(broadcaster)
    import multiprocessing.util  # it would be a tenth of importing this package

    # multiprocessing forgets every finalizer at the beginning of a child.
    multiprocessing.util.register_after_fork(broadcaster, _end_with_child)


def keep_alive(broadcaster: EventBroadcaster) -> None:
    """Keep *broadcaster* until it is shut down: it has watchers, which its end stops."""
    _kept_alive.add(broadcaster)
    arm()


def unregister(broadcaster: EventBroadcaster) -> None:
    """Forget *broadcaster*, which is shut down."""
    _kept_alive.discard(broadcaster)
    atexit.unregister(broadcaster.at_exit)
    broadcaster.finalizer.cancel()


def _end_with_child(broadcaster: EventBroadcaster) -> None:
    """Have a child of multiprocessing, which ends without atexit, end the broadcaster as well."""
    global _last_log_pid
    from multiprocessing.util import Finalize

    broadcaster.finalizer = Finalize(broadcaster, _end, args=(weakref.ref(broadcaster),), exitpriority=10)
    if _last_log_pid != os.getpid():
        _last_log_pid = os.getpid()
        Finalize(None, _log_last_losses, exitpriority=-1000)


def _end(reference: weakref.ref[EventBroadcaster]) -> None:
    if (broadcaster := reference()) is not None:
        broadcaster.end()


def _log_last_losses() -> None:
    for broadcaster in list(_ALL):
        broadcaster.losses.close()


# Registered at import, so called after the callbacks of everything that is imported later, and records at its end.
atexit.register(_log_last_losses)


# -- signals -------------------------------------------------------------------------------------------------------


def install_signal_handlers(*signals: int) -> None:
    """Have SIGTERM and *signals* flush every broadcaster before they end the process. Call it in the main thread.

    The first recorder or watcher that is made in the main thread has done so for SIGTERM. A signal for which the
    program has a handler of its own is left alone: such a handler calls `shutdown` itself, or ends by `sys.exit`, which
    flushes too. Ctrl-C does not need one. A child of this process begins with the default action, until it records.

    Raises: ConfigError: called outside the main thread, or no process can handle one of *signals*.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError("install_signal_handlers: Python sets signal handlers in the main thread only: call it there")
    for number in {signal.SIGTERM, *signals}:
        try:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _flush_and_die)
        except (OSError, ValueError) as error:
            raise ConfigError(f"install_signal_handlers: signal {number} cannot be handled: leave it out") from error
        _flushing.add(number)


def start() -> None:
    """Prepare at the first event: arm a child as well, and wake the main thread of a child of multiprocessing."""
    global _started
    arm()
    if _started:
        return
    _started = True
    # With gevent and eventlet, a thread that reads a pipe stops the whole program.
    if "multiprocessing.process" in sys.modules and not {"gevent.monkey", "eventlet.patcher"} & sys.modules.keys():
        from multiprocessing import parent_process

        # Not earlier: while a child imports the program it does not know yet that it is one.
        if parent_process() is not None and threading.current_thread() is threading.main_thread():
            _waker.start()


def arm() -> None:
    """Install the handlers for signals with the default action; outside the main thread log that they are missing."""
    global _unarmed_logged
    missing = [number for number in _flushing if signal.getsignal(number) is signal.SIG_DFL]
    if not missing:
        return
    try:
        for number in missing:
            signal.signal(number, _flush_and_die)
    except ValueError:  # not in the main thread of the main interpreter
        if not _unarmed_logged:
            _unarmed_logged = True
            names = " and ".join(sorted(signal.Signals(number).name for number in missing))
            log.warning(
                "%s will end this process without sending waiting events: events are recorded outside the main thread; "
                "call eventbus.install_signal_handlers() in the main thread",
                names,
            )


def _flush_and_die(signum: int, _frame: object) -> None:
    _handled.add(signum)
    broadcasters = list(_ALL)
    for broadcaster in broadcasters:
        broadcaster.begin_end()
    for broadcaster in broadcasters:
        broadcaster.wait_for_end()
    # In a thread: the rest needs locks, and this thread may have been interrupted while it held one of them.
    rest = threading.Thread(target=_shut_down, args=(broadcasters,), name="eventbus-end", daemon=True)
    try:
        rest.start()
    except RuntimeError:  # the interpreter is shutting down
        _shut_down(broadcasters)
    else:
        rest.join(LAST_HANDLER_S + 1.0)
        if rest.is_alive() and (waiting := sum(broadcaster.waiting for broadcaster in broadcasters)):
            os.write(
                2, f"eventbus: {waiting} events unsent: {signal.Signals(signum).name} ended the process\n".encode()
            )
    # This thread may have been interrupted while it held a lock that the other needed, or while it logged.
    for line in [line for broadcaster in broadcasters for line in broadcaster.losses.lines_left()]:
        os.write(2, f"{line}\n".encode())
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)  # the first process of a container is not ended by a signal's default action


def _shut_down(broadcasters: list[EventBroadcaster]) -> None:
    for broadcaster in broadcasters:
        broadcaster.shutdown()


# -- forks ---------------------------------------------------------------------------------------------------------


@contextmanager
def no_fork() -> Iterator[None]:
    """Keep other threads from forking during the block."""
    with _fork_lock:
        yield


def _before_fork() -> None:
    global _mask
    _fork_lock.acquire()
    _undo.append(_fork_lock.release)
    deadline = time.monotonic() + PARK_S
    for broadcaster in list(_ALL):
        _undo.append(broadcaster.unpark)
        broadcaster.park(max(0.0, deadline - time.monotonic()))
    if armed := [number for number in _flushing if signal.getsignal(number) is _flush_and_die]:
        # Python forgets signals that reach a child before it runs. If blocked, they stay pending until that.
        _mask = signal.pthread_sigmask(signal.SIG_BLOCK, armed)
        _undo.append(_unblock)


def _unblock() -> None:
    global _mask
    if _mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask)
        _mask = None


def _after_fork_in_parent() -> None:
    while _undo:
        _undo.pop()()


def after_fork_in_child() -> None:
    """Start again: default signals until the first event, empty broadcasters, no lock of the parent's."""
    global _fork_lock, _unarmed_logged, _started
    _fork_lock = threading.RLock()
    _undo.clear()
    _unarmed_logged = _started = False
    if threading.current_thread() is threading.main_thread():
        for number in _flushing:
            if signal.getsignal(number) is _flush_and_die:
                signal.signal(number, signal.SIG_DFL)
        _waker.forget()
    _unblock()
    for broadcaster in list(_ALL):
        broadcaster.after_fork()


def after_fork_by_c() -> None:
    """Do the same late, in a child that C code has forked, and count the events that it recorded until now as lost."""
    after_fork_in_child()
    for broadcaster in list(_ALL):
        broadcaster.count_forgotten()


# -- surroundings --------------------------------------------------------------------------------------------------


class SignalWaker:
    """Wakes the main thread for a signal that came just before it began to wait.

    Python runs handlers in the main thread, between two instructions. A signal between the last of them and a wait in
    C, for a lock of multiprocessing, is noted and interrupts nothing. The handler runs when that wait ends: in a worker
    of a pool that is being ended, never. While another thread wants the interpreter this gap is milliseconds long.

    A pipe, to which Python writes each signal at once, and a thread that reads it. Start it in the main thread.

    Args: is_handled: returns False until the handler of this signal has started.
    """

    def __init__(self, is_handled: Callable[[int], bool]) -> None:
        self._is_handled = is_handled
        self._ends: tuple[int, ...] = ()

    def start(self) -> None:
        """Start. If the program has such a pipe itself, that one wakes the main thread. Idempotent."""
        if self._ends:
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        if (other := signal.set_wakeup_fd(writing, warn_on_full_buffer=False)) != -1:
            signal.set_wakeup_fd(other)
            os.close(reading)
            os.close(writing)
            return
        self._ends = (reading, writing)
        threading.Thread(target=self._run, args=(reading,), name="eventbus-signals", daemon=True).start()

    def forget(self) -> None:
        """Forget the pipe in a child after fork: its signals must not reach the parent's pipe."""
        if not self._ends:
            return
        if (other := signal.set_wakeup_fd(-1)) not in (-1, self._ends[1]):
            signal.set_wakeup_fd(other)
        for end in self._ends:
            os.close(end)
        self._ends = ()

    def _run(self, reading: int) -> None:
        main = threading.main_thread().ident
        assert main
        while numbers := os.read(reading, 64):
            for number in set(numbers):
                time.sleep(PAUSE_S)
                while not self._is_handled(number):
                    signal.pthread_kill(main, number)
                    time.sleep(PAUSE_S)


_waker = SignalWaker(lambda number: number in _handled or signal.getsignal(number) is not _flush_and_die)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=after_fork_in_child)
