"""How quick the page is in a real Chromium: `python -m benchmarks.page [--stored 100000] [--changes 6000]`.

An embedded server with so many events, one API worker in a process of its own, one page. First paint and the list are
of the browser's own clock; typing is from a key to the frame that shows its rows; the heap is read after a collection,
before and after so many new events, which are an hour of 10 a second divided by 36 000.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from eventbus import EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.health.status import read_unread
from eventbus.broker.keys import SINK_GROUP

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
LISTEN = "127.0.0.1:6498"
ROUNDS = 3
#: A new window of Chromium starts pages of its own, for which it takes the machine a while: nobody asks within it.
BROWSER_MS = 3_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=6_000)
    parser.add_argument("--per-second", type=int, default=0, help="of these; 0: as fast as they come")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="eventbus-page-"))
    server = EmbeddedServer(folder)
    try:
        url = server.start()
        bus = open_bus(url, Settings())
        record(bus, asked.stored, "seed")
        with api_worker(url), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
            measure(browser, bus, asked.changes, asked.per_second)
            browser.close()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(browser: Any, bus: Bus, changes: int, per_second: int) -> None:
    address = f"http://{LISTEN}/page/?last=6h&sort=last"
    opened = [open_once(browser, address) for _ in range(ROUNDS)]
    for name in (
        "first paint, ms",
        "500 rows, ms",
        "CPU of the page for them, ms",
        "over the wire, bytes",
        "of these the page itself",
    ):
        print(f"{name:28}", " ".join(f"{one[name]:.0f}" for one in opened))
    page = browser.new_context().new_page()
    page.goto(address)
    page.locator(".list tbody tr.row").nth(499).wait_for(timeout=120_000)
    page.wait_for_timeout(2_000)
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    keys = [typed(page, cdp, word) for word in ("1", "77", "pod", "x")]
    print(f"{'a key to its rows, ms':28}", " ".join(f"{took:.0f} ({cpu:.0f} of CPU)" for took, cpu in keys))
    before = heap(cdp)
    for done in range(0, changes, per_second or changes):
        begun = time.monotonic()
        record(bus, min(per_second or changes, changes - done), f"new-{done}")
        page.wait_for_timeout(max(1.0, 1000 * (begun + 1 - time.monotonic())) if per_second else 5_000)
        if per_second and done // per_second % 60 == 59:
            print(f"{'heap, MB':28}", f"{heap(cdp):.1f} after {done + per_second}")
    print(f"{'heap before, after, MB':28}", f"{before:.1f} {heap(cdp):.1f}  (after {changes} new events)")
    print(f"{'load':28}", *os.getloadavg())


def open_once(browser: Any, address: str) -> dict[str, float]:
    context = browser.new_context()
    page = context.new_page()
    cdp = context.new_cdp_session(page)
    cdp.send("Network.enable")
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    sizes: list[float] = []
    cdp.on("Network.loadingFinished", lambda done: sizes.append(done["encodedDataLength"]))
    page.wait_for_timeout(BROWSER_MS)
    page.goto(address, wait_until="load")
    itself = sum(sizes)
    page.locator(".list tbody tr.row").nth(499).wait_for(timeout=120_000)
    rows = page.evaluate("performance.now()")
    cpu = worked(cdp)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.wait_for_timeout(1_000)
    context.close()
    return {
        "first paint, ms": paint,
        "500 rows, ms": rows,
        "CPU of the page for them, ms": cpu,
        "over the wire, bytes": sum(sizes),
        "of these the page itself": itself,
    }


def typed(page: Any, cdp: Any, word: str) -> tuple[float, float]:
    """Set the words as a key does, and wait for the second frame: the first may stand before what is drawn.

    Returns: how long it took, and how much the page's thread worked for it, ms.
    """
    before = worked(cdp)
    took: float = page.evaluate(
        """word => new Promise(done => {
            const field = document.querySelector("input[type=search]");
            const begun = performance.now();
            field.value = word;
            field.dispatchEvent(new Event("input", {bubbles: true}));
            setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun))));
        })""",
        word,
    )
    return took, worked(cdp) - before


def worked(cdp: Any) -> float:
    found = cdp.send("Performance.getMetrics")["metrics"]
    return 1000 * sum(float(one["value"]) for one in found if one["name"] == "TaskDuration")


def heap(cdp: Any) -> float:
    cdp.send("HeapProfiler.collectGarbage")
    used: float = cdp.send("Runtime.getHeapUsage")["usedSize"]
    return used / 1e6


def record(bus: Bus, n: int, name: str) -> None:
    client = bus.client()
    with EventBroadcaster(bus.url) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("benchmark")
        for i in range(n):
            about = ObjectReference("Pod", f"team-{i % 7}", f"{name}-{i}")
            recorder.event(
                about, "Warning" if i % 20 == 0 else "Normal", f"Reason{i % 12}", f"what happened to {i}, here"
            )
            if i % 5_000 == 4_999:
                broadcaster.flush(60)
        broadcaster.flush(60)
        while read_unread(bus, client, SINK_GROUP):
            time.sleep(0.5)
    client.close()


@contextmanager
def api_worker(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "eventbus", "worker", "api", "--listen", LISTEN]
    with subprocess.Popen(command, env=os.environ | {"EVENTBUS_REDIS_URL": url}, stderr=subprocess.PIPE) as worker:
        assert worker.stderr is not None
        for line in worker.stderr:
            if b"the web page is at" in line:
                break
        try:
            yield
        finally:
            worker.terminate()


if __name__ == "__main__":
    main()
