"""The build of this program: the source of its functions, their names in Redis, and its formats.

Functions have their build in their names. So one server can have the functions of several builds, and each build calls
its own. Any change of the Lua source, the formats or the codecs makes another build.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from eventbus.model.formats import CODECS, FORMATS

#: Files that the functions share, in an order in which each local is declared before its use. A file with a comment
#: `Exports:` shares only these functions, which it defines without `local`: Lua allows 200 locals at a time.
SHARED = (
    *("library", "corrupt", "objects", "incoming", "untrusted_numbers", "commit", "counting", "series", "correlation"),
    *("state", "client_written"),
)
#: Files with one function each.
VERBS = (
    *("open", "publish", "publish_once", "correlate_and_store", "trim", "bury", "replay", "discard"),
    *("beat", "isolate", "claim", "remove_event", "expire", "refresh", "forget", "finish"),
    *("put", "remove", "put_client_event", "overlay_event"),
    *("export_acquire", "export_release", "export_settle", "export_retry", "checkpoint"),
    *("notify_acquire", "notify_release", "notify_settle"),
    "announce",
)

_EXPORTS = re.compile(r"^-- Exports: (.+)$", re.MULTILINE)


@cache
def build() -> str:
    """Return the id of this build: eight hexadecimal digits, which depend on the source and the formats."""
    digest = blake2b(repr((FORMATS, CODECS)).encode(), digest_size=4)
    for part in (*SHARED, *VERBS):
        digest.update(_source(part).encode())
    return digest.hexdigest()


@cache
def package_version() -> str:
    """Return the version of this program; the first call reads the metadata of the package, which takes 2 ms."""
    from importlib.metadata import version  # slow to import

    return version("eventbus")


def build_info() -> dict[str, str]:
    """Return the versions of this program and of Python, and the build, as the labels of `eventbus_build_info`."""
    import platform  # slow to import

    return {"version": package_version(), "build": build(), "python": platform.python_version()}


def git_commit() -> str:
    """Return the commit that this program was built from, or "" if it is unknown.

    The build hook adds it to wheels (`hatch_build.py`). An editable install has the shortened one in its version.
    """
    try:
        with open(os.path.join(os.path.dirname(__file__), "..", "commit.txt"), encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        found = re.search(r"\+g([0-9a-f]+)", build_info()["version"])
        return found[1] if found else ""


def function_name(verb: str, of: str = "") -> str:
    """Return the name in Redis of a function of this build, or of the build *of*."""
    return f"eb_{of or build()}_{verb}"


def function_command(verb: str, keys: Sequence[bytes], *args: Any) -> tuple[Any, ...]:
    """Return the command that calls a function of this build."""
    return ("FCALL", function_name(verb), len(keys), *keys, *args)


def library_name(of: str = "") -> str:
    """Return the name in Redis of the library of this build, or of the build *of*."""
    return f"eventbus_{of or build()}"


def library() -> str:
    """Return the source of the whole library, for FUNCTION LOAD."""
    names = f"#!lua name={library_name()}\nlocal BUILD = '{build()}'"
    shared = []
    for source in map(_source, SHARED):
        exports = _EXPORTS.search(source)
        shared.append(f"local {exports[1]}\ndo\n{source}\nend" if exports else source)
    return "\n".join((names, *shared, *(f"do\n{_source(verb)}\nend" for verb in VERBS)))


def _source(part: str) -> str:
    folder = os.path.join(os.path.dirname(__file__), "lua")  # importlib.resources imports the email package
    with open(os.path.join(folder, f"{part}.lua"), encoding="utf-8") as file:
        return file.read()
