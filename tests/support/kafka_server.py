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
    """Reads the messages of the topic, each of them once. *messages*: partition, key, headers and body."""

    def __init__(self, address: str) -> None:
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
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in self._next])

    def read(self) -> None:
        """Read the messages that have arrived since the last call. Raises: KafkaException: the server is away."""
        ends = {
            partition: self._consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 3)[1]
            for partition in self._next
        }
        while any(self._next[partition] < end for partition, end in ends.items()):
            for message in self._consumer.consume(1_000, 0.02):
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                found: Any = message  # its parts are optional, because it may be an error
                headers = {name: text.decode() for name, text in found.headers()}
                self.messages.append((found.partition(), found.key().decode(), headers, json.loads(found.value())))
                self._next[found.partition()] = found.offset() + 1

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
    """Has a process of its own read the messages, which is killed at the end.

    In librdkafka, a consumer whose connection is cut can deadlock when it ends:
    https://github.com/confluentinc/librdkafka/issues/5476
    """

    def __init__(self, address: str) -> None:
        self.counts: dict[str, int] = {}
        self.ids: Counter[str] = Counter()
        command = [sys.executable, "-m", __name__, address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> None:
        """Read the messages that have arrived since the last call; none while the server is away."""
        assert self._process.stdin
        assert self._process.stdout
        print(file=self._process.stdin, flush=True)
        self.counts, ids = json.loads(self._process.stdout.readline())
        self.ids = Counter(ids)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _answer(address: str) -> None:
    """Read, and write the counts and ids, for each line of stdin."""
    messages = StoredMessages(address)
    for _ in sys.stdin:
        with suppress(KafkaException):  # it is away
            messages.read()
        print(json.dumps([messages.counts, messages.ids]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _answer(sys.argv[1])
