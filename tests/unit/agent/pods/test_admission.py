"""Which pods a machine takes, and what it says of those that it does not."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import msgspec
import pytest

from eventbus.agent.pods.admission import NodeCapacity, refusal
from eventbus.agent.pods.permission import Permission
from eventbus.errors import ConfigError
from eventbus.model.objects.container import (
    Container,
    EnvVar,
    ExecAction,
    HTTPGetAction,
    PodSecurityContext,
    Probe,
    SecurityContext,
)
from eventbus.model.objects.pod import Pod
from eventbus.model.objects.volume import HostPathVolumeSource, Volume
from tests.unit.agent.pods.pods import a_pod

#: What is allowed by name has to be what a link leads to as well.
SLEEP = os.path.realpath("/bin/sleep")
NODE = NodeCapacity({"cpu": "2", "memory": "1Gi", "pods": "3"}, {"zone": "a"})

permitting = partial(Permission, namespaces=["default"])


def refused(pod: Pod, *others: Pod, permission: Permission | None = None) -> tuple[str, str] | None:
    return refusal(pod, others, NODE, permission or permitting())


def reason_of(found: tuple[str, str] | None) -> str:
    return found[0] if found is not None else ""


def test_what_fits_is_taken() -> None:
    assert refused(a_pod(source="file", cpu="1500m", memory="512Mi"), a_pod("b", cpu="500m")) is None


def test_a_pod_that_asks_for_more_than_is_left_is_refused_in_the_kubelets_words() -> None:
    assert refused(a_pod(source="file", cpu="1"), a_pod("b", cpu="1500m")) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
    )
    found = refused(a_pod(source="file", memory="2Gi"))
    assert reason_of(found) == "OutOfmemory"


def test_too_many_pods_are_refused() -> None:
    found = refused(a_pod(source="file"), a_pod("b"), a_pod("c"), a_pod("d"))
    assert reason_of(found) == "OutOfpods"


def test_a_port_that_another_has_is_refused() -> None:
    found = refused(a_pod(source="file", port=80), a_pod("b", port=80))
    assert reason_of(found) == "HostPortConflict"
    assert "b's" in str(found)
    assert refused(a_pod(source="file", port=80), a_pod("b", port=81)) is None


def test_a_selector_that_the_node_does_not_meet_is_refused() -> None:
    found = refused(a_pod(source="file", node_selector={"zone": "b"}))
    assert reason_of(found) == "NodeSelectorMismatching"
    assert refused(a_pod(source="file", node_selector={"zone": "a"})) is None


def test_a_command_that_is_not_there_is_refused() -> None:
    found = refused(a_pod(source="file", command=("/no/such/thing",)))
    assert reason_of(found) == "CommandNotFound"


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        (SecurityContext(run_as_user=os.geteuid() + 1), "UserNotPermitted"),
        (SecurityContext(privileged=True), "PrivilegedNotPermitted"),
    ],
)
def test_another_user_and_privileges_are_refused_even_to_own_files(context: SecurityContext, reason: str) -> None:
    container = Container(name="main", command=("/bin/sleep", "1"), security_context=context)
    found = refused(a_pod(source="file", containers=(container,)))
    assert reason_of(found) == reason


def test_a_user_that_is_named_is_permitted() -> None:
    container = Container(
        name="main", command=("/bin/sleep", "1"), security_context=SecurityContext(run_as_user=os.geteuid() + 1)
    )
    pod = a_pod(source="file", containers=(container,))
    assert refused(pod, permission=permitting(allow_users=[os.geteuid() + 1])) is None


def with_group(group: int, source: str = "file") -> list[Pod]:
    """Return pods that ask for *group* in each way there is."""
    named = SecurityContext(run_as_group=group)
    container = Container(name="main", command=(SLEEP, "1"), security_context=named)
    plain = Container(name="main", command=(SLEEP, "1"))
    contexts = (PodSecurityContext(run_as_group=group), PodSecurityContext(supplemental_groups=(group,)))
    return [
        a_pod(source=source, containers=(container,)),
        *(a_pod(source=source, containers=(plain,), security_context=context) for context in contexts),
    ]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an agent that is root, and of its group."""
    for name in ("geteuid", "getegid"):
        monkeypatch.setattr(os, name, lambda: 0)


@pytest.mark.usefixtures("root")
def test_another_group_is_refused_even_to_own_files_unless_it_is_named() -> None:
    for pod in with_group(12):
        assert refused(pod) == ("GroupNotPermitted", "pod may not run with group 12 (see --allow-group)")
        assert refused(pod, permission=permitting(allow_groups=[12])) is None
        assert refused(pod, permission=permitting(allow_users=[12])) is None, "its group by default"


@pytest.mark.usefixtures("root")
def test_the_group_root_is_for_own_files_alone_unless_it_is_named() -> None:
    for pod in with_group(0):
        assert refused(pod) is None
    for pod in with_group(0, source="api"):
        assert reason_of(refused(pod, permission=permitting([SLEEP], allow_users=[0]))) == "GroupNotPermitted"
        assert refused(pod, permission=permitting([SLEEP], allow_groups=[0])) is None


