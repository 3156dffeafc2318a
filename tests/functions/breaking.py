"""A server whose function library can be made to fail: at its k-th write, or for want of one right.

The library is the product's own. A prelude in front of it shadows `redis` by a table that counts what each function
does, notes every command, and refuses the one that a test has named; everything else is passed through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import msgspec
from redis import Redis

from eventbus.broker.build import VERBS, function_name, library
from tests.functions.servers import own_server

#: Where `redis` is the global still: at run time it is another table than while the library loads.
PRELUDE = """
local redis = (function()
  local WRITES = { %s }
  local CONTAINERS = { XGROUP = true, XINFO = true }
  local plan = { name = '', write = 0, command = '', key = '', answer = '', lasting = false, hit = false }
  local running, calls, writes, notes = '', 0, 0, {}

  local function name_of(command, first)
    command = string.upper(command)
    if CONTAINERS[command] then return command .. '|' .. string.upper(first), true end
    return command, false
  end

  local function planned()
    return plan.name == '*' or (plan.name ~= '' and plan.name == running)
  end

  local function lacks_right(command, key)
    if not planned() or plan.command ~= command or plan.key ~= key then return false end
    plan.hit = true
    return true
  end

  local function refused(...)
    local arguments = { ... }
    local command, container = name_of(arguments[1], arguments[2])
    local key = arguments[container and 3 or 2]
    local note = { calls, running, command, WRITES[command] and '1' or '0' }
    for n = container and 3 or 2, #arguments do note[#note + 1] = tostring(arguments[n]) end
    notes[#notes + 1] = note
    if plan.command ~= '' then return lacks_right(command, key) end
    if not WRITES[command] then return false end
    writes = writes + 1
    if not planned() or writes ~= plan.write then return false end
    plan.hit = true
    return true
  end

  local function begin(name)
    if plan.hit and not plan.lasting then plan.name = '' end
    running, calls, writes = name, calls + 1, 0
  end

  local function wrap(name, callback)
    return function(keys, args)
      begin(name)
      return callback(keys, args)
    end
  end

  local function register(name, callback)
    if callback then return redis.register_function(name, wrap(name, callback)) end
    name.callback = wrap(name.function_name, name.callback)
    return redis.register_function(name)
  end

  redis.register_function('breaking_plan', function(_, args)
    plan = {
      name = args[1], write = tonumber(args[2]), command = args[3], key = args[4], answer = args[5],
      lasting = args[6] == '1', hit = false,
    }
    return 1
  end)
  redis.register_function('breaking_hit', function() return plan.hit and 1 or 0 end)
  redis.register_function('breaking_notes', function()
    local told = notes
    notes = {}
    return told
  end)

  return {
    register_function = register,
    call = function(...)
      if refused(...) then error({ err = plan.answer }) end
      return redis.call(...)
    end,
    pcall = function(...)
      if refused(...) then return { err = plan.answer } end
      return redis.pcall(...)
    end,
    acl_check_cmd = function(...)
      local arguments = { ... }
      local command, container = name_of(arguments[1], arguments[2])
      if lacks_right(command, arguments[container and 3 or 2]) then return false end
      return redis.acl_check_cmd(...)
    end,
    error_reply = function(text) return redis.error_reply(text) end,
    log = function(...) return redis.log(...) end,
    sha1hex = function(text) return redis.sha1hex(text) end,
  }
end)()
"""

#: What the prelude has of `redis`.
SHADOWED = {"register_function", "call", "pcall", "acl_check_cmd", "error_reply", "log", "sha1hex"}


class Answer(StrEnum):
    """The server's words when it refuses."""

    NOPERM = "NOPERM No permissions to access a key used in the script"
    WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class Executed(msgspec.Struct, frozen=True):
    """One command that a function has really executed, or was refused. *command* is `XADD` or `XGROUP|CREATE`."""

    call: int  #: a number that all that one call does shares
    function: str  #: its verb: `correlate_and_store`
    command: str
    writes: bool
    arguments: tuple[bytes, ...]

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys it was used on."""
        if self.command in ("TIME", "INFO"):
            return ()
        if self.command in ("MGET", "DEL", "EXISTS"):
            return self.arguments
        return self.arguments[::2] if self.command == "MSET" else self.arguments[:1]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The refusal of a function's write (its verb, `*` any): the *write*-th, or each that needs a right.

    *right*: the command and the key; asked beforehand, the server says that it is lacking. *lasting*: in every call
    until `Breaker.allow`, else in the next call that comes to it.
    """

    function: str
    write: int = 0
    right: tuple[str, bytes] = ("", b"")
    answer: Answer = Answer.NOPERM
    lasting: bool = False


class Breaker:
    """The server at *url*, whose functions can be made to fail."""

    def __init__(self, url: str, change: Callable[[str], str] = lambda source: source) -> None:
        self.url = url
        self.client = cast(Any, Redis.from_url(url))
        source = library()
        self._names = {function_name(verb): verb for verb in (*VERBS, "build")}
        self.verbs = [verb for verb in self._names.values() if verb != "build"]
        self.client.function_load(with_prelude(self.client, change(source)), replace=True)

    def refuse(self, refusal: Refusal) -> None:
        """Let the next call, or all of them, come to grief."""
        name = next((name for name, verb in self._names.items() if verb == refusal.function), refusal.function)
        command, key = refusal.right
        plan = (name, refusal.write, command, key, str(refusal.answer), int(refusal.lasting))
        self.client.fcall("breaking_plan", 0, *plan)

    def allow(self) -> bool:
        """Refuse nothing any more. Returns whether anything was refused."""
        hit = bool(self.client.fcall("breaking_hit", 0))
        self.client.fcall("breaking_plan", 0, "", 0, "", "", "", 0)
        return hit

    def executed(self) -> list[Executed]:
        """All that the functions have done since this was last asked."""
        notes: Sequence[Sequence[Any]] = self.client.fcall("breaking_notes", 0)
        return [
            Executed(int(call), self._names[name.decode()], command.decode(), writes == b"1", tuple(arguments))
            for call, name, command, writes, *arguments in notes
        ]


def with_prelude(client: Any, source: str) -> str:
    """The library with the prelude behind its first line. *client* knows which commands write."""
    writing = client.execute_command("COMMAND LIST", "FILTERBY", "ACLCAT", "write")
    names = ", ".join(f"['{name.decode().upper()}'] = true" for name in sorted(writing))
    first, line, rest = source.partition("\n")
    assert first.startswith("#!lua name=")
    unknown = set(re.findall(r"\bredis\.(\w+)", rest)) - SHADOWED
    assert not unknown, f"the prelude does not pass on {unknown}"
    return first + line + PRELUDE % names + rest


@contextmanager
def breakable_server(directory: Path, change: Callable[[str], str] = lambda source: source) -> Iterator[Breaker]:
    """A server of one's own with the library under a `Breaker`. *change*: the source, broken for a control."""
    with own_server(directory, appendonly="no", save="") as server:
        breaker = Breaker(str(server.url), change)
        yield breaker
        breaker.client.close()


def replaced(right: str, wrong: str) -> Callable[[str], str]:
    """Breaks the library in one place, which must be there exactly once."""

    def change(source: str) -> str:
        assert source.count(right) == 1, f"the line to break is not there, or not once: {right}"
        return source.replace(right, wrong)

    return change
