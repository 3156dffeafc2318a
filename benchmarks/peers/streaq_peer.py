# mypy: ignore-errors
"""streaQ: `enqueue`, `enqueue_many`, its worker with uvloop and concurrency 128, results off."""

import anyio
from streaq import Worker

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

worker = Worker(redis_url=URL, concurrency=128, anyio_kwargs={"use_uvloop": True})
counter = Counter(TOTAL, "consume", "streaq run; concurrency=128, ttl=0, uvloop")


@worker.task(ttl=0)
async def handle(document: dict) -> None:
    counter.handled()


async def one(document):
    await handle.enqueue(document)


async def many(documents):
    await worker.enqueue_many([handle.enqueue(document) for document in documents])


async def main():
    async with worker:
        await Publisher(
            one=one, one_way="task.enqueue", many=many, many_way="worker.enqueue_many of 500", size=500
        ).run()


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
