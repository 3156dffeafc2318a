# mypy: ignore-errors
"""NATS JetStream with nats-py: acknowledged publish, `publish_async` by 500, a push consumer; file storage."""

from __future__ import annotations

import asyncio
import sys

import nats
import orjson
from nats.js.api import ConsumerConfig

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher


async def publish():
    connection = await nats.connect(URL)
    stream = connection.jetstream(publish_async_max_pending=1_000)
    await stream.add_stream(name="events", subjects=["events"])

    async def one(document):
        await stream.publish("events", orjson.dumps(document))

    async def many(documents):
        for document in documents:
            await stream.publish_async("events", orjson.dumps(document))
        await stream.publish_async_completed()

    await Publisher(
        one=one, one_way="js.publish, acknowledged", many=many, many_way="publish_async, waited for by 500", size=500
    ).run()
    await connection.close()


async def work(total):
    connection = await nats.connect(URL, pending_size=64 * 1024 * 1024)
    stream = connection.jetstream()
    counter = Counter(total, "consume", "push consumer, explicit ack, max_ack_pending=20000, orjson.loads")
    seen, done = 0, asyncio.Event()

    async def handle(message):
        nonlocal seen
        orjson.loads(message.data)
        await message.ack()
        seen += 1
        counter.handled()
        if seen == total:
            done.set()

    config = ConsumerConfig(max_ack_pending=20_000)
    await stream.subscribe("events", durable="group", cb=handle, manual_ack=True, config=config)
    await done.wait()
    await connection.drain()


if __name__ == "__main__":
    asyncio.run(work(TOTAL) if sys.argv[1] == "work" else publish())
