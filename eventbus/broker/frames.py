"""Batches over HTTP: the requests of a producer to the API, and its answers. See docs/http.md.

Both are MessagePack, `[format, [frame, …]]` and `[format, [answer, …]]`: an answer a frame, in their order. A frame is
a `PublishRequest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from eventbus.broker.transport import PublishReply, PublishRequest, PublishStatus
from eventbus.errors import BusRefused, BusUnavailable, EventBusError, InvalidObject
from eventbus.model.decodable import decodable

#: The media type of both.
FRAMES_TYPE: Final = "application/vnd.eventbus.batches+msgpack"
FRAMES_FORMAT: Final = 1
#: Frames in one body; their bytes are bounded by the body's.
MAX_FRAMES: Final = 512


class FrameError(StrEnum):
    """The reason why the API could not publish a frame."""

    UNAVAILABLE = "UNAVAILABLE"  #: call again
    FORBIDDEN = "FORBIDDEN"  #: it never will do


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """The fate of a frame.

    *status* is a `PublishStatus`, or a `FrameError`. *text* is the generation,
    the group that holds a full stream, or the error.
    """

    status: str
    text: str = ""
    last: int = 0
    refused: tuple[tuple[int, str], ...] = ()


def pack_requests(requests: Sequence[PublishRequest]) -> bytes:
    """The body of a POST."""
    return _ENCODE((FRAMES_FORMAT, requests))


def unpack_frames(body: bytes) -> list[PublishRequest]:
    """The frames of a POST. Raises: InvalidObject: they are none; says where."""
    try:
        form, frames = _FRAMES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidObject(f"the body holds no batches: {error}") from None
    if form != FRAMES_FORMAT:
        raise InvalidObject(f"the batches have format {form}, this build reads {FRAMES_FORMAT}")
    return frames


def pack_answers(answers: Sequence[PublishReply | EventBusError]) -> bytes:
    """The body of a reply."""
    return _ENCODE((FRAMES_FORMAT, [_answer(each) for each in answers]))


def unpack_answers(body: bytes, expected: int) -> list[PublishReply | EventBusError]:
    """The answers, *expected* of them. Raises: BusUnavailable: the reply is none of the API's."""
    try:
        form, answers = _ANSWERS.decode(body)
        replies = [_reply(each) for each in answers]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BusUnavailable(f"the answer is not the API's: {error}") from None
    if form != FRAMES_FORMAT or len(replies) != expected:
        raise BusUnavailable(f"the answer is not the API's: {len(replies)} answers to {expected} batches")
    return replies


def _answer(reply: PublishReply | EventBusError) -> Answer:
    if isinstance(reply, EventBusError):
        status = FrameError.UNAVAILABLE if isinstance(reply, BusUnavailable) else FrameError.FORBIDDEN
        return Answer(status, str(reply))
    return Answer(reply.status, reply.generation or reply.group, reply.last, reply.refused)


def _reply(answer: Answer) -> PublishReply | EventBusError:
    """Raises: ValueError: an unknown word."""
    if answer.status == FrameError.UNAVAILABLE:
        return BusUnavailable(answer.text)
    if answer.status == FrameError.FORBIDDEN:
        return BusRefused(answer.text)
    status = PublishStatus(answer.status)
    if status is PublishStatus.FULL:
        return PublishReply(status, group=answer.text)
    return PublishReply(status, generation=answer.text, last=answer.last, refused=answer.refused)


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_FRAMES: Final = msgspec.msgpack.Decoder(
    decodable(tuple[int, Annotated[list[PublishRequest], msgspec.Meta(min_length=1, max_length=MAX_FRAMES)]])
)
_ANSWERS: Final = msgspec.msgpack.Decoder(decodable(tuple[int, list[Answer]]))
