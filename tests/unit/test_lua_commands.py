"""What is read from the functions' source: it must be all that they do, or a right is missing in mid-script."""

from __future__ import annotations

import re

from eventbus.broker.functions import library
from eventbus.broker.lua_commands import Use, functions_used

#: As publish.lua reads, by eye.
PUBLISH = {
    ("EXISTS", "incoming"),
    ("XADD", "incoming"),
    ("XINFO|GROUPS", "incoming"),
    ("HMGET", "incoming_meta"),
    ("HSET", "incoming_meta"),
    ("HINCRBY", "incoming_meta"),
    ("HMGET", "producer"),
    ("HSET", "producer"),
    ("PEXPIRE", "producer"),
    ("HGETALL", "meta"),
}


def test_publish_does_what_its_source_says() -> None:
    publish = functions_used()["eb1_publish"]
    assert publish.keys == ("incoming", "incoming_meta", "meta", "producer")
    assert {(use.command, *use.keys) for use in publish.uses} == PUBLISH


def test_a_helper_s_commands_count_for_the_keys_it_is_passed() -> None:
    trims = [use.keys for use in functions_used()["eb1_trim"].uses if use.command == "XTRIM"]
    assert sorted(trims) == [("changes",), ("dead",), ("incoming",)]


def test_a_command_that_is_passed_by_name_is_found() -> None:
    record = functions_used()["eb1_record"].uses
    assert {use.keys for use in record if use.command == "ZADD"} >= {("index_name",), ("index_expiry",)}
    assert not any(use.command == "command" for use in record)


def test_keys_without_a_name_of_their_own_are_those_of_the_header() -> None:
    record = functions_used()["eb1_record"].uses
    assert Use("MGET", ("aggregate", "spam", "object")) in record
    assert Use("DEL", ("object",)) in functions_used()["eb1_expire"].uses


def test_every_registered_function_is_found() -> None:
    assert set(functions_used()) == set(re.findall(r"'(eb1_\w+)'", library()))


def test_no_command_of_the_library_is_overlooked() -> None:
    source = library()
    written = {name for name, _ in re.findall(r"redis\.call\('([A-Z]+)'(, )?", source)}
    written |= set(re.findall(r"call_with\('([A-Z]+)'", source))
    found = {use.command.partition("|")[0] for function in functions_used().values() for use in function.uses}
    assert found == written


def test_every_key_is_one_that_the_function_is_passed() -> None:
    for function in functions_used().values():
        for use in function.uses:
            assert set(use.keys) <= set(function.keys), (function.name, use)
