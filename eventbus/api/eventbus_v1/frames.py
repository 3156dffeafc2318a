"""Batches of a recorder of ours: numbered by it, checked here, and published as they are under an id of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b

from eventbus.api.eventbus_v1.intake import check_packed, no_right
from eventbus.broker.transport import PublishReply, PublishRequest, PublishStatus, Transport
from eventbus.errors import BusRefused, EventBusError, InvalidEvent, PoisonBatch
from eventbus.model.encoding.wire import Batch, rename_batch, unpack_batch

#: Causes of losses that recorders report. A cause is a permanent field: all others count as `other`.
CAUSES = frozenset({"destroyed", "dropped", "lost", "missed", "refused", "uncertain", "unsent"})


class FramePublisher:
    """Publishes the frames of one request of *user*. *may_record* checks the right for a namespace."""

    def __init__(self, *, transport: Transport, partitions: int, user: str, may_record: Callable[[str], bool]) -> None:
        self._transport = transport
        self._partitions = partitions
        self._user = user
        self._may_record = may_record

    def publish(self, frames: Sequence[PublishRequest]) -> list[PublishReply | EventBusError]:
        """Publish the valid frames in one round trip. Returns: one answer for each frame.

        After a refused frame, later frames of its producer are not sent: their answer is GAP.

        Raises: BusUnavailable: no answer at all; all may be sent again. BusRefused.
        """
        answers: list[PublishReply | EventBusError | None] = [None] * len(frames)
        requests: list[tuple[int, PublishRequest]] = []
        stopped: dict[tuple[int, str], int] = {}
        for i, frame in enumerate(frames):
            line = (frame.partition, frame.producer)
            if line in stopped:
                answers[i] = PublishReply(PublishStatus.GAP, last=stopped[line])
                continue
            checked = self._checked(frame)
            if isinstance(checked, PublishRequest):
                requests.append((i, checked))
            else:
                answers[i] = checked
                stopped[line] = frame.first - 1
        self._settle_refused(frames, answers)
        if requests:
            replies = self._transport.publish([request for _, request in requests])
            for (i, _), reply in zip(requests, replies, strict=True):
                answers[i] = reply
        return [answer for answer in answers if answer is not None]

    def _checked(self, frame: PublishRequest) -> PublishRequest | PublishReply | EventBusError:
        """Return the publish request, or the reason why the frame is refused."""
        if frame.partition >= self._partitions:
            return BusRefused(f"the bus has {self._partitions} partitions, and no partition {frame.partition}")
        try:
            batch = unpack_batch(frame.body)
        except PoisonBatch as poison:
            return BusRefused(f"the batch is {poison.cause}: use the format of docs/http.md")
        if (batch.first, len(batch.events)) != (frame.first, frame.events):
            return BusRefused("the batch holds another sequence or number of events than its frame says")
        if refused := self._refused(frame, batch):
            return PublishReply(PublishStatus.REFUSED, refused=refused)
        return PublishRequest(
            frame.partition,
            bound_secret(self._user, frame.producer),
            frame.first,
            frame.events,
            rename_batch(frame.body, _bound_id(self._user, batch.producer)),
            frame.generation,
            frame.silent_ms,
            _known(frame.losses),
            frame.life_ms,
        )

    def _refused(self, frame: PublishRequest, batch: Batch) -> tuple[tuple[int, str], ...]:
        """Return the events that this user cannot record: index and reason."""
        refused: list[tuple[int, str]] = []
        for position, packed in enumerate(batch.events):
            try:
                namespace = check_packed(packed, partition=frame.partition, partitions=self._partitions)
            except InvalidEvent as error:
                refused.append((position, str(error)))
                continue
            if not self._may_record(namespace):
                refused.append((position, no_right(self._user, namespace)))
        return tuple(refused)

    def _settle_refused(
        self, frames: Sequence[PublishRequest], answers: list[PublishReply | EventBusError | None]
    ) -> None:
        """Answer DUP for refused frames that were already published: they are repeats."""
        doubtful = [
            i
            for i, answer in enumerate(answers)
            if isinstance(answer, PublishReply) and answer.status is PublishStatus.REFUSED
        ]
        if not doubtful:
            return
        producers = [(frames[i].partition, bound_secret(self._user, frames[i].producer)) for i in doubtful]
        for i, last in zip(doubtful, self._transport.last(producers), strict=True):
            frame = frames[i]
            if last is not None and frame.first + frame.events - 1 <= last:
                answers[i] = PublishReply(PublishStatus.DUP, generation=frame.generation)


@lru_cache(maxsize=65_536)
def _bound_id(user: str, producer: str) -> str:
    """Return the id in the uids of *producer*'s events: no other user's producer has the same."""
    return _digest(user, producer, b"id", size=8)


@lru_cache(maxsize=65_536)
def bound_secret(user: str, secret: str) -> str:
    """Return the key of *user*'s producer with *secret* in Redis: no user can use the numbers of another."""
    return _digest(user, secret, b"secret", size=12)


def _digest(user: str, name: str, purpose: bytes, *, size: int) -> str:
    text = f"{len(user)}:{user}{name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=size, person=purpose).hexdigest()


def _known(losses: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((cause if cause in CAUSES else "other", n) for cause, n in losses)
