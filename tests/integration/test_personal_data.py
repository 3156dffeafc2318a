"""docs/personal-data.md: after its commands, no key has the text of the event, and only the count has its name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventbus import EventBroadcaster, ObjectReference, ObjectStore, Settings
from eventbus.broker.connection.connect import make_client
from eventbus.workers.cli import main
from tests.waiting import eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "personal-data.md").read_text("utf-8")
#: How to read a key of each type.
READ = {b"string": "GET {}", b"hash": "HGETALL {}", b"stream": "XRANGE {} - +", b"zset": "ZRANGE {} 0 -1"}


def keys_with(client: Any, prefix: str, text: bytes) -> set[str]:
    found = set()
    for key in client.scan_iter(f"{prefix}:*", count=10_000):
        command, *arguments = READ[client.type(key)].split()
        value = client.execute_command(command, *(key if word == "{}" else word for word in arguments))
        if text in repr((key, value)).encode():
            found.add(re.sub(r".*\}:", "", key.decode("utf-8", "replace")))
    return found


def test_after_the_commands_of_the_page_no_key_has_the_text(
    embedded_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=100)
    with ObjectStore.open(settings=settings) as store, EventBroadcaster(settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("shop")
        recorder.event(ObjectReference("Customer", "shop", "4711"), "Normal", "Moved", "to anna@example.com")
        recorder.event(ObjectReference("Customer", "shop", "4712"), "Normal", "Moved", "to bert@example.com")
        eventually(lambda: len(store.list().items) == 2)
        monkeypatch.setenv("EVENTBUS_REDIS_URL", embedded_url)
        monkeypatch.setenv("EVENTBUS_PREFIX", prefix)
        (command,) = re.findall(r"(?m)^eventbus (delete .* -A)$", PAGE)
        assert CliRunner().invoke(main, [*shlex.split(command), "--yes"]).exit_code == 0
        (trim,) = re.findall(r"(?m)^redis-cli (XTRIM .*)$", PAGE)
        with make_client(embedded_url) as client:
            client.execute_command(*(word.replace("eb:", f"{prefix}:") for word in shlex.split(trim)))
            eventually(lambda: keys_with(client, prefix, b"anna@example.com") == set())
            (count,) = keys_with(client, prefix, b"4711")
            assert count.startswith("object:events:"), "the count has the name, until record_ttl_s"
            assert keys_with(client, prefix, b"bert@example.com")
