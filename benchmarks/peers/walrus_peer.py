# mypy: ignore-errors
"""walrus: its consumer group containers, its pipelines."""

from __future__ import annotations

import asyncio
import sys

import orjson
from walrus import Database

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

db = Database.from_url(URL)
stream = db.Stream("events")


async def one(document):
    stream.add({"body": orjson.dumps(document)})


async def many(documents):
    with db.pipeline(transaction=False) as pipe:
        for document in documents:
            pipe.xadd("events", {"body": orjson.dumps(document)})
        pipe.execute()


def work(total):
    group = db.consumer_group("group", ["events"])
    group.create()
    group.set_id("0")
    counter, seen = Counter(total, "consume", "consumer_group.read(count=500), orjson.loads, ack of the batch"), 0
    while seen < total:
        entries = [entry for _, found in group.read(count=500, block=1000) for entry in found]
        for _, fields in entries:
            orjson.loads(fields[b"body"])
        group.events.ack(*(entry for entry, _ in entries))
        seen += len(entries)
        counter.handled(len(entries))


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(TOTAL)
    else:
        publisher = Publisher(
            one=one, one_way="Stream.add, orjson", many=many, many_way="pipeline of 500 xadd, orjson", size=500
        )
        asyncio.run(publisher.run())
