"""Has a helper process record events, so that this one imports nothing for it and stays small while it waits.

The helper is started at the first event and told each as a line; when it has sent all and hears nothing for a while, it
says so and is let go, and the next event starts another. While the bus is away it stays, and goes on trying. What one
that died had not taken yet is given to the next; of what it had taken nobody knows whether it was sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: The program that `main` of `cli/exec_recorder.py` is. -P: no folder of a user's hides it.
_PROGRAM: Final = ("-P", "-c", "from eventbus.cli.exec_recorder import main; main()")
_READ_BYTES: Final = 4_096
#: Helpers in a row that die before they take anything: the next would do no better.
_MOST_IN_VAIN: Final = 2
#: The words of its lines that say how many it has taken, and how many are sent.
_TAKEN, _SENT = (b"taken", b"sent"), (b"sent",)
#: What a terminal sends to its foreground group, and what asks programs to end. A helper belongs to that group for a
#: moment before it has its own, so it begins with these blocked: what came meanwhile is gone once it ignores them.
NOT_FOR_IT: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM)


class EventHelper:
    """Takes events of one object and has them recorded; never waits for it, but in `close`, and never raises.

    Args: about: what the helper has to know of all events; plain JSON.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about = dict(about)
        self._waiting: deque[bytes] = deque()
        self._ending = False
        self._in_vain = 0
        self._unsent, self._why = 0, ""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._thread: threading.Thread | None = None

    def record(self, event_type: str, reason: str, message: str) -> None:
        """Record an event that happens now."""
        said = {"ns": time.time_ns(), "type": event_type, "reason": reason, "message": message}
        self._waiting.append(json.dumps(said).encode() + b"\n")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eventbus-recording", daemon=True)
            # Signals are for the main thread.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self._thread.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._wake()

    def close(self) -> tuple[int, str]:
        """Have all sent that can be, and return how many events were not, and why.

        Blocks for as long as the helper does, which is bounded by the settings' `flush_s`.
        """
        self._ending = True
        if self._thread is not None:
            self._wake()
            self._thread.join()
        return self._unsent, self._why

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        while self._waiting or not self._ending:
            if self._waiting:
                self._with_helper()
            else:
                os.read(self._wake_read, _READ_BYTES)

    def _with_helper(self) -> None:
        """Start a helper, give it what waits and what comes, and let it go when it has sent all, or at the end."""
        ours, theirs = socket.socketpair()
        told: list[bytes] = []
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *_PROGRAM],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setpgroup=0,  # what the terminal sends is the command's
                setsigmask=NOT_FOR_IT,
                setsigdef=[signal.SIGPIPE],
            )
        except OSError as error:
            theirs.close()
            self._lose_waiting(f"they cannot be recorded: {error.strerror}")
            return
        theirs.close()
        answer = b""
        with contextlib.suppress(OSError):  # it has died
            ours.sendall(json.dumps(self._about).encode() + b"\n")
            while self._waiting or not (self._ending or answer.endswith(b"sent %d\n" % len(told))):
                if self._waiting:
                    ours.sendall(self._waiting[0])
                    told.append(self._waiting.popleft())
                # Between two of them as well: one that cannot tell what it takes would take no more.
                heard: list[Any] = [self._wake_read, ours]
                readable, _, _ = select.select(heard, [], [], 0 if self._waiting or self._ending else None)
                if self._wake_read in readable:
                    os.read(self._wake_read, _READ_BYTES)
                if ours in readable:
                    data = ours.recv(_READ_BYTES)
                    if not data:
                        break
                    answer += data
        with contextlib.suppress(OSError):
            ours.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):  # what it said before it died is still there
            while data := ours.recv(_READ_BYTES):
                answer += data
        ours.close()
        _, status = os.waitpid(pid, 0)
        self._judge(answer, told, status)

    def _judge(self, answer: bytes, told: Sequence[bytes], status: int) -> None:
        """Take the helper's last word, a line of JSON. One that died has left none, and what it had not taken waits."""
        *_, last = [b"", *answer.splitlines()]
        try:
            found = json.loads(last)
            self._lose(int(found["unsent"]), str(found["why"]))
            self._in_vain = 0
            return
        except (ValueError, KeyError, TypeError):
            why = f"the process that records them ended with code {os.waitstatus_to_exitcode(status)}"
        words = [line.partition(b" ") for line in answer.splitlines(keepends=True) if line.endswith(b"\n")]
        taken, sent = (max((int(n) for what, _, n in words if what in said), default=0) for said in (_TAKEN, _SENT))
        self._waiting.extendleft(reversed(told[taken:]))
        if taken > sent:
            self._lose(taken - sent, why)
        self._in_vain = 0 if taken else self._in_vain + 1
        if self._in_vain >= _MOST_IN_VAIN:
            self._lose_waiting(why)

    def _lose_waiting(self, why: str) -> None:
        self._lose(len(self._waiting), why)
        self._waiting.clear()

    def _lose(self, count: int, why: str) -> None:
        if count or why:
            self._unsent, self._why = self._unsent + count, why or self._why
