"""How often a heartbeat gives a sign, and how long it may be silent."""

from __future__ import annotations

import pytest

from eventbus.agent.node.heartbeat import check_name, pace_of
from eventbus.errors import ConfigError


@pytest.mark.parametrize(
    ("every_s", "for_s", "wanted"),
    [
        (None, None, (10.0, 40)),
        (60.0, None, (60.0, 240)),
        (None, 90_000.0, (10.0, 90_000)),
        (None, 8.0, (2.0, 8)),
        (1.0, 8.0, (1.0, 8)),
        (0.1, None, (0.1, 1)),
    ],
)
def test_what_is_not_given_fits_what_is(every_s: float | None, for_s: float | None, wanted: tuple[float, int]) -> None:
    assert pace_of(every_s, for_s) == wanted


@pytest.mark.parametrize(("every_s", "for_s"), [(10.0, 10.0), (0.0, None), (-1.0, 5.0), (1.0, 2.0**31)])
def test_signs_that_cannot_come_in_time_are_refused(every_s: float, for_s: float | None) -> None:
    with pytest.raises(ConfigError, match="does not come within"):
        pace_of(every_s, for_s)


@pytest.mark.parametrize("name", ["", "Batch-7", "a b", "a/b", "-a", "x" * 254])
def test_a_name_that_no_node_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no name of a node"):
        check_name(name)
