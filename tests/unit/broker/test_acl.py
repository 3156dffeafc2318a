"""The ACL line: names, patterns, and what may never stand in it. What a server makes of it: tests/integration."""

from __future__ import annotations

from hashlib import sha256

import pytest

from eventbus.broker.acl import (
    READS,
    Role,
    acl_rules,
    acl_setuser,
    functions_used,
    key_patterns,
    role_functions,
    role_uses,
)
from eventbus.errors import ConfigError

#: Whoever has one of these can run code of his own, read passwords, or take everything away.
NEVER = {"eval", "evalsha", "config", "acl|setuser", "flushall", "flushdb", "keys", "debug", "fcall", "all"}


@pytest.mark.parametrize("role", Role)
def test_a_role_starts_from_nothing_and_has_no_right_over_the_server(role: Role) -> None:
    rules = acl_rules(role)
    assert rules[:4] == ("resetkeys", "resetchannels", "clearselectors", "-@all")
    granted = {word.strip("()")[1:] for rule in rules for word in rule.split() if word.strip("()").startswith("+")}
    assert not granted & NEVER
    assert not any(word.startswith("@") for word in granted)


def test_functions_are_loaded_by_the_admin_of_the_server_alone() -> None:
    for role in Role:
        commands = {use.command for use in role_uses(role)}
        assert any(command.startswith("FUNCTION|") for command in commands) == (role is Role.ADMIN)
        assert ("ACL|LOAD" in commands) == (role is Role.ADMIN)


def test_an_admin_only_sees_that_a_bus_is_there_and_which_builds_use_it() -> None:
    keyed = {key for use in role_uses(Role.ADMIN) for key in use.keys}
    assert keyed == {"bus", "meta", "incoming", "version", "builds"}
    assert {use.command for use in role_uses(Role.ADMIN) if use.keys} <= READS
    assert role_functions(Role.ADMIN) == ()


def test_only_deploy_may_destroy_groups_for_good() -> None:
    for role in Role:
        commands = {use.command for use in role_uses(role)}
        assert ("XGROUP|DESTROY" in commands) == (role is Role.DEPLOY)
        # `open` and `trim` bring a stream back whose ids somebody has used up
        assert ("XSETID" in commands) == (role in (Role.DEPLOY, Role.WORKER))


@pytest.mark.parametrize("role", [Role.READER, Role.METRICS])
def test_readers_get_every_key_for_reading_only(role: Role) -> None:
    selectors = [rule for rule in acl_rules(role) if rule.startswith("(")]
    assert selectors
    for selector in selectors:
        assert all(word.startswith("%R~") for word in selector.strip("()").split() if "~" in word), selector


def test_every_function_belongs_to_a_role() -> None:
    called = {function.verb for role in Role for function in role_functions(role)}
    assert called == set(functions_used()) - {"build"}


def test_patterns_span_all_partitions_of_one_prefix() -> None:
    assert key_patterns("shop", ["incoming", "producer", "bus"]) == [
        "shop:{*}:incoming",
        "shop:{*}:producer:*",
        "shop:{0}:bus",
    ]


def test_a_prefix_with_a_pattern_in_it_is_refused() -> None:
    with pytest.raises(ConfigError):
        acl_rules(Role.READER, "*")


def test_the_password_is_there_as_its_hash_alone() -> None:
    words = acl_setuser(Role.READER, user="eb-reader", password="s3cret")
    assert words[:4] == ("eb-reader", "reset", "on", "#" + sha256(b"s3cret").hexdigest())
    assert not any("s3cret" in word for word in words)
