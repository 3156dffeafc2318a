"""client-go itself: its informer misses nothing when its API worker is killed, its recorder's repeat counts."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Front
from tests.clients.living import lives_through_a_killed_worker
from tests.clients.tools import CLIENT_GO


@pytest.mark.skipif(not CLIENT_GO.exists(), reason="make test-go compiles it")
def test_an_informer_and_a_recorder_of_client_go_miss_nothing(front: Front) -> None:
    lives_through_a_killed_worker(front, [str(CLIENT_GO)])
