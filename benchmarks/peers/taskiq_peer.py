# mypy: ignore-errors
"""taskiq with taskiq-redis' stream broker: `kiq`, gather of 100, one worker process with 100 tasks, orjson."""

import asyncio

from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisStreamBroker

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

broker = RedisStreamBroker(URL, consumer_id="0", xread_count=500).with_serializer(ORJSONSerializer())
counter = Counter(TOTAL, "consume", "taskiq worker --workers 1 --max-async-tasks 100, xread_count=500, orjson")


@broker.task(task_name="handle")
async def handle(document: dict) -> None:
    counter.handled()


async def many(documents):
    await asyncio.gather(*(handle.kiq(document) for document in documents))


async def main():
    await broker.startup()
    await Publisher(one=handle.kiq, one_way="task.kiq", many=many, many_way="gather of 100 kiq", size=100).run()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
