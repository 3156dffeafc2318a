"""process_hooks.py: what cannot be done is said in one line. The ends: integration/test_process_ends.py."""

from __future__ import annotations

import signal
import threading

import pytest

from eventbus import install_signal_handlers
from eventbus.errors import ConfigError
from eventbus.record import process_hooks


@pytest.fixture(autouse=True)
def _signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_hooks, "_flushing", {signal.SIGTERM})


def test_handlers_are_installed_in_the_main_thread_only() -> None:
    said: list[str] = []

    def install() -> None:
        with pytest.raises(ConfigError) as caught:
            install_signal_handlers()
        said.append(str(caught.value))

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()
    assert said == ["install_signal_handlers: Python sets signal handlers in the main thread only: call it there"]


@pytest.mark.parametrize("number", [signal.SIGKILL, 0, 4_000])
def test_a_signal_that_nobody_can_handle_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match="cannot be handled: leave it out"):
        install_signal_handlers(number)


def test_a_handler_of_the_program_is_left_alone() -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGUSR1, own)
    try:
        install_signal_handlers(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is own
    finally:
        signal.signal(signal.SIGUSR1, before)
