"""Every reason that an agent says is caused by real means in a test: a process, a disk, a server. Those of `NUMBERS`
are not: there the machine is one whose numbers the test sets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.model.objects.cluster import _REASONS

ROOT = Path(__file__).parents[3]
REASONS_PY, RUNTIME = "tests/acceptance/test_agent_reasons.py", "tests/integration/test_process_runtime.py"
ARTIFACTS, NODES = "tests/integration/test_artifacts.py", "tests/integration/test_node_lifecycle.py"
SAYS_WHY = "test_what_is_refused_or_fails_says_why"
SHORT = "test_the_pods_of_a_machine_that_is_short_of_something_run_on"
TOO_MANY = "test_a_port_that_is_taken_and_a_pod_too_many_are_refused"

#: Reason → the test that causes it, and its file.
TABLE: dict[str, tuple[str, str]] = {
    "BackOff": (RUNTIME, "test_the_first_restart_is_at_once_and_the_second_waits"),
    "CommandNotAllowed": (
        "tests/acceptance/test_agent_story.py",
        "test_a_pod_of_the_bus_runs_if_it_is_allowed_and_ends_when_it_is_deleted",
    ),
    "CommandNotFound": (REASONS_PY, SAYS_WHY),
    "Completed": ("tests/acceptance/test_up.py", "test_what_fails_is_started_again_and_told_and_recorded"),
    "Created": (RUNTIME, "test_a_pod_runs_and_its_exit_code_is_kept"),
    "DeadlineExceeded": (REASONS_PY, SAYS_WHY),
    "ErrImageNeverPull": (REASONS_PY, SAYS_WHY),
    "Evicted": (REASONS_PY, "test_a_machine_that_is_short_of_disk_takes_no_pods_from_elsewhere"),
    "ExceededGracePeriod": (RUNTIME, "test_what_does_not_end_in_its_grace_time_is_killed"),
    "Failed": (RUNTIME, "test_a_command_that_is_not_there_is_told_and_not_run"),
    "FailedCreatePodSandBox": (REASONS_PY, "test_a_sandbox_that_cannot_be_made_is_said_and_made_once_it_can"),
    "FailedMount": (REASONS_PY, SAYS_WHY),
    "FailedPostStartHook": (REASONS_PY, SAYS_WHY),
    "FailedPreStopHook": (RUNTIME, "test_a_pre_stop_hook_that_fails_is_told"),
    "FailedSync": (REASONS_PY, SAYS_WHY),
    "FailedValidation": (REASONS_PY, SAYS_WHY),
    "GroupNotPermitted": (REASONS_PY, SAYS_WHY),
    "HostPortConflict": (REASONS_PY, TOO_MANY),
    "InspectFailed": (ARTIFACTS, "test_an_image_that_is_no_archive_is_explained"),
    "Killing": (RUNTIME, "test_killing_asks_first"),
    "NamespaceNotAllowed": (
        "tests/acceptance/test_agent_story.py",
        "test_a_pod_of_a_namespace_that_its_node_does_not_run_fails_and_ends_if_it_ran",
    ),
    "NodeHasDiskPressure": (REASONS_PY, SHORT),
    "NodeHasInsufficientMemory": (REASONS_PY, SHORT),
    "NodeHasInsufficientPID": (NODES, "test_what_a_machine_is_short_of_is_told_and_that_it_is_no_more"),
    "NodeHasNoDiskPressure": (REASONS_PY, "test_a_disk_that_was_full_and_has_room_again_is_told"),
    "NodeHasSufficientMemory": (NODES, "test_what_a_machine_is_short_of_is_told_and_that_it_is_no_more"),
    "NodeHasSufficientPID": (NODES, "test_what_a_machine_is_short_of_is_told_and_that_it_is_no_more"),
    "NodeNotReady": ("tests/acceptance/test_nodes.py", "test_one_of_three_agents_is_killed_and_started_again"),
    "NodeReady": ("tests/acceptance/test_nodes.py", "test_one_of_three_agents_is_killed_and_started_again"),
    "NodeSelectorMismatching": (REASONS_PY, SAYS_WHY),
    "OutOfcpu": (REASONS_PY, SAYS_WHY),
    "OutOfephemeral-storage": (REASONS_PY, SAYS_WHY),
    "OutOfmemory": (REASONS_PY, SAYS_WHY),
    "OutOfpods": (REASONS_PY, TOO_MANY),
    "PrivilegedNotPermitted": (REASONS_PY, SAYS_WHY),
    "Pulled": (ARTIFACTS, "test_an_archive_is_unpacked_and_its_program_runs_in_it"),
    "Pulling": (ARTIFACTS, "test_an_archive_is_unpacked_and_its_program_runs_in_it"),
    "Rebooted": (REASONS_PY, "test_a_node_that_the_store_has_from_before_a_boot_is_told"),
    "SandboxChanged": (
        "tests/faults/test_shims.py",
        "test_a_shim_that_is_killed_is_made_anew_and_nothing_runs_twice",
    ),
    "Started": (RUNTIME, "test_a_pod_runs_and_its_exit_code_is_kept"),
    "Starting": (NODES, "test_an_agent_registers_its_node_and_says_that_it_starts"),
    "Unhealthy": (
        "tests/integration/test_probes.py",
        "test_a_liveness_probe_that_fails_is_told_with_an_event_a_failure",
    ),
    "UserNotPermitted": (REASONS_PY, SAYS_WHY),
}
#: Tests whose machine is numbers that they set, and what those cause: memory and process numbers run out for all that
#: runs on the machine (a cgroup's bound is not what the agent reads, and `pid_max` is no namespace's own before Linux
#: 6.14).
SET_BY_TESTS = {"test_what_a_machine_is_short_of_is_told_and_that_it_is_no_more"}
NUMBERS = {"NodeHasInsufficientPID", "NodeHasSufficientMemory", "NodeHasSufficientPID"}
#: Types of events, by the names that stand for them, and what makes a refusal or a transition.
TYPES, MAKERS = {"NORMAL", "WARNING"}, {"Problem", "Refusal", "Transition"}
REASON = re.compile(r"[A-Z][A-Za-z]+(-[a-z]+)?")
#: A reason that is made of a resource's name: OutOfcpu.
MADE_OF_A_NAME = "OutOf"


def in_source() -> Iterator[str]:
    """Yield the reasons that the agent's code names."""
    for path in [*(ROOT / "eventbus/agent").rglob("*.py"), ROOT / "eventbus/model/objects/cluster.py"]:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from _of_call(node)
    yield from (reason for pair in _REASONS.values() for reason in pair)


def _of_call(call: ast.Call) -> Iterator[str]:
    maker = isinstance(call.func, ast.Name) and call.func.id in MAKERS
    if maker or any(isinstance(one, ast.Name) and one.id in TYPES for one in call.args):
        for one in call.args:
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and REASON.fullmatch(one.value):
                yield one.value


def test_the_table_has_every_reason_of_the_agent() -> None:
    named = set(in_source())
    assert len(named) > 25, "the code says reasons in another way"
    assert named <= TABLE.keys()


@pytest.mark.parametrize("reason", TABLE)
def test_a_test_causes_it_and_asks_for_it(reason: str) -> None:
    path, name = TABLE[reason]
    text = (ROOT / path).read_text()
    assert f"def {name}(" in text
    assert f'"{reason}"' in text


def test_no_other_reason_hangs_on_numbers_that_a_test_sets() -> None:
    assert {reason for reason, (_, name) in TABLE.items() if name in SET_BY_TESTS} == NUMBERS


def test_no_reason_of_the_table_is_one_that_nobody_says() -> None:
    code = "".join(path.read_text() for path in (ROOT / "eventbus").rglob("*.py"))
    assert [one for one in TABLE if f'"{one}"' not in code and not one.startswith(MADE_OF_A_NAME)] == []
