"""redis_transport.py: there is time to work while Redis does, and no answer is taken for that to something else."""

from __future__ import annotations

import pytest

from eventbus.broker.bus import open_bus
from eventbus.broker.redis_transport import RedisTransport
from eventbus.broker.transport import PublishReply, PublishRequest, PublishStatus
from eventbus.model.encoding.wire import pack_batch
from eventbus.settings import Settings
from tests.waiting import eventually


def request(first: int) -> PublishRequest:
    return PublishRequest(0, "secret", first, 1, pack_batch("p", first, [b"\x90"]), "", 0, ())


def test_redis_works_while_the_caller_does(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    transport, other = RedisTransport(bus), bus.client()
    taken: list[int] = []

    def wait_for_redis() -> None:
        eventually(lambda: other.xlen(bus.keys[0].incoming))
        taken.append(other.xlen(bus.keys[0].incoming))

    answers = transport.publish([request(1)], wait_for_redis)
    assert taken == [1]
    assert [type(each) for each in answers] == [PublishReply]
    transport.close()
    other.close()


def test_what_the_caller_raises_meanwhile_leaves_no_answer_for_the_next_call(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    transport = RedisTransport(bus)
    with pytest.raises(ZeroDivisionError):
        transport.publish([request(1)], lambda: 1 // 0)
    assert transport.last([(0, "secret")]) == [1]
    (again,) = transport.publish([request(1)])
    assert isinstance(again, PublishReply)
    assert again.status is PublishStatus.DUP
    transport.close()


def test_an_announcement_that_fails_does_not_go_with_each_publish(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    transport, other = RedisTransport(bus), bus.client()
    other.set(bus.keys[0].builds, "of another type")
    transport.publish([request(1)])
    other.delete(bus.keys[0].builds)
    transport.publish([request(2)])
    assert not other.exists(bus.keys[0].builds)
    transport.close()
    other.close()
