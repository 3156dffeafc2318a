# mypy: ignore-errors
"""Celery: `apply_async`, the same with a shared producer, its solo worker with late acknowledgement."""

from __future__ import annotations

import asyncio

from celery import Celery

from benchmarks.meter import Counter
from benchmarks.peers.running import TOTAL, URL, Publisher

app = Celery("benchmarks.peers.celery_peer", broker=URL)
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=64)
counter = Counter(TOTAL, "consume", "celery worker --pool solo, acks_late, prefetch 64, no gossip, mingle, heartbeat")


@app.task(name="handle")
def handle(document):
    counter.handled()


async def one(document):
    handle.delay(document)


async def many(documents):
    with app.producer_or_acquire() as producer:
        for document in documents:
            handle.apply_async((document,), producer=producer)


if __name__ == "__main__":
    asyncio.run(Publisher(one=one, one_way="task.delay", many=many, many_way="one producer for 500", size=500).run())
