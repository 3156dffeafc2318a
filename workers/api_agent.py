"""Runs a part that reaches its bus through an API worker, by EVENTBUS_URL, until a signal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from eventbus.client.address import ApiAddress, parse_api_url
from eventbus.errors import BusUnavailable
from eventbus.settings import Settings
from eventbus.util.log import log
from eventbus.workers.opening import BACKOFF, TELL_EVERY_S
from eventbus.workers.signals import Signals
from eventbus.workers.systemd import Systemd
from eventbus.workers.worker import Part, Running, drain, wait_for_exit, worker_process


class Reached(NamedTuple):
    """The inputs for building a part. *ending*: the worker is shutting down."""

    address: ApiAddress
    ending: Callable[[], bool]


def run_through_api(build: Callable[[Reached], Part], settings: Settings, *, metrics: str, signals: Signals) -> int:
    """Run the part of *build* until a signal. Retries while the API does not answer.

    Args:    signals: installed already.

    Returns: the exit code. Raises: ConfigError, BusRefused: this API cannot be used.
    """
    running = Running()
    with worker_process("eventbus-agent", settings, signals, running, metrics=metrics) as systemd:
        address = parse_api_url(settings.url, settings)
        part = _build(build, Reached(address, lambda: running.stopping), signals, systemd)
        if part is None:
            return 0
        part.start()
        running.part, signals.idle = part, False
        log.info("eventbus-agent works through %s: pid %d", address, os.getpid())
        systemd.ready(f"works through {address}")
        wait_for_exit(signals, systemd, running.loop_health)
        running.stopping = True
        log.info("eventbus-agent stops: finishing its work")
        drained = drain(part, time.monotonic() + settings.drain_s)
        return (signals.exit_code or 0) if drained else 1


def _build(build: Callable[[Reached], Part], reached: Reached, signals: Signals, systemd: Systemd) -> Part | None:
    """Build the part after the API answers; None: a signal came first."""
    attempts, logged_at = 0, -TELL_EVERY_S
    while True:
        try:
            return build(reached)
        except BusUnavailable as error:
            attempts += 1
            if time.monotonic() - logged_at >= TELL_EVERY_S:
                logged_at = time.monotonic()
                log.warning("waiting for the API: %s", error)
        systemd.ready("waits for the API")
        systemd.alive()
        if signals.wait(BACKOFF.pause_s(attempts)):
            return None
