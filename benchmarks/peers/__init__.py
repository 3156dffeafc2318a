"""The libraries a Python user could pick today, each used as its own documentation recommends, in its own environment.

mypy does not look into the modules: what they import is not in ours.
"""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """*module* publishes (`calls`, `publish`, `fill`) and, where *worker* is empty, works; else *worker* is run."""

    name: str
    module: str
    packages: tuple[str, ...]
    publish: int = 30_000  #: events of a batched round
    work: int = 40_000  #: events of a worker's round
    worker: tuple[str, ...] = ()
    server: str = "redis"


_FAST_JSON = ("redis==8.1.0", "hiredis==3.5.0", "orjson>=3.11")

PEERS = (
    Peer("redis-py, by hand", "redis_py", _FAST_JSON, 100_000, 100_000),
    Peer(
        "FastStream",
        "faststream_peer",
        ("faststream[redis,cli]==0.7.8", "uvloop", *_FAST_JSON),
        worker=("faststream", "run", "benchmarks.peers.faststream_peer:app"),
    ),
    Peer("redis-stream-queue", "redis_stream_queue_peer", ("redis-stream-queue==0.1.3", *_FAST_JSON)),
    Peer("walrus", "walrus_peer", ("walrus==0.9.8", *_FAST_JSON), 60_000, 60_000),
    Peer(
        "streaQ",
        "streaq_peer",
        ("streaq==7.2.0", "uvloop"),
        10_000,
        3_000,
        worker=("streaq", "run", "benchmarks.peers.streaq_peer:worker"),
    ),
    Peer(
        "dramatiq",
        "dramatiq_peer",
        ("dramatiq[redis]==2.2.1", *_FAST_JSON),
        6_000,
        4_000,
        worker=("dramatiq", "benchmarks.peers.dramatiq_peer", "--processes", "1", "--threads", "8"),
    ),
    Peer(
        "Celery",
        "celery_peer",
        ("celery[redis]==5.7.0",),
        3_000,
        3_000,
        worker=(
            *("celery", "-A", "benchmarks.peers.celery_peer", "worker", "--pool", "solo", "--loglevel", "ERROR"),
            *("--prefetch-multiplier", "64", "--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
    ),
    Peer(
        "taskiq",
        "taskiq_peer",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", "uvloop", *_FAST_JSON),
        6_000,
        5_000,
        worker=(
            "taskiq",
            "worker",
            "benchmarks.peers.taskiq_peer:broker",
            "--workers",
            "1",
            "--max-async-tasks",
            "100",
        ),
    ),
    Peer("NATS (nats-py)", "nats_peer", ("nats-py==2.16.0", "orjson>=3.11"), server="nats"),
)
