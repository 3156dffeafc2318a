"""Which cgroup an agent may divide among its pods, from what /proc says and what lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventbus.agent.node.factory import node_labels
from eventbus.agent.node.machine import local_identity
from eventbus.agent.runtime import isolation
from eventbus.agent.runtime.isolation import CGROUP, ISOLATION_LABEL, RLIMITS, delegated_cgroup, own_cgroup, pods_cgroup

V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"


class Machine:
    """The files of a machine: /proc/self, and a mounted hierarchy of version 2."""

    def __init__(self, folder: Path, *, inside: str, top: str = "/", controllers: str = "cpu io memory pids") -> None:
        self.proc, self.mounted_at = folder / "proc", folder / "a mount"
        self.proc.mkdir()
        (self.proc / "cgroup").write_text(f"8:pids:/\n0::{inside}\n")
        escaped = str(self.mounted_at).replace(" ", "\\040")
        mount = f"41 31 0:38 {top} {escaped} rw,relatime shared:5 - cgroup2 cgroup2 rw\n"
        (self.proc / "mountinfo").write_text(V1 + mount)
        self.own = self.mounted_at / os.path.relpath(inside, top)
        self.own.mkdir(parents=True)
        (self.own / "cgroup.controllers").write_text(controllers)
        (self.own / "cgroup.procs").write_text("12\n13\n")
        # As the kernel fills what is made.
        for below in ("agent", "pods"):
            (self.own / below).mkdir()
            for name in ("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control"):
                (self.own / below / name).write_text(controllers if name == "cgroup.controllers" else "")

    def give(self) -> None:
        """Have systemd mark it: Delegate=yes."""
        os.setxattr(self.own, "user.delegate", b"1")


def test_the_mount_is_found_wherever_it_is(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/system.slice/agent.service")
    found = own_cgroup(machine.proc)
    assert found is not None
    assert found.folder == tmp_path / "a mount/system.slice/agent.service"


def test_a_mount_of_a_part_is_counted_from_its_top(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/docker/c1/agent.service", top="/docker/c1")
    found = own_cgroup(machine.proc)
    assert found is not None
    assert found.folder == tmp_path / "a mount/agent.service"


def test_a_mount_that_does_not_show_our_cgroup_is_none_of_ours(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/docker/c1", top="/docker/c1")
    (machine.proc / "cgroup").write_text("0::/docker/c2\n")
    assert own_cgroup(machine.proc) is None


def test_a_machine_of_version_1_has_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("8:pids:/\n1:cpu:/\n")
    (tmp_path / "mountinfo").write_text(V1)
    assert own_cgroup(tmp_path) is None
    assert pods_cgroup(tmp_path) is None


def test_what_is_delegated_is_divided_and_we_move_aside(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/system.slice/agent.service")
    machine.give()
    assert pods_cgroup(machine.proc) == machine.own / "pods"
    assert (machine.own / "agent/cgroup.procs").read_text() == "13"  # a kernel's file takes one a write
    assert (machine.own / "pods/cgroup.subtree_control").read_text() == "+pids"


def test_to_ask_whether_something_is_delegated_changes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/system.slice/agent.service")
    machine.give()
    assert delegated_cgroup(machine.proc) == (machine.own, "/system.slice/agent.service")
    assert (machine.own / "agent/cgroup.procs").read_text() == ""
    assert (machine.own / "pods/cgroup.subtree_control").read_text() == ""


def test_the_labels_of_a_node_move_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(isolation, "pods_cgroup")
    assert node_labels("n1", local_identity(), {})[ISOLATION_LABEL] in (CGROUP, RLIMITS)


def test_an_agent_that_was_started_where_another_had_moved_aside_finds_the_same(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/system.slice/agent.service")
    machine.give()
    (machine.proc / "cgroup").write_text("0::/system.slice/agent.service/agent\n")
    assert pods_cgroup(machine.proc) == machine.own / "pods"


@pytest.mark.parametrize("controllers", ["", "pids", "cpu pids"])
def test_a_hybrid_machine_where_version_1_has_the_controllers_is_limited_otherwise(
    tmp_path: Path, controllers: str
) -> None:
    machine = Machine(tmp_path, inside="/system.slice/agent.service", controllers=controllers)
    machine.give()
    assert pods_cgroup(machine.proc) is None
    assert (machine.own / "agent/cgroup.procs").read_text() == "", "nothing was moved"


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever is not root may write only what was given to him")
def test_root_takes_no_cgroup_that_was_not_given_to_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/user.slice/session-1.scope")
    assert pods_cgroup(machine.proc) is None
    assert (machine.own / "agent/cgroup.procs").read_text() == "", "nothing was moved"


def test_the_top_of_a_container_is_the_containers_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inside="/")
    (machine.own / "cgroup.type").write_text("domain\n")  # the machine's own top has none
    assert pods_cgroup(machine.proc) == machine.own / "pods"
    (machine.proc / "cgroup").write_text("0::/agent\n")  # of the next agent there
    assert pods_cgroup(machine.proc) == machine.own / "pods"
