"""The build of this program: the source of its functions, the names that they have in Redis, and its formats.

Functions carry their build in their names, so the functions of several builds lie beside each other on one server, and
each build calls only its own. Any change of the Lua source, or of the formats and codecs, makes another build.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from eventbus.model.formats import CODECS, FORMATS

#: What the functions share; the order matters: what is local to the library comes before its use.
SHARED = (
    "library",
    "spoiled",
    "objects",
    "incoming",
    "mend",
    "commit",
    "counting",
    "spam_filter",
    "correlation",
    "state",
    "client_written",
    "taken_out",
)
#: A function each.
VERBS = (
    *("open", "publish", "correlate_and_store", "trim", "bury", "replay", "discard", "beat", "isolate", "claim"),
    *("remove_event", "expire", "refresh", "forget", "finish", "put", "remove", "write_event", "overlay_event"),
    *("export_acquire", "export_release", "export_settle", "export_retry", "checkpoint"),
    *("notify_acquire", "notify_release", "notify_settle"),
    "announce",
)


@cache
def build() -> str:
    """Return the id of this build: eight hexadecimal digits, the same wherever source and formats are the same."""
    digest = blake2b(repr((FORMATS, CODECS)).encode(), digest_size=4)
    for part in (*SHARED, *VERBS):
        digest.update(_source(part).encode())
    return digest.hexdigest()


def build_info() -> dict[str, str]:
    """Return the versions of this program and of Python, and the build, as the labels of `eventbus_build_info`."""
    import platform  # both are slow to import
    from importlib.metadata import version

    return {"version": version("eventbus"), "build": build(), "python": platform.python_version()}


def function_name(verb: str, of: str = "") -> str:
    """Return the name in Redis of a function of this build, or of the build *of*."""
    return f"eb_{of or build()}_{verb}"


def function_command(verb: str, keys: Sequence[bytes], *args: Any) -> tuple[Any, ...]:
    """Return the command that calls a function of this build."""
    return ("FCALL", function_name(verb), len(keys), *keys, *args)


def library_name(of: str = "") -> str:
    """Return the name in Redis of this build's library, or of that of the build *of*."""
    return f"eventbus_{of or build()}"


def library() -> str:
    """Return the source of the whole library, as FUNCTION LOAD takes it."""
    names = f"#!lua name={library_name()}\nlocal BUILD = '{build()}'"
    # Each function in a block of its own: Lua allows 200 local names at a time.
    return "\n".join((names, *map(_source, SHARED), *(f"do\n{_source(verb)}\nend" for verb in VERBS)))


def _source(part: str) -> str:
    folder = os.path.join(os.path.dirname(__file__), "lua")  # importlib.resources imports all that reads mail
    with open(os.path.join(folder, f"{part}.lua"), encoding="utf-8") as file:
        return file.read()
