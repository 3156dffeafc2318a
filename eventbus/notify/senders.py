"""Sends notifications: a thread for each integration that has something to send, so that none delays another.

An error that may pass is retried with back-off, without limit: the notification is stored, and the group waits for it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import msgspec

from eventbus.errors import EventBusError, EventRejected, EventUnbuildable, Throttled, UnexpectedReply
from eventbus.notify.engine import Send
from eventbus.notify.receivers.contract import IntegrationConfig, Opening, Receiver
from eventbus.notify.rules import Rules
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log
from eventbus.util.text import cut_bytes, printable

BACKOFF: Final = Backoff(first_s=1.0, last_s=60.0, at_least=0.5)
#: A notification is given up after so many unexpected errors, each of them directly after another one was accepted. In
#: an outage, also one with a few accepted ones in between, none is given up for errors that all of them get.
MAX_TRIES: Final = 10
#: A receiver that has failed so often in a row is reported.
REPORTED_FAILURES: Final = 5
MAX_HANDLE_BYTES: Final = 4096


class Result(NamedTuple):
    """The end of a send. *handle* None: it was given up because of *error*."""

    send: Send
    handle: Mapping[str, str] | None
    error: str = ""


class SenderFigures(msgspec.Struct):
    """The counters of one integration. Written by its thread, read by any."""

    sent: int = 0
    retries: int = 0
    dropped: int = 0
    waiting: int = 0
    failing_since: float | None = None  #: seconds, monotonic
    error: str = ""


class Senders:
    """All integrations of the acting rules. Used by one thread; results come through *results*, in any order.

    Args: on_change: called with NotificationFailed and NotificationsResumed, from any thread.
    """

    def __init__(
        self,
        rules: Rules,
        opening: Opening,
        *,
        clock: Clock,
        results: SimpleQueue[Any],
        on_change: Callable[[str, str], None],
    ) -> None:
        self._opening = opening
        self._clock = clock
        self._results = results
        self._on_change = on_change
        self._integrations: dict[tuple[str, str], _Integration] = self._open(rules)

    def submit(self, sends: Sequence[Send]) -> None:
        """Send each as soon as its integration is free. Returns at once."""
        for send in sends:
            if integration := self._integrations.get((send.notification.receiver, send.integration)):
                integration.submit(send)

    def reload(self, rules: Rules) -> None:
        """Go on with other rules. Waiting sends go to the new configuration of their integration."""
        former, self._integrations = self._integrations, self._open(rules)
        for integration in former.values():
            self.submit(integration.close())

    def figures(self) -> dict[str, SenderFigures]:
        """Return the counters by `<receiver>/<integration>`. Thread-safe."""
        return {f"{receiver}/{name}": each.figures for (receiver, name), each in list(self._integrations.items())}

    def close(self, timeout_s: float = 0.0) -> None:
        """End the threads; waits at most *timeout_s* for sends that are under way. Sends that wait stay stored."""
        deadline = self._clock.monotonic() + timeout_s
        for integration in self._integrations.values():
            integration.close()
        for integration in self._integrations.values():
            integration.join(max(0.0, deadline - self._clock.monotonic()))

    def _open(self, rules: Rules) -> dict[tuple[str, str], _Integration]:
        return {
            (receiver.name, name): _Integration(
                f"{receiver.name}/{name}",
                receiver.name,
                config,
                self._opening,
                clock=self._clock,
                results=self._results,
                on_change=self._on_change,
            )
            for receiver in rules.receivers
            for name, config in receiver.integrations()
        }


class _Integration:
    """One receiver with its queue. Its thread starts with the first send."""

    def __init__(
        self,
        name: str,
        receiver: str,
        config: IntegrationConfig,
        opening: Opening,
        *,
        clock: Clock,
        results: SimpleQueue[Any],
        on_change: Callable[[str, str], None],
    ) -> None:
        self.config = config
        self.figures = SenderFigures()
        self._name = name
        self._receiver_name = receiver
        self._opening = opening
        self._clock = clock
        self._results = results
        self._on_change = on_change
        self._queue: deque[Send] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._failures = 0  # in a row
        self._tries: Counter[str] = Counter()  # unexpected errors directly after an accepted one, by key
        self._receiver: Receiver | None = None
        self._thread: threading.Thread | None = None

    def submit(self, send: Send) -> None:
        with self._wake:
            self._queue.append(send)
            self.figures.waiting = len(self._queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"eventbus-notify-{self._name}", daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> list[Send]:
        """End after the send that is under way. Returns those that wait."""
        with self._wake:
            self._closed = True
            waiting = list(self._queue)
            self._queue.clear()
            self._wake.notify()
            return waiting

    def join(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = 0.0
        while True:
            with self._wake:
                if pause_s:
                    self._wake.wait_for(lambda: self._closed, pause_s)
                self._wake.wait_for(lambda: self._closed or self._queue)
                if self._closed:
                    break
                send = self._queue.popleft()
            pause_s = self._try(send)
        if self._receiver is not None:
            self._receiver.close()

    def _try(self, send: Send) -> float:
        """Send once. Return the seconds to pause."""
        key = send.notification.key
        try:
            if self._receiver is None:
                self._receiver = self.config.open(self._opening)
            handle = self._receiver.send(send.notification)
            failpoint("notify:sent")
            if sum(len(name) + len(value) for name, value in handle.items()) > MAX_HANDLE_BYTES:
                log.error("%s returned a handle of more than %d bytes: it is not kept", self._name, MAX_HANDLE_BYTES)
                handle = {}
        except (EventRejected, EventUnbuildable) as error:
            self._drop(send, error)
            return 0.0
        except Throttled as error:
            self._again(send, error)
            return error.retry_after_s if error.retry_after_s is not None else BACKOFF.pause_s(self._failures)
        except Exception as error:
            if not isinstance(error, EventBusError):
                log.exception("%s raised an unexpected error", self._name)
            if not isinstance(error, EventBusError) or isinstance(error, UnexpectedReply):
                self._tries[key] += not self._failures
                if self._tries[key] >= MAX_TRIES:
                    self._drop(send, error)
                    return 0.0
            self._again(send, error)
            return BACKOFF.pause_s(self._failures)
        self._tries.pop(key, None)
        self.figures.sent += 1
        self._results.put(Result(send, handle))
        self._succeeded()
        return 0.0

    def _again(self, send: Send, error: Exception) -> None:
        self._failures += 1
        self.figures.retries += 1
        self.figures.error = cut_bytes(printable(str(error)), 300)
        with self._wake:
            if self._closed:  # it stays stored, and the next worker, or the next configuration, sends it
                self._results.put(send)
            else:
                self._queue.append(send)
            self.figures.waiting = len(self._queue)
        if self.figures.failing_since is None:
            self.figures.failing_since = self._clock.monotonic()
            log.warning("%s is tried again: %s", self._name, self.figures.error)
        if self._failures == REPORTED_FAILURES:
            self._on_change("NotificationFailed", f"{self._receiver_name}: {self._name} fails: {self.figures.error}")

    def _drop(self, send: Send, error: Exception) -> None:
        self._tries.pop(send.notification.key, None)
        self.figures.dropped += 1
        self.figures.error = cut_bytes(printable(str(error)), 300)
        log.error("%s refused the notification %s: %s", self._name, send.notification.key, self.figures.error)
        self._results.put(Result(send, None, self.figures.error))
        self._on_change("NotificationFailed", f"{self._receiver_name}: {self._name} refused: {self.figures.error}")

    def _succeeded(self) -> None:
        if self._failures >= REPORTED_FAILURES:
            self._on_change("NotificationsResumed", f"{self._receiver_name}: {self._name} accepts notifications again")
        if self._failures:
            log.info("%s accepts notifications again", self._name)
        self._failures = 0
        self.figures.failing_since = None
