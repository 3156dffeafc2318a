"""kubectl itself, where the machine has one: what it printed against a real API server, and what people do with it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.api_replay import VECTORS
from tests.support.api_worker import ApiWorker
from tests.support.kubectl_replay import Kubectl, differences, make_fixture

DEPARTURES = Path(__file__).parents[2] / "docs" / "api-departures.md"
KUBECTL = shutil.which("kubectl")

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="the machine has no kubectl"),
    pytest.mark.xdist_group("kubectl"),
]


@pytest.fixture
def kubectl(local_worker: ApiWorker, tmp_path: Path) -> Kubectl:
    assert KUBECTL
    return Kubectl(KUBECTL, local_worker, tmp_path)


def test_kubectl_prints_what_it_prints_of_a_real_cluster(local_worker: ApiWorker, kubectl: Kubectl) -> None:
    recorded = json.loads((VECTORS / "kubectl" / "kubectl-v1.33.1.json").read_text())
    make_fixture(local_worker, recorded)
    found = differences(kubectl, recorded)
    excused = re.findall(r"^\| `kubectl ([^`]+)`", DEPARTURES.read_text(), re.M)
    assert {command: wrong for command, wrong in found.items() if command not in excused} == {}
    assert sorted(found) == sorted(excused), "an excuse that nobody needs any more"
