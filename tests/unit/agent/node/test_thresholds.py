"""Thresholds under which a machine is short of memory or disk."""

from __future__ import annotations

import pytest

from eventbus.agent.node.node_status import parse_thresholds
from eventbus.errors import ConfigError

MIB = 1024 * 1024


def test_a_threshold_is_a_share_or_an_amount_and_the_others_keep_their_defaults() -> None:
    usual = parse_thresholds("")
    assert (usual.memory.least(1000 * MIB), usual.disk.least(1000 * MIB)) == (100 * MIB, 100 * MIB)
    thresholds = parse_thresholds("memory.available<25%, nodefs.available<2Mi")
    assert (thresholds.memory.least(1000 * MIB), thresholds.disk.least(1000 * MIB)) == (250 * MIB, 2 * MIB)
    assert parse_thresholds("memory.available<25%").disk == usual.disk


@pytest.mark.parametrize("text", ["memory<1", "memory.available<many", "memory.available>1Gi", "nodefs.available<101%"])
def test_a_threshold_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--pressure-thresholds"):
        parse_thresholds(text)
