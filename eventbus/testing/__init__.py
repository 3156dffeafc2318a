"""Fakes for tests, which follow the rules of the real classes. Import this package only in tests."""

from eventbus.testing.clock import FakeClock
from eventbus.testing.recorder import FakeRecorder
from eventbus.testing.watch_source import FakeWatch, FakeWatchSource

__all__ = ["FakeClock", "FakeRecorder", "FakeWatch", "FakeWatchSource"]
