"""`eventbus acl` and `eventbus doctor` know the roles of the broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from eventbus.broker.acl import Role
from eventbus.workers.cli import main


@pytest.mark.parametrize("role", Role)
def test_a_user_of_each_role_can_be_printed(role: Role) -> None:
    done = CliRunner().invoke(main, ("acl", "--role", role.value), prog_name="eventbus")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"ACL SETUSER eb-{role} reset on #")
    assert f"  {role} " in CliRunner().invoke(main, ("acl", "--help"), prog_name="eventbus").stdout
