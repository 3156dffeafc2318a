"""The function library on the server: its source, and loading it."""

from __future__ import annotations

import os
from functools import cache

from eventbus.broker.connection.connect import Client, primaries
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, FunctionsMissing

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
    *("export_acquire", "export_release", "export_settle", "export_retry", "checkpoint", "limit_rate"),
)
BUILD = 21  #: as in library.lua; raised with every change of the Lua, and 1 again with every new format


@cache
def library() -> str:
    """The source of the whole library, as FUNCTION LOAD takes it."""
    folder = os.path.join(os.path.dirname(__file__), "lua")  # importlib.resources imports all that reads mail

    def text(part: str) -> str:
        with open(os.path.join(folder, f"{part}.lua"), encoding="utf-8") as file:
            return file.read()

    # Each function in a block of its own: Lua allows 200 local names at a time.
    return "\n".join(("#!lua name=eventbus2", *map(text, SHARED), *(f"do\n{text(verb)}\nend" for verb in VERBS)))


def load(client: Client) -> bool:
    """Load the library on every server that takes writes and has none, or an older one. Returns whether it did.

    Raises: BusRefused: no permission for FUNCTION LOAD; let the `admin` role do it once.
    """
    with redis_errors():
        behind = [server for server in primaries(client) if _build(server) < BUILD]
    try:
        with redis_errors():
            for server in behind:
                server.function_load(library(), replace=True)
    except BusRefused as error:
        cure = "run `eventbus functions load` as a user of role admin"
        raise BusRefused(f"the functions of build {BUILD} are not loaded: {error}; {cure}", cure=cure) from error
    return bool(behind)


def _build(server: Client) -> int:
    try:
        with redis_errors():
            return int(server.execute_command("FCALL", "eb2_build", 0))
    except FunctionsMissing:
        return 0


__all__ = ["BUILD", "SHARED", "VERBS", "library", "load"]
