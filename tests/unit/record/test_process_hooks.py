"""process_hooks.py: what cannot be done is said in one line. The ends: integration/test_process_ends.py."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from eventbus import EventBroadcaster, Settings, install_signal_handlers
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


@pytest.fixture
def _default_action() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_default_action")
@pytest.mark.parametrize(
    "begin",
    [
        lambda broadcaster: broadcaster.new_recorder("c"),
        lambda broadcaster: broadcaster.start_event_watcher(print, scope="local"),
        lambda broadcaster: broadcaster.start_logging(print),
    ],
    ids=["a recorder", "a watcher", "a log"],
)
def test_the_first_recorder_or_watcher_handles_sigterm_and_not_the_broadcaster(
    begin: Callable[[EventBroadcaster], object],
) -> None:
    with EventBroadcaster("none", settings=Settings()) as broadcaster:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        begin(broadcaster)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


@pytest.mark.parametrize("use", ["never used", "with a recorder", "used and shut down"])
def test_a_broadcaster_that_is_no_longer_needed_is_collected(use: str) -> None:
    broadcaster = EventBroadcaster("none", settings=Settings())
    reference = weakref.ref(broadcaster)
    if use != "never used":
        broadcaster.new_recorder("c")
    if use == "used and shut down":
        broadcaster.start_event_watcher(lambda _event: None, scope="local")
        broadcaster.new_recorder("c").event("Pod/web-0", "Normal", "Started", "it runs")
        broadcaster.shutdown()
    del broadcaster
    gc.collect()
    assert reference() is None
