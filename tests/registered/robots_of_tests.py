"""A kind of a user's own, as his package would register it: what `eventbus worker api --import` is given."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import KINDS, Kind


class RobotSpec(msgspec.Struct, frozen=True):
    arms: int = 2


class RobotStatus(msgspec.Struct, frozen=True):
    mood: str = ""


class Robot(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "Robot"
    api_version: ClassVar[str] = "factory.example/v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: RobotSpec = RobotSpec()
    status: RobotStatus = RobotStatus()


ROBOT: Kind[Robot] = KINDS.register(
    Kind(name="Robot", plural="robots", namespaced=True, type=Robot, has_status=True, short_names=("rb",))
)
