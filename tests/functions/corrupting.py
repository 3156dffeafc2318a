"""Keys of the bus that somebody else has written something into, and how they come right again."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Corruption(StrEnum):
    """The value put under the key instead of its own."""

    LIST = "a list"
    STRING = "a string"
    GARBAGE = "bytes that nobody can read"
    OTHER_FORM = "msgpack of another form"


class CorruptKey(msgspec.Struct):
    """A key that holds something else; *aside*: where what it held lies, None if there was nothing."""

    admin: Any
    key: bytes
    aside: bytes | None
    value: bytes

    @property
    def still(self) -> bool:
        """Return True if it holds what was put there: nobody has set it right by writing over it."""
        return bool(self.admin.dump(self.key) == self.value)

    def put_right(self) -> bool:
        """Give it back what it held, unless it was set right already. Returns whether it was still corrupt."""
        still = self.still
        if still:
            self.admin.delete(self.key)
            if self.aside:
                self.admin.rename(self.aside, self.key)
        elif self.aside:
            self.admin.delete(self.aside)
        return still


def corrupt(admin: Any, key: bytes, how: Corruption) -> CorruptKey:
    """Put something else under *key*, at once: it is nowhere for no moment."""
    aside = b"aside:" + key if admin.exists(key) else None
    steps = admin.pipeline(transaction=True)
    if aside:
        steps.rename(key, aside)
    if how is Corruption.LIST:
        steps.rpush(key, "not yours")
    elif how is Corruption.OTHER_FORM:
        steps.set(key, b"\x93\xa3not\xc0\x81\xa1a\xa5yours")
    else:
        steps.set(key, b"\xc1not yours" if how is Corruption.GARBAGE else "not yours")
    steps.execute()
    return CorruptKey(admin, key, aside, admin.dump(key))
