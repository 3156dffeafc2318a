"""Other people's clients list, write and watch, and miss nothing when the API worker that they talk to is killed."""

from __future__ import annotations

import shutil

import pytest

from tests.clients.conftest import Front
from tests.clients.living import lives_through_a_killed_worker
from tests.clients.tools import NODE_MODULES, PROGRAMS, PYTHON

NODE = shutil.which("node")
PYTHON_CLIENTS = ("kubernetes_watch", "kubernetes_asyncio_watch", "lightkube_watch", "kr8s_watch", "kopf_watch")


@pytest.mark.skipif(not PYTHON.exists(), reason="make test-clients makes their environment")
@pytest.mark.parametrize("program", PYTHON_CLIENTS)
def test_a_python_client_misses_nothing(front: Front, program: str) -> None:
    lives_through_a_killed_worker(front, [str(PYTHON), str(PROGRAMS / f"{program}.py")])


@pytest.mark.skipif(not (NODE and NODE_MODULES.exists()), reason="there is no node, or no npm")
def test_an_informer_of_client_node_misses_nothing(front: Front) -> None:
    lives_through_a_killed_worker(front, [str(NODE), str(PROGRAMS / "client_node.js"), str(NODE_MODULES)])
