"""A nats-server with JetStream for tests and benchmarks: the one that is installed, with files of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, DeliverPolicy

from tests.conftest import IN_CI
from tests.support.ports import free_port
from tests.waiting import eventually

_T = TypeVar("_T")


class NoNats(Exception):
    """No nats-server is installed here."""


class NatsServer:
    """A server on 127.0.0.1. *words*: further arguments, such as `--user`."""

    def __init__(self, *words: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ebnats"))
        self.port = free_port()
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it; its streams are as the last run left them."""
        program = find_program()
        address = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]
        self._process = subprocess.Popen(
            [program, *address, *self._words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(self._accepts, within_s=30)

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; return after all of its threads have stopped if it is SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def close(self) -> None:
        """Stop it, if it runs, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, work: Callable[[Client], Coroutine[Any, Any, _T]], **given: Any) -> _T:
        """Return the result of *work* on a connection of its own."""

        async def connected() -> _T:
            client = await nats.connect(f"nats://127.0.0.1:{self.port}", allow_reconnect=False, **given)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(connected())

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class StoredMessages:
    """Reads the messages of a stream, each of them once. *events*: subject, `Nats-Msg-Id` and body, in order."""

    def __init__(self, server: NatsServer, stream: str = "EVENTBUS") -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self._server = server
        self._stream = stream
        self._next = 1

    def read(self, **given: Any) -> None:
        """Read the messages that have arrived since the last call."""

        async def work(client: Client) -> None:
            context = client.jetstream()
            last = (await context.stream_info(self._stream)).state.last_seq
            while self._next <= last:
                subscription = await context.subscribe(
                    ">",
                    stream=self._stream,
                    ordered_consumer=True,
                    config=None if self._next == 1 else _from(self._next),
                )
                while self._next <= last:
                    message = await subscription.next_msg(10)
                    assert message.headers is not None
                    found = json.loads(message.data)
                    self.events.append((message.subject, message.headers["Nats-Msg-Id"], found))
                    self._next = message.metadata.sequence.stream + 1
                await subscription.unsubscribe()

        self._server.call(work, **given)

    @property
    def total(self) -> int:
        """Return how many messages the stream has, read or not."""

        async def work(client: Client) -> int:
            return (await client.jetstream().stream_info(self._stream)).state.messages

        return self._server.call(work)

    @property
    def counts(self) -> dict[str, int]:
        """Return the last count of each event by its name."""
        return {event["metadata"]["name"]: event["count"] for _, _, event in self.events}

    @property
    def ids(self) -> Counter[str]:
        """Return how often each delivery id was stored."""
        return Counter(delivery_id for _, delivery_id, _ in self.events)


def _from(sequence: int) -> ConsumerConfig:
    return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=sequence)


def find_program() -> str:
    """Return the path of nats-server. Raises: NoNats."""
    program = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise NoNats("no nats-server here (Debian: apt install nats-server)")
    return program


def needs_nats() -> None:
    """Skip, or in CI fail, where no server can be had."""
    try:
        find_program()
    except NoNats as error:
        if IN_CI:
            pytest.fail(f"{error}; in CI that is a failure", pytrace=False)
        pytest.skip(str(error))
