# mypy: ignore-errors
"""redis-stream-queue: `push`, `push_many`, and its consumer with batches of 500."""

from __future__ import annotations

import asyncio
import sys

from redis_stream_queue import ConsumerConfig, StreamClient, StreamConsumer, StreamProducer

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher


async def publish():
    client = StreamClient.from_url(URL)
    producer = StreamProducer(client=client, stream="events", group="group")
    await producer.ensure_group()
    await Publisher(
        one=producer.push, one_way="producer.push", many=producer.push_many, many_way="push_many of 500", size=500
    ).run()
    await client.close()


async def work(total):
    client = StreamClient.from_url(URL)
    counter, seen = Counter(total, "consume", "StreamConsumer.run, batch_size=500"), 0

    async def handle(messages):
        nonlocal seen
        seen += len(messages)
        counter.handled(len(messages))
        if seen >= total:
            consumer.stop()
        return [message.id for message in messages]

    config = ConsumerConfig(group="group", batch_size=500, block_ms=1000)
    consumer = StreamConsumer(client=client, stream="events", config=config, handler=handle)
    await consumer.run()
    await client.close()


if __name__ == "__main__":
    asyncio.run(work(TOTAL) if sys.argv[1] == "work" else publish())
