# mypy: ignore-errors
"""FastStream: `pipeline=` to publish, `StreamSub(batch=True)` to consume, orjson, its logger off."""

import asyncio
from contextlib import suppress

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

broker = RedisBroker(URL, logger=None)
app = FastStream(broker, logger=None)
counter = Counter(TOTAL, "consume", "faststream run; StreamSub(group, batch=True, max_records=500)")


@broker.subscriber(stream=StreamSub("events", group="group", consumer="consumer", batch=True, max_records=500))
async def handle(batch: list[dict]) -> None:
    counter.handled(len(batch))


async def one(document):
    await broker.publish(document, stream="events")


async def many(documents):
    # What its documentation's annotation `Pipeline` gives to a handler; outside of one there is no public way.
    async with broker._connection.pipeline() as pipe:
        for document in documents:
            await broker.publish(document, stream="events", pipeline=pipe)
        await pipe.execute()


async def main():
    import redis

    async with broker:
        with suppress(redis.ResponseError):  # it makes its group at "$": what was there would not be seen
            redis.Redis.from_url(URL).xgroup_create("events", "group", "0", mkstream=True)
        await Publisher(
            one=one, one_way="broker.publish(stream=)", many=many, many_way="publish(pipeline=) of 500", size=500
        ).run()


if __name__ == "__main__":
    asyncio.run(main())
