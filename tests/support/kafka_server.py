"""A Kafka cluster of one broker for tests and benchmarks: the mock of librdkafka, the library of the client.

It stores messages in memory, the last 5 MB of each partition, and does not compare sequence numbers: a request that is
sent twice is stored twice. It is called through the C API, because the client for Python does not have it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

TOPIC, PARTITIONS = "eventbus", 4
#: The number of a produce request in the protocol.
PRODUCE = 0
#: Not an answer: the connection is closed.
HANG_UP = KafkaError._TRANSPORT
#: A process that has not read the messages after that many seconds is in a deadlock.
READ_S = 20

_pointer, _text, _number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
#: Name → the type of the result, and those of the arguments.
_FUNCTIONS = {
    "conf_new": (_pointer, []),
    "conf_set": (_number, [_pointer, _text, _text, _text, ctypes.c_size_t]),
    "new": (_pointer, [_number, _pointer, _text, ctypes.c_size_t]),
    "destroy": (None, [_pointer]),
    "mock_cluster_new": (_pointer, [_pointer, _number]),
    "mock_cluster_bootstraps": (_text, [_pointer]),
    "mock_cluster_destroy": (None, [_pointer]),
    "mock_topic_create": (_number, [_pointer, _text, _number, _number]),
    "mock_topic_set_error": (None, [_pointer, _text, _number]),
    "mock_broker_set_down": (_number, [_pointer, ctypes.c_int32]),
    "mock_broker_set_up": (_number, [_pointer, ctypes.c_int32]),
    "mock_broker_set_host_port": (_number, [_pointer, ctypes.c_int32, _text, _number]),
    "mock_broker_set_rtt": (_number, [_pointer, ctypes.c_int32, _number]),
    "mock_push_request_errors_array": (
        None,
        [_pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_number)],
    ),
}


class KafkaServer:
    """A cluster on 127.0.0.1 with the topic `eventbus`. It runs until `close`."""

    def __init__(self) -> None:
        (library,) = Path(f"{Path(confluent_kafka.__file__).parent}.libs").glob("librdkafka*")
        self._library = ctypes.CDLL(str(library))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
        error = ctypes.create_string_buffer(512)
        settings = self._call("conf_new")
        self._call("conf_set", settings, b"log_level", b"0", error, 512)
        self._client = self._call("new", 0, settings, error, 512)
        assert self._client, error.value
        self._cluster = self._call("mock_cluster_new", self._client, 1)
        self.address: str = self._call("mock_cluster_bootstraps", self._cluster).decode()
        self.port = int(self.address.rpartition(":")[2])
        self._call("mock_topic_create", self._cluster, TOPIC.encode(), PARTITIONS, 1)

    def stop(self) -> None:
        """Close all connections, and refuse others. Messages stay."""
        self._call("mock_broker_set_down", self._cluster, 1)

    def start(self) -> None:
        """End the effect of `stop`."""
        self._call("mock_broker_set_up", self._cluster, 1)

    def advertise(self, port: int) -> None:
        """Let clients connect to this port after their first request."""
        self._call("mock_broker_set_host_port", self._cluster, 1, b"127.0.0.1", port)

    def fail(self, *codes: int) -> None:
        """Answer the next requests with these errors of the protocol, instead of storing their messages; 0: with none.

        HANG_UP: close the connection instead.
        """
        self._call("mock_push_request_errors_array", self._cluster, PRODUCE, len(codes), (_number * len(codes))(*codes))

    def fail_topic(self, code: int) -> None:
        """Report this error of the topic to all that ask for it."""
        self._call("mock_topic_set_error", self._cluster, TOPIC.encode(), code)

    def answer_after(self, delay_ms: int) -> None:
        """Delay all answers."""
        self._call("mock_broker_set_rtt", self._cluster, 1, delay_ms)

    def close(self) -> None:
        self._call("mock_cluster_destroy", self._cluster)
        self._call("destroy", self._client)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, f"rd_kafka_{name}")(*arguments)


class StoredMessages:
    """Reads the messages of the topic from the offsets *first* on, one for each partition, each of them once.

    *messages*: partition, key, headers and body. *next*: the offset after the last message of each partition.
    """

    def __init__(self, address: str, first: Sequence[int] = (0,) * PARTITIONS) -> None:
        self.messages: list[tuple[int, str, dict[str, str], dict[str, Any]]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "test",
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
                "fetch.wait.max.ms": 10,
            }
        )
        self.next = list(first)
        self._consumer.assign([TopicPartition(TOPIC, *place) for place in enumerate(self.next)])

    def read(self) -> None:
        """Read the messages that have arrived since the last call. Raises: KafkaException: the server is away."""
        ends = [
            self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 3)[1]
            for partition in range(PARTITIONS)
        ]
        while any(offset < end for offset, end in zip(self.next, ends, strict=True)):
            for message in self._consumer.consume(1_000, 0.02):
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                found: Any = message  # its parts are optional, because it may be an error
                headers = {name: text.decode() for name, text in found.headers()}
                self.messages.append((found.partition(), found.key().decode(), headers, json.loads(found.value())))
                self.next[found.partition()] = found.offset() + 1

    @property
    def counts(self) -> dict[str, int]:
        """Return the last count of each event by its name."""
        return {event["metadata"]["name"]: event["count"] for *_, event in self.messages}

    @property
    def ids(self) -> Counter[str]:
        """Return how often each delivery id was stored."""
        return Counter(headers["ce_id"] for _, _, headers, _ in self.messages)

    def close(self) -> None:
        del self._consumer  # its close waits without end for a coordinator, if connections were cut


class StoredMessagesApart:
    """Has a process of its own read the messages, a new one for each call.

    In librdkafka, a consumer whose connection is cut can deadlock, while it reads and when it ends:
    https://github.com/confluentinc/librdkafka/issues/5476
    """

    def __init__(self, address: str) -> None:
        self.counts: dict[str, int] = {}
        self.ids: Counter[str] = Counter()
        self._address = address
        self._next = [0] * PARTITIONS

    def read(self) -> None:
        """Read the messages that have arrived since the last call; none while the server is away."""
        command = [sys.executable, "-m", __name__, self._address, *map(str, self._next)]
        with suppress(subprocess.TimeoutExpired):  # a deadlock; the next call reads the same messages
            answer = subprocess.run(command, stdout=subprocess.PIPE, timeout=READ_S, check=True).stdout
            messages, self._next = json.loads(answer)
            for name, count, delivery_id in messages:
                self.counts[name] = count
                self.ids[delivery_id] += 1


def _answer(address: str, first: list[int]) -> None:
    """Write the name, count and id of each message from the offsets *first* on, and the offsets after them."""
    reading = StoredMessages(address, first)
    with suppress(KafkaException):  # it is away
        reading.read()
    found = [(event["metadata"]["name"], event["count"], headers["ce_id"]) for _, _, headers, event in reading.messages]
    print(json.dumps([found, reading.next]), flush=True)
    os._exit(0)  # the end of the consumer can deadlock


if __name__ == "__main__":
    _answer(sys.argv[1], [int(offset) for offset in sys.argv[2:]])
