"""Records events in a helper process, so that this process needs no imports for it and stays small.

The helper starts at the first event and receives each event as a line. After it has sent all and received none for a
while, it reports this and ends; the next event starts another. While the bus is away it stays and retries. If a helper
dies, the next one gets the lines that it had not taken; lines that it had taken may or may not have been sent.
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

#: The program that `main` of `cli/exec_recorder.py` is. -P: the current folder cannot shadow it.
_PROGRAM: Final = ("-P", "-c", "from eventbus.cli.exec_recorder import main; main()")
_READ_BYTES: Final = 4_096
#: Helpers in a row that die before they take a line; then no other is started.
_MOST_IN_VAIN: Final = 2
#: The first words of its lines with the number of lines taken, and of lines sent.
_TAKEN, _SENT = (b"taken", b"sent"), (b"sent",)
#: Signals that a terminal sends to its foreground group, and signals that ask programs to end. A helper belongs to that
#: group until it has its own, so it starts with these blocked; ignoring them later discards the pending ones.
NOT_FOR_IT: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM)


class EventHelper:
    """Records events of one object through a helper. Only `close` blocks, and nothing raises.

    Args: about: the fields that all events share; plain JSON.
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
        event = {"ns": time.time_ns(), "type": event_type, "reason": reason, "message": message}
        self._waiting.append(json.dumps(event).encode() + b"\n")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eventbus-recording", daemon=True)
            # Signals are for the main thread.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self._thread.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._wake()

    def close(self) -> tuple[int, str]:
        """Send the remaining events, and return how many could not be sent, and why.

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
        """Start a helper, pass it waiting and new events, and stop it when it has sent all, or at the end."""
        ours, theirs = socket.socketpair()
        passed: list[bytes] = []
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
                setpgroup=0,  # the terminal's signals are for the command
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
            while self._waiting or not (self._ending or answer.endswith(b"sent %d\n" % len(passed))):
                if self._waiting:
                    ours.sendall(self._waiting[0])
                    passed.append(self._waiting.popleft())
                # Read between writes too: a helper that blocks while it reports would take no more lines.
                inputs: list[Any] = [self._wake_read, ours]
                readable, _, _ = select.select(inputs, [], [], 0 if self._waiting or self._ending else None)
                if self._wake_read in readable:
                    os.read(self._wake_read, _READ_BYTES)
                if ours in readable:
                    data = ours.recv(_READ_BYTES)
                    if not data:
                        break
                    answer += data
        with contextlib.suppress(OSError):
            ours.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):  # its last lines can still be read
            while data := ours.recv(_READ_BYTES):
                answer += data
        ours.close()
        _, status = os.waitpid(pid, 0)
        self._judge(answer, passed, status)

    def _judge(self, answer: bytes, passed: Sequence[bytes], status: int) -> None:
        """Read the helper's last line, which is JSON. If it died without one, lines not taken wait again."""
        *_, last = [b"", *answer.splitlines()]
        try:
            report = json.loads(last)
            self._lose(int(report["unsent"]), str(report["why"]))
            self._in_vain = 0
            return
        except (ValueError, KeyError, TypeError):
            why = f"the process that records them ended with code {os.waitstatus_to_exitcode(status)}"
        words = [line.partition(b" ") for line in answer.splitlines(keepends=True) if line.endswith(b"\n")]
        taken, sent = (max((int(n) for word, _, n in words if word in kinds), default=0) for kinds in (_TAKEN, _SENT))
        self._waiting.extendleft(reversed(passed[taken:]))
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
