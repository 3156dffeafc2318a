"""Every kind of server the bus is tested against answers, and can do what the bus is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

LIBRARY = """#!lua name={name}
redis.register_function('{name}_append', function(keys, args)
  return redis.call('XADD', keys[1], '*', 'body', cmsgpack.pack(args))
end)
"""


@pytest.fixture
def redis(server_url: str) -> Iterator[Redis]:
    with Redis.from_url(server_url) as client:
        yield client


def test_it_answers_and_is_new_enough(redis: Redis) -> None:
    assert redis.ping()
    major = int(redis.info("server")["redis_version"].split(".")[0])
    assert major >= 7


def test_a_function_appends_to_a_stream_and_a_group_reads_it(redis: Redis, prefix: str) -> None:
    stream, library = f"{prefix}:{{0}}:stream", prefix
    redis.function_load(LIBRARY.format(name=library))
    try:
        redis.xgroup_create(stream, "readers", mkstream=True)
        entry_id = redis.fcall(f"{library}_append", 1, stream, "x")
        replies: Any = redis.xreadgroup("readers", "one", {stream: ">"}, count=10)
        assert replies == [[stream.encode(), [(entry_id, {b"body": b"\x91\xa1x"})]]]
        assert redis.xack(stream, "readers", entry_id) == 1
    finally:
        redis.function_delete(library)
        redis.delete(stream)
