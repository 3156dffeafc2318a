"""The type of an option that is a finite number within bounds: never `nan`, which is within all of them, nor `inf`."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A `click.FloatRange` of finite numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number. Fails as click does: it is none, or beyond the bounds, or not finite."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number that can be counted to.", param, ctx)
        return number
