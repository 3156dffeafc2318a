"""The end of a process, and a fork, with a recorder that reaches the bus over HTTP: as with Redis.

All ways in which a process ends are in test_process_ends.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.model.encoding.wire import unpack_batch, unpack_wire
from eventbus.settings import Settings
from tests.acceptance.programs import run_python
from tests.support.api_in_process import serving

HEAD = """
import os, signal, sys, time
from eventbus import EventBroadcaster, ObjectReference
broadcaster = EventBroadcaster()
recorder = broadcaster.new_recorder("program", host="h")
pod = ObjectReference("Pod", "default", "web-0", "uid", "v1")
def say(who, n):
    for i in range(n):
        recorder.eventf(pod, "Normal", "Said", "%s %d", who, i)
"""
PROGRAMS = {
    "it is told to end": "say('a', 3000)\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)",
    "it forks many times while it sends": """
children = []
for n in range(4):
    say(f'a{n}', 300)
    child = os.fork()
    if not child:
        say(f'b{n}', 200)
        sys.exit()
    children.append(child)
for child in children:
    os.waitpid(child, 0)
""",
}


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=2))


@pytest.fixture
def url(bus: Bus, short_path: Path) -> Iterator[str]:
    with serving(bus, socket=short_path / "api.sock") as found:
        yield found


def said(bus: Bus) -> Counter[str]:
    with bus.client() as client:
        batches = [unpack_batch(fields[b"b"]) for keys in bus.keys for _, fields in client.xrange(keys.incoming)]
    return Counter(unpack_wire(packed).message for one in batches for packed in one.events)


def expected(program: str) -> Counter[str]:
    """What it says, were there no bus and no fork."""
    words: dict[str, int] = {}
    if "children" in program:
        words = {f"{who}{n}": 300 if who == "a" else 200 for who in "ab" for n in range(4)}
    else:
        words = {"a": 3000}
    return Counter(f"{who} {i}" for who, n in words.items() for i in range(n))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_all_that_was_recorded_arrives_once_when(bus: Bus, url: str, program: str) -> None:
    away = "redis://127.0.0.1:1/0"
    done = run_python(HEAD + program, EVENTBUS_URL=url, EVENTBUS_REDIS_URL=away, EVENTBUS_FLUSH_S="60")
    assert done.stderr == ""
    assert done.returncode in (0, -signal.SIGTERM)
    assert said(bus) == expected(program)


def test_importing_and_recording_over_http_imports_no_redis(url: str) -> None:
    program = HEAD + "say('a', 1)\nassert broadcaster.flush(60)\nassert not {'redis', 'aiohttp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], env=dict(os.environ) | {"EVENTBUS_URL": url}, check=True)
