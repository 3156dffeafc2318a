"""What cgroups and rlimits a pod gets, and its QoS class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.runtime.contract import PodUid
from eventbus.agent.runtime.isolation import CgroupIsolation, RlimitIsolation
from eventbus.agent.runtime.pod_facts import qos_class
from eventbus.model.kinds import POD
from eventbus.model.objects.pod import Pod

LIMITED = {"limits": {"cpu": "500m", "memory": "64Mi"}}


def make_pod(*resources: dict[str, Any]) -> Pod:
    containers = [{"name": f"c{place}", "resources": one} for place, one in enumerate(resources)]
    return POD.decode({"metadata": {"name": "a", "uid": "u1"}, "spec": {"containers": containers}})


@pytest.mark.parametrize(
    ("resources", "kind"),
    [
        (({},), "BestEffort"),
        ((LIMITED,), "Guaranteed"),
        ((LIMITED, {}), "Burstable"),
        (({"requests": {"cpu": "1"}},), "Burstable"),
        (({**LIMITED, "requests": {"cpu": "100m"}},), "Burstable"),
    ],
)
def test_the_class_follows_what_was_asked_for(resources: tuple[dict[str, Any], ...], kind: str) -> None:
    assert qos_class(make_pod(*resources)) == kind


def test_without_cgroups_memory_is_an_rlimit_of_each_process() -> None:
    found = RlimitIsolation().limits(make_pod(LIMITED).spec.containers[0])

    assert found == {"RLIMIT_DATA": [64 * 1024**2, 64 * 1024**2]}


def test_a_container_has_a_cgroup_below_its_pods_and_its_class(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("")
    for folder in ("burstable", "burstable/podu1", "burstable/podu1/c0"):  # as the kernel fills what is made
        (tmp_path / folder).mkdir()
        for name in ("cgroup.controllers", "memory.max", "memory.oom.group", "cpu.max", "cpu.weight"):
            (tmp_path / folder / name).write_text("")
    pod = make_pod({**LIMITED, "requests": {"cpu": "250m"}})
    isolation = CgroupIsolation(tmp_path)

    own = Path(isolation.container_cgroup(pod, pod.spec.containers[0]))
    assert own == tmp_path / "burstable/podu1/c0"
    assert (own / "memory.max").read_text() == str(64 * 1024**2)
    assert (own / "memory.oom.group").read_text() == "1"
    assert (own / "cpu.max").read_text() == "50000 100000"
    assert (own / "cpu.weight").read_text() == "10"
    isolation.remove(PodUid("other"))
    assert own.exists()
