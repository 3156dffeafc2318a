"""All sinks through kills, cut replies and an outage; `make faults` has the same with 10 000 events."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import IN_CI
from tests.support.export_survival import survive
from tests.support.export_systems import SYSTEMS, running
from tests.support.nats_server import NoNats, find_program
from tests.support.postgres_server import NoPostgres, find_programs
from tests.thin import thin

EVENTS = 150
#: What every run tries.
SOME = thin(SYSTEMS, lambda name: name == "otlp")


@pytest.mark.parametrize("name", SOME)
def test_every_event_ends_in_the_sink_with_its_final_count(
    name: str, embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    needs(name)
    with running(name, tmp_path, events=EVENTS) as system:
        survived = survive(
            system, url=embedded_url, prefix=prefix, folder=tmp_path, events=EVENTS, down_s=0, within_s=90
        )
    survived.assert_good()


def needs(name: str) -> None:
    """Skip, or in CI fail, where the system cannot be had."""
    try:
        if name == "postgres":
            find_programs()
        if name == "nats":
            find_program()
    except (NoPostgres, NoNats) as error:
        if IN_CI:
            pytest.fail(f"{error}; in CI that is a failure", pytrace=False)
        pytest.skip(str(error))
