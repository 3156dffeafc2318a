"""The forms that objects can be printed in, for help and error messages."""

from __future__ import annotations

from typing import Final

FORMS: Final = "wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,…"

__all__ = ["FORMS"]