def test_an_agent_that_is_not_root_refuses_a_group_that_it_cannot_give(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("geteuid", "getegid"):
        monkeypatch.setattr(os, name, lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [5])
    permission = permitting(allow_groups=[12])
    for own in (5, 1000):
        assert [refused(pod, permission=permission) for pod in with_group(own)] == [None] * 3
    for pod in with_group(12):
        found = refused(pod, permission=permission)
        assert found is not None
        assert "an agent that is not root can give no other than its own" in found[1]


def test_a_pod_of_the_bus_runs_only_what_a_pattern_allows() -> None:
    pod = a_pod(command=("/bin/sh", "-c", "true"))
    found = refused(pod)
    assert reason_of(found) == "CommandNotAllowed"
    real = os.path.realpath("/bin/sh")
    assert refused(pod, permission=permitting(["/bin/sh", real])) is None


def test_a_pattern_stands_for_what_a_link_leads_to(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "escape").symlink_to("/bin/sleep")
    permission = permitting([f"{jobs}/*"])
    for command in (f"{jobs}/escape", f"{jobs}/../jobs/escape", f"{jobs}/sub/x", "sleep"):
        found = refused(a_pod(command=(command,)), permission=permission)
        assert reason_of(found) == "CommandNotAllowed", command


def test_a_refused_link_says_where_it_leads(tmp_path: Path) -> None:
    link, program = tmp_path / "link", tmp_path / "program"
    link.symlink_to(program)
    found = refused(a_pod(command=(str(link),)), permission=permitting([str(link)]))
    assert f"'{link}', which is '{os.path.realpath(program)}', is allowed by no --allow-command" in str(found)


@pytest.mark.parametrize(
    "field",
    [
        {"liveness_probe": Probe(exec=ExecAction(("/bin/cat", "/etc/passwd")))},
        {"liveness_probe": Probe(http_get=HTTPGetAction(host="169.254.169.254", port=80))},
        {"env": (EnvVar(name="LD_PRELOAD", value="/tmp/x.so"),)},
        {"image": "file:///tmp/x.tar.gz"},
    ],
)
def test_patterns_bind_probes_variables_and_artifacts_too(field: dict[str, object]) -> None:
    container = Container(name="main", command=("/bin/sleep", "1"), **field)  # type: ignore[arg-type]
    permission = permitting(["/bin/sleep", os.path.realpath("/bin/sleep")])
    found = refused(a_pod(containers=(container,)), permission=permission)
    assert reason_of(found) == "CommandNotAllowed"
    plain = Container(name="main", command=("/bin/sleep", "1"))
    assert refused(a_pod(containers=(plain,)), permission=permission) is None


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "MAKEFLAGS", "OPENSSL_CONF", "HOME", "JOBS", "BASH_FUNC_x%%", "1JOB_A", ""]
)
def test_a_pod_of_the_bus_sets_only_variables_that_are_named(name: str) -> None:
    shell = os.path.realpath("/bin/sh")

    def found(name: str, *patterns: str, source: str = "api") -> object:
        container = Container(name="main", command=(shell,), env=(EnvVar(name=name, value="x"),))
        return refused(a_pod(containers=(container,), source=source), permission=permitting([shell], (), patterns))

    assert f"the variable {name!r} is allowed by no --allow-env" in str(found(name))
    assert found(name, "JOB_*", "DEBU?") is not None
    assert found("JOB_SIZE", "JOB_*") is found("DEBUG", "DEBU?") is None
    assert (found(name, "*") is None) == name.isidentifier()
    assert found(name, source="file") is None


def test_a_pattern_of_variables_holds_names() -> None:
    for pattern in ("BASH_FUNC_x%%", "A=b", ""):
        with pytest.raises(ConfigError, match="--allow-env"):
            permitting(allow_env=[pattern])


def test_patterns_bind_host_paths() -> None:
    permission = permitting(["/bin/sleep", os.path.realpath("/bin/sleep"), "/srv/**"])
    volume = Volume(name="v", host_path=HostPathVolumeSource(path="/etc"))
    found = refused(a_pod(volumes=(volume,)), permission=permission)
    assert reason_of(found) == "CommandNotAllowed"
    volume = Volume(name="v", host_path=HostPathVolumeSource(path="/srv/data/x"))
    assert refused(a_pod(volumes=(volume,)), permission=permission) is None


def test_a_pattern_must_be_an_absolute_path() -> None:
    for pattern in ("sleep", "/opt/../bin/*", "*"):
        with pytest.raises(ConfigError, match="absolute"):
            permitting([pattern])


def test_a_pod_of_the_bus_needs_a_namespace_that_is_named() -> None:
    permission = Permission([SLEEP], namespaces=["jobs"])
    pod = a_pod(command=(SLEEP, "1"))
    assert refused(pod, permission=permission) == (
        "NamespaceNotAllowed",
        "its node runs no pods of namespace default (see --pods-from-bus)",
    )
    jobs = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="jobs"))
    assert refused(jobs, permission=permission) is None
    for source in ("file", "http"):
        assert refused(a_pod(source=source, command=(SLEEP, "1")), permission=permission) is None
