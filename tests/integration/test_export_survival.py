"""The five real sinks through kills, cut replies and an outage; `make faults` has the same with 10 000 events."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import pytest

from eventbus.broker.health.export_status import SinkStatus
from eventbus.export.sink_writer import ExportStopped
from eventbus.export.sinks import EventSink, make_sink
from tests.conftest import IN_CI
from tests.functions.partition import Partition
from tests.support.export_survival import survive
from tests.support.export_systems import SYSTEMS, running
from tests.support.exporting import OwnTime, about, close, make_exporter, run_until_idle, status_of
from tests.support.postgres_server import NoPostgres, find_programs
from tests.thin import thin

EVENTS = 150
#: What every run tries.
SOME = thin(SYSTEMS, lambda name: name == "file")


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


@pytest.mark.parametrize("name", SOME)
def test_ten_minutes_without_the_system_bury_nothing_and_then_all_is_written(
    name: str, embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    needs(name)
    partition, time = Partition(embedded_url, prefix, burst=1_000), OwnTime()
    with running(name, tmp_path, events=EVENTS) as system, closing(partition):

        def opened() -> EventSink:
            return make_sink(system.url, dict(system.env), name="tested")

        def export(sink: EventSink, *, until_s: float = float("inf")) -> SinkStatus:
            """Export as a worker of its own does, until there is nothing left to do or it is told to stop."""
            time.end_s = until_s
            exporter = make_exporter(partition.bus, sink, time)
            with suppress(ExportStopped):
                assert exporter.acquire()
                run_until_idle(exporter)
            close(exporter)
            sink.close()
            return status_of(partition.bus, "tested")

        assert export(opened()).dead == 0
        partition.record(*[about(number) for number in range(10)])
        sink = opened()
        system.stop()
        status = export(sink, until_s=time.now_s + 600)
        assert (status.dead, status.paused_since_ms > 0, time.now_s) == (0, True, time.end_s)
        system.start()
        assert export(opened()).dead == 0
        assert sorted(system.held().values()) == [1] * 10


def needs(name: str) -> None:
    """Skip, or in CI fail, where the system cannot be had."""
    try:
        if name == "postgres":
            find_programs()
    except NoPostgres as error:
        if IN_CI:
            pytest.fail(f"{error}; in CI that is a failure", pytrace=False)
        pytest.skip(str(error))
