# mypy: ignore-errors
"""dramatiq: `send`, `group().run()`, its worker with one process and eight threads."""

from __future__ import annotations

import asyncio

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

dramatiq.set_broker(RedisBroker(url=URL))
counter = Counter(TOTAL, "consume", "dramatiq --processes 1 --threads 8")


@dramatiq.actor
def handle(document):
    counter.handled()


async def one(document):
    handle.send(document)


async def many(documents):
    dramatiq.group(handle.message(document) for document in documents).run()


if __name__ == "__main__":
    asyncio.run(Publisher(one=one, one_way="actor.send", many=many, many_way="group of 100 run()", size=100).run())
