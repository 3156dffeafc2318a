"""A watcher of the stream, as a process: it kills itself when it has seen an event."""

from __future__ import annotations

import os
import signal
import sys
import threading

from eventbus import EventBroadcaster

if __name__ == "__main__":
    seen = threading.Event()
    broadcaster = EventBroadcaster()
    broadcaster.start_event_watcher(lambda event: seen.set(), group=sys.argv[1] or None)
    print("watching", flush=True)
    seen.wait(30)
    os.kill(os.getpid(), signal.SIGKILL)
