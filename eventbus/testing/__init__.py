"""Fakes for tests, made with the same care as what they stand for. Import it in tests alone."""

from eventbus.testing.clock import FakeClock
from eventbus.testing.fake_watch import FakeWatch
from eventbus.testing.recorder import FakeRecorder
from eventbus.testing.watch_source import FakeWatchSource

__all__ = ["FakeClock", "FakeRecorder", "FakeWatch", "FakeWatchSource"]
