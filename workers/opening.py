"""Opens the bus for a worker: waits for an unreachable Redis, but fails on permanent errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from eventbus.broker.bus import Bus, difference, open_bus, read_options
from eventbus.broker.connection.connect import Client
from eventbus.cli.input.option_values import parse_json
from eventbus.cli.session import find_url
from eventbus.errors import BusReplaced, BusUnavailable, ConfigError, GroupMissing
from eventbus.settings import Options, Settings
from eventbus.util.backoff import Backoff
from eventbus.util.log import log

T = TypeVar("T")
OPTIONS_VARIABLE = "EVENTBUS_OPTIONS"
BACKOFF = Backoff(first_s=0.1, last_s=5.0, at_least=0.5)
#: Seconds between two log lines about the wait.
TELL_EVERY_S = 10.0


def wait_until_available(call: Callable[[], T], service: str, wait: Callable[[float], bool]) -> T | None:
    """Return the result of *call* as soon as *service* is available; None: *wait* gave up."""
    attempts, logged_at = 0, -TELL_EVERY_S
    while True:
        try:
            return call()
        except (BusUnavailable, GroupMissing) as error:
            attempts += 1
            if time.monotonic() - logged_at >= TELL_EVERY_S:
                logged_at = time.monotonic()
                log.warning("waiting for %s: %s", service, error)
        if wait(BACKOFF.pause_s(attempts)):
            return None


class Opener:
    """Opens the bus, and opens it again after changes.

    Args: wait: sleeps for the given seconds; True: give up.  options: required options; None: use those of the bus.
    """

    def __init__(self, settings: Settings, options: Options | None, *, wait: Callable[[float], bool]) -> None:
        self._settings = settings
        self._options = options
        self._wait = wait

    def open(self) -> Bus | None:
        """Open the bus as soon as it is available; None if `wait` gave up.

        Raises: BusRefused, ConfigError: a permanent error; the message has the solution.
        """

        def open_it() -> Bus:
            bus = open_bus(find_url(self._settings), self._settings, options=self._options)
            bus.check_codecs()
            return bus

        return wait_until_available(open_it, "Redis", self._wait)

    def news(self, bus: Bus, client: Client) -> str:
        """Describe changes of the bus or its options since *bus* was opened, in one line; "": no change.

        A missing bus (FLUSHALL) is not a change: the consumers are about to create it again with the same options.

        Raises: ConfigError: this worker requires other options, or a build of another format has recreated the bus.
                BusUnavailable: retry.
        """
        try:
            bus.revalidate(client)
            bus.check_codecs()
        except BusReplaced as error:
            return str(error).partition(":")[0]
        current = read_options(client, bus.prefix)
        if current is None:
            return ""
        options, version = current
        if (options, version) == (bus.options, bus.options_version):
            return ""
        if self._options is not None and options != self._options:
            raise ConfigError(difference(options, self._options))
        changes = [
            f"{name} {getattr(bus.options, name)!r} -> {getattr(options, name)!r}"
            for name in Options.__struct_fields__
            if getattr(bus.options, name) != getattr(options, name)
        ]
        return f"options version {bus.options_version} -> {version}: {', '.join(changes) or 'as before'}"


def explicit_options(environ: Mapping[str, str]) -> Options | None:
    """Parse EVENTBUS_OPTIONS: a JSON object; missing options have their default. Raises: ConfigError."""
    text = environ.get(OPTIONS_VARIABLE, "")
    return parse_json(text) if text.strip() else None
