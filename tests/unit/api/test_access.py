"""Who may do what, verb by verb and role by role."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from eventbus.api import reread_file
from eventbus.api.auth.access import AUTHENTICATED, MASTERS, READ, SERVED, WRITE, Access, Grant, Role, User, grants_file
from eventbus.errors import ConfigError
from eventbus.model.kinds import KINDS

ANN = User(name="ann", groups=("ops", AUTHENTICATED))
VERBS = sorted(READ | WRITE)
RECORDING = {"create", "update", "patch"}

#: What each role may do to each of these resources.
MAY: dict[Role, dict[str, set[str]]] = {
    Role.VIEW: {"events": set(READ), "nodes": set(READ), "pods": set(READ), "secrets": set(), "dead": set(READ)},
    Role.RECORD: {"events": RECORDING, "nodes": set(), "pods": set(), "secrets": set(), "dead": set()},
    Role.EDIT: {
        "events": set(VERBS),
        "nodes": set(VERBS),
        "pods": set(READ),
        "secrets": set(),
        "dead": set(READ),
    },
    Role.OPERATOR: {
        "events": set(READ),
        "nodes": set(READ),
        "pods": set(VERBS),
        "secrets": set(VERBS),
        "dead": set(READ),
    },
    Role.ADMIN: {
        "events": set(VERBS),
        "nodes": set(VERBS),
        "pods": set(READ),
        "secrets": set(),
        "dead": set(VERBS),
    },
}


@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_the_table_says_and_nothing_else(role: Role) -> None:
    access = Access([Grant(role, user="ann")])
    found = {
        resource: {verb for verb in VERBS if access.allowed(ANN, verb, resource, "default")} for resource in MAY[role]
    }
    assert found == MAY[role]


def test_the_page_of_security_says_what_each_role_may_do_verb_by_verb() -> None:
    page = (Path(__file__).resolve().parents[3] / "SECURITY.md").read_text("utf-8")
    rows = page.partition("| resource |")[2].partition("\n\n")[0].splitlines()
    roles = [Role(name.strip()) for name in rows[0].strip(" |").split("|")]
    assert set(roles) == set(Role)
    told = {}
    for row in rows[2:]:
        resource, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        told.update({(role, resource): cell for role, cell in zip(roles, cells, strict=True)})
    assert {resource for _, resource in told} >= {kind.plural for kind in KINDS} | SERVED
    words = {"read": set(READ), "all": set(VERBS), "–": set()}
    for (role, resource), cell in told.items():
        access = Access([Grant(role, user="ann")])
        may = {verb for verb in VERBS if access.allowed(ANN, verb, resource, "default")}
        assert may == words.get(cell, set(cell.split(", "))), (role, resource)


def test_who_has_no_role_may_do_nothing() -> None:
    access = Access([Grant(Role.VIEW, user="bob"), Grant(Role.EDIT, group="dev")])
    assert not any(access.allowed(ANN, verb, "events", "default") for verb in VERBS)


def test_a_grant_in_a_namespace_reaches_no_other_and_not_all_at_once() -> None:
    access = Access([Grant(Role.VIEW, group="ops", namespace="team-a")])
    assert access.allowed(ANN, "list", "events", "team-a")
    assert not access.allowed(ANN, "list", "events", "team-b")
    assert not access.allowed(ANN, "list", "events")
    assert not access.allowed(ANN, "list", "nodes")


def test_masters_are_admins_and_no_operators() -> None:
    root = User(name="root", groups=(MASTERS,))
    assert Access().allowed(root, "delete", "nodes")
    assert not Access().allowed(root, "create", "pods", "default")
    assert not Access().allowed(root, "get", "secrets", "default")
    assert Access([Grant(Role.OPERATOR, user="root")]).allowed(root, "get", "secrets", "default")


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("view=user:ann", Grant(Role.VIEW, user="ann")),
        ("edit=group:ops@team-a", Grant(Role.EDIT, group="ops", namespace="team-a")),
        ("record=user:ann@example.com", Grant(Role.RECORD, user="ann@example.com")),
        ("record=user:ann@example.com@team-a", Grant(Role.RECORD, user="ann@example.com", namespace="team-a")),
        ("admin=group:system:masters", Grant(Role.ADMIN, group="system:masters")),
    ],
)
def test_grants_are_read(text: str, grant: Grant) -> None:
    assert Grant.parse(text) == grant


@pytest.mark.parametrize("text", ["", "view", "view=", "view=user:", "root=user:a", "view=host:a", "view=user:@a"])
def test_a_grant_that_cannot_be_read_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="ROLE=user:NAME"):
        Grant.parse(text)


def test_a_question_longer_than_any_name_is_not_remembered() -> None:
    namespace, access = "n" * 64, Access([Grant.parse("view=user:ann")])
    held = sys.getrefcount(namespace)
    assert access.allowed(ANN, "get", "events", namespace)
    assert not access.allowed(ANN, namespace, "events")
    assert sys.getrefcount(namespace) == held


def rewrite(path: Path, text: str) -> None:
    """Replace the file, as an editor does: its time may be the same, its inode is not."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def test_grants_of_a_file_hold_from_the_next_request_and_an_error_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reread_file, "LOOK_EVERY_S", 0)
    path = tmp_path / "grants"
    path.write_text("# of the team\n\n view=group:ops@shop \n")

    async def go() -> None:
        file = grants_file(path)
        access = Access([Grant.parse("record=user:ann")], file=file)

        def may(verb: str) -> bool:
            return access.allowed(ANN, verb, "events", "shop")

        assert (may("list"), may("delete"), may("create")) == (True, False, True)
        rewrite(path, "edit=group:ops@shop\n")
        await access.refresh()
        assert (may("list"), may("delete"), may("create")) == (True, True, True)
        assert {grant.role for grant in access.grants_of(ANN)} == {Role.RECORD, Role.EDIT}
        rewrite(path, "view=group:ops@shop\nedit=ann\n")
        await access.refresh()
        assert may("delete"), "the previous grants stay in use"
        assert "line 2" in file.problem
        rewrite(path, "")
        await access.refresh()
        assert (may("list"), may("delete"), may("create")) == (False, False, True)
        assert file.problem == ""

    asyncio.run(go())
    assert "line 2: --grant 'edit=ann': give ROLE=user:NAME" in caplog.text


def test_a_file_of_grants_with_an_error_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "grants"
    with pytest.raises(ConfigError, match=r"--grants-file .*grants cannot be read"):
        grants_file(path)
    path.write_text("view=user:ann\nown=user:ann\n")
    with pytest.raises(ConfigError, match=r"--grants-file .*grants, line 2: .*own=user:ann"):
        grants_file(path)
    path.write_text("view=user:ann\n")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by others"):
        grants_file(path)
