"""Runs the notifier of `eventbus worker notify`: its rules file, its heartbeat, and the dry run."""

from __future__ import annotations

import os
import signal
import ssl
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from eventbus.errors import SinkError
from eventbus.notify.dry_run import DryRun
from eventbus.notify.explain import matchers_of
from eventbus.notify.links import store_links
from eventbus.notify.notifier import Notifier, NotifySetup
from eventbus.notify.receivers.contract import Opening
from eventbus.notify.rules import ParsedRules, load_rules
from eventbus.util.extras import extra_needed
from eventbus.util.http.ssrf import Guard
from eventbus.util.log import log
from eventbus.util.periodic import Periodic
from eventbus.workers.near_misses import warn_of_near_misses
from eventbus.workers.worker import Context, Part, run

HEARTBEAT_EVERY_S: Final = 60.0


class NotifyFlags(NamedTuple):
    """The options of `eventbus worker notify`; see its --help."""

    path: Path
    since_s: float | None
    dry_run: bool
    external_url: str
    heartbeat_url: str
    take_over_s: float


def run_notify(flags: NotifyFlags, *, metrics: str) -> int:
    """Notify until a signal; return the exit code. Raises: ConfigError: the rules or options cannot be used."""
    file = RulesFile(flags.path)
    rules = file.read()
    for warning in rules.warnings:
        log.warning("%s", warning)
    heartbeat = Heartbeat(flags.heartbeat_url) if flags.heartbeat_url else None
    since = None if flags.since_s is None else time.time() - flags.since_s

    def on_hangup(_number: int, _frame: FrameType | None) -> None:
        file.again = True

    signal.signal(signal.SIGHUP, on_hangup)

    def build(context: Context) -> Part:
        warn_of_near_misses(context, matchers_of(rules.rules))
        links = store_links(context.bus, context.bus.client(name="eventbus-notify-links"))
        if flags.dry_run:
            return DryRun(context.bus, rules.rules, links=links, clock=context.clock, since=since)
        setup = NotifySetup(
            bus=context.bus,
            consumer=context.name,
            clock=context.clock,
            links=links,
            opening=Opening(environ=os.environ, bus_id=context.bus.id),
            on_change=context.on_change,
            since=since,
            external_url=flags.external_url,
            take_over_s=flags.take_over_s,
        )
        return Notifier(setup, file.rules or rules, load=file.changed, beat=heartbeat.beat if heartbeat else _nothing)

    doing = f", by the rules of {flags.path} with hash {rules.hash}"
    if heartbeat:
        heartbeat.start()
    try:
        return run("eventbus-notify", build, metrics=metrics, doing=doing)
    finally:
        if heartbeat:
            heartbeat.stop()


class RulesFile:
    """The rules file, read again when it changes. *again*: also if it looks the same."""

    def __init__(self, path: Path) -> None:
        self.again = False
        self.rules: ParsedRules | None = None  #: the last valid ones
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> ParsedRules:
        """Read and check it, with all receivers. Raises: ConfigError."""
        self._seen = self._state()
        self.rules = load_rules(self._path, Opening(environ=os.environ))
        return self.rules

    def changed(self) -> ParsedRules | None:
        """Return the rules if the file has changed since it was read; else None. Raises: ConfigError."""
        if not self.again and self._state() == self._seen:
            return None
        self.again = False
        return self.read()

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class Heartbeat:
    """Requests a URL each minute if `beat` was called since. Raises: ConfigError: the URL cannot be used."""

    def __init__(self, url: str) -> None:
        with extra_needed("notify", "--heartbeat-url"):
            from eventbus.util.http.guarded_http import GuardedClient
        guard = Guard.from_environ(os.environ)
        guard.check_url(url)
        self._url = url
        self._client = GuardedClient(guard, tls=ssl.create_default_context(), timeout_s=10.0)
        self._alive = threading.Event()
        self._periodic = Periodic(self._send, every_s=HEARTBEAT_EVERY_S, name="eventbus-notify-heartbeat")

    def start(self) -> None:
        self._periodic.start()

    def beat(self) -> None:
        """Note that notifications work."""
        if not self._alive.is_set():
            self._alive.set()

    def stop(self) -> None:
        self._periodic.stop(timeout_s=1.0)
        self._client.close()

    def _send(self) -> None:
        if not self._alive.is_set():
            return
        self._alive.clear()
        try:
            status = self._client.get(self._url, {"user-agent": "eventbus"}, 1024).status
        except SinkError as error:
            log.warning("the heartbeat did not arrive: %s", error)
            return
        if status >= 400:
            log.warning("the heartbeat was answered with %d", status)


def _nothing() -> None:
    pass
