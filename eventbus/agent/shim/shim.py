"""The loop of a shim: requests of the agent, ends of processes, their output, and deadlines.

Copying bytes is done here, all other work by workers (`workers.py`): memory that the loop uses once is kept for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import traceback
from collections.abc import Callable
from typing import cast

from eventbus.agent.shim import protocol
from eventbus.agent.shim.launch import Pipes
from eventbus.agent.shim.log_file import LogFile
from eventbus.agent.shim.outputs import Output
from eventbus.agent.shim.prctl import die_with, outlive_parent
from eventbus.agent.shim.runs import Runs, kill_all
from eventbus.agent.shim.signals import asked_to_end, sleep_through_signals, wake_by_signals
from eventbus.agent.shim.state import State
from eventbus.agent.shim.work import Known, answer, begin, known, take, tell_of_failure
from eventbus.agent.shim.workers import WorkerLost, work
from eventbus.util.failpoints import failpoint

#: A shim of which nothing runs looks so often whether its folder is still there, milliseconds.
_ALONE_MS = 30_000
#: The longest wait for a deadline: `poll` takes no number above 2^31 ms, 24 days.
_MOST_WAIT_S = 3600.0
#: How often the end of a process is tried to be kept, and seconds between: memory may be short for a moment.
_TRIES, _TRY_AGAIN_S = 3, 0.5
#: So long it accepts no requests, after it had no descriptor for one, seconds.
_DEAF_S = 1.0


class Shim:
    """Owns the processes of a pod: they are its children when they begin, and so are those that lose their parents.

    It ends when it is asked to and nothing runs any more. SIGTERM has it end everything first, each in its grace time.
    """

    def __init__(self) -> None:
        self._folder = ""
        self._packed = b""  #: the state of the pod
        self._running: dict[int, str] = {}  #: pid of a process that runs → its log
        self._due_at = 0.0  #: when something is due, on the monotonic clock; 0.0: nothing
        self._leftovers = False  #: whether there is something to sweep
        self._outputs: dict[int, Output] = {}  #: pid → its output
        self._poll = select.poll()
        self._stopped = False  #: whether all that runs was asked to end
        self._left = False
        self._deaf_until = 0.0  #: the listener is not looked at until then, on the monotonic clock; 0.0: it is
        self._wake = wake_by_signals()
        self._listener = protocol.make_listener()

    def begin(self, agent: socket.socket) -> str:
        """Take over the pod that *agent* names, and answer. Returns: its folder; "": it cannot be."""
        reply, self._folder, learned = work(begin, os.getpid(), agent, self._listener)
        if learned:
            self._learn(learned)
        outlive_parent()  # before the word: an agent that has it must not lose us with the zygote
        agent.sendall(reply)
        return self._folder

    def run(self) -> None:
        """Work until the end. Raises: WorkerLost."""
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(self._listener.fileno(), select.POLLIN)
        while not self._left and not (asked_to_end and not self._running):
            self._turn()
            if not self._running and not os.access(self._folder, os.F_OK):
                break  # no request can come any more
        kill_all()
        take(self._packed, Runs.save_the_rest)

    def rehearse(self) -> None:
        """Do the work of all shims once in their zygote: the caches of Python's own code are filled then, and shared.

        It cannot be reached. It listens nowhere, not even for a moment.
        """
        die_with(os.getppid())
        outlive_parent()
        self._learn(known(Runs(os.getpid(), "/", cast(State, {"runs": []}))))
        self._listener.close()
        ours, self._listener = socket.socketpair(type=socket.SOCK_DGRAM)
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(self._listener.fileno(), select.POLLIN)
        with ours:
            protocol.ask_by(ours, {"v": protocol.VERSION, "op": "rehearse"}).close()
            self._turn()
        self._running = {0: os.devnull}
        self._let_begin(0, Pipes())
        self._close(self._outputs[0])
        self._listener.close()
        sleep_through_signals(self._wake)

    def _turn(self) -> None:
        for descriptor, _ in self._poll.poll(self._next_due_ms()):
            try:
                self._handle(descriptor)
            except WorkerLost:
                raise
            except Exception:  # the processes of a pod are worth more than one step that went wrong
                with contextlib.suppress(OSError):  # the log of it is on the same full disk
                    traceback.print_exc()
            if self._left:
                return  # nothing is begun after that word
        if asked_to_end and not self._stopped:
            self._stopped = True
            self._do(Runs.stop_all)
        if 0.0 < self._due_at <= time.monotonic():
            self._do(Runs.do_due)

    def _next_due_ms(self) -> float | None:
        due = [at - time.monotonic() for at in (self._due_at, self._hear_due()) if at]
        if not due and not self._running:
            return _ALONE_MS
        return max(0.0, min(*due, _MOST_WAIT_S)) * 1000 + 1 if due else None

    def _do(self, step: Callable[..., object], *given: object) -> None:
        self._learn(work(take, self._packed, step, *given))

    def _learn(self, learned: Known) -> None:
        self._packed, self._running, self._due_at, self._leftovers = learned

    def _handle(self, descriptor: int) -> None:
        if descriptor == self._wake:
            os.read(descriptor, 4096)
            self._reap()
        elif descriptor == self._listener.fileno():
            self._hear()
        else:
            output = next((one for one in self._outputs.values() if one.descriptor == descriptor), None)
            if output is None or not output.read():  # closed, in this very round or by a process that may run on
                with contextlib.suppress(KeyError):
                    self._poll.unregister(descriptor)

    def _hear(self) -> None:
        try:
            for spare in os.pipe():
                os.close(spare)
        except OSError:  # no descriptors are left for its message
            self._poll.unregister(self._listener.fileno())
            self._deaf_until = time.monotonic() + _DEAF_S
            return
        if brought := protocol.hear(self._listener):
            try:
                os.set_blocking(brought[1], False)
                self._answer(*brought)
            finally:
                for descriptor in brought:
                    os.close(descriptor)

    def _hear_due(self) -> float:
        """Accept requests again, if it is time. Returns: when that will be; 0.0: it accepts them."""
        if self._deaf_until and self._deaf_until <= time.monotonic():
            self._deaf_until = 0.0
            self._poll.register(self._listener.fileno(), select.POLLIN)
        return self._deaf_until

    def _reap(self) -> None:
        reaped = False
        while found := _ended_child():
            pid, code = found
            if pid in self._running:
                if output := self._outputs.get(pid):
                    output.read(whole=True)
                self._keep(pid, code)  # on disk now, if there is room, and only now reaped
            os.waitpid(pid, 0)
            reaped = True
        if self._leftovers and reaped:  # not for a worker's end, or one that cannot die would have us sweep for ever
            self._do(Runs.sweep)
        for pid in tuple(self._outputs):
            if pid not in self._running:
                self._close(self._outputs.pop(pid))

    def _keep(self, pid: int, code: int) -> None:
        for _ in range(_TRIES):
            self._do(Runs.ended, pid, code)
            if pid not in self._running:
                return
            time.sleep(_TRY_AGAIN_S)
        # Reaped, its number would be another's one day, and that one's would be killed in its place.
        raise WorkerLost(f"the end of process {pid} cannot be kept")

    def _close(self, output: Output) -> None:
        output.read(whole=True)
        with contextlib.suppress(KeyError):
            self._poll.unregister(output.descriptor)
        output.close()

    def _answer(self, request: int, reply_to: int) -> None:
        try:
            pipes = Pipes()
        except OSError:  # a start is refused then, for want of them
            pipes = None
        reply, self._left, learned = work(answer, self._packed, request, reply_to, pipes)
        before = self._running.keys()
        self._learn(learned)
        if pipes:
            begun = self._running.keys() - before
            for pid in begun:
                failpoint("shim:learned")
                problem = self._let_begin(pid, pipes)
                failpoint("shim:released")
                if problem:
                    reply, learned = work(tell_of_failure, self._packed, pid, problem)
                    self._learn(learned)
            if not begun:
                pipes.close()
        self._stopped = False
        if reply:
            with contextlib.suppress(OSError):  # it did not wait for it
                os.write(reply_to, reply)

    def _let_begin(self, pid: int, pipes: Pipes) -> str:
        """Have a process become its program, now that it is written down and our child: its worker, which has made it,
        is gone, and a program that asks to die with its parent, or looks at its parent, has to find us.

        Returns: "", or why it could not.
        """
        os.set_blocking(pipes.reading, False)
        self._outputs[pid] = Output(pipes.reading, LogFile(self._running[pid]))
        self._poll.register(pipes.reading, select.POLLIN)
        return pipes.release()


def _ended_child() -> tuple[int, int] | None:
    """Return a child that has ended and how, without reaping it: an exit code or, below zero, a signal."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None:
        return None
    return found.si_pid, found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
