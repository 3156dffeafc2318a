# mypy: ignore-errors
"""No framework: what a user can write by hand with redis-py, one event an entry."""

from __future__ import annotations

import asyncio
import sys

import orjson
import redis

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

client = redis.Redis.from_url(URL)


async def one(document):
    client.xadd("events", {"body": orjson.dumps(document)})


async def many(documents):
    pipe = client.pipeline(transaction=False)
    for document in documents:
        pipe.xadd("events", {"body": orjson.dumps(document)})
    pipe.execute()


def work(total):
    client.xgroup_create("events", "group", "0")
    counter, seen = Counter(total, "consume", "XREADGROUP COUNT 500, orjson.loads, XACK of the batch"), 0
    while seen < total:
        ((_, entries),) = client.xreadgroup("group", "consumer", {"events": ">"}, count=500, block=1000)
        for _, fields in entries:
            orjson.loads(fields[b"body"])
        client.xack("events", "group", *(entry for entry, _ in entries))
        seen += len(entries)
        counter.handled(len(entries))


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(TOTAL)
    else:
        publisher = Publisher(
            one=one, one_way="xadd, orjson", many=many, many_way="pipeline of 500 xadd, orjson", size=500
        )
        asyncio.run(publisher.run())
