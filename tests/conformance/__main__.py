"""`python -m tests.conformance [--driver model|redis] [--batches] [DIR…]`: exit 0, or 1 if any scenario failed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conformance.driver import Driver
from tests.conformance.drivers import NAMES, make_driver
from tests.conformance.files import MalformedScenario, read_scenario
from tests.conformance.runner import InBatches, Mode, one_by_one, run
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import own_scenarios


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* name and print one line per scenario that differs, then the totals.

    Returns: 0: all passed.  1: some failed.  Bad usage leaves through SystemExit(2).
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    scenarios = [*_own()] if not given.dirs else [scenario for path in given.dirs for scenario in _found(parser, path)]
    try:
        driver = make_driver(given.driver)
    except ImportError as error:
        parser.error(f"the driver {given.driver!r} cannot be loaded: {error}")
    try:
        failed = _run_all(driver, scenarios, InBatches(given.seed) if given.batches else one_by_one)
    finally:
        driver.stop()
    print(f"{len(scenarios) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Drive scenarios through a correlator and compare what it decides.",
    )
    parser.add_argument("dirs", metavar="DIR", nargs="*", type=Path, help="directories of scenarios (default: our own)")
    parser.add_argument("--driver", choices=NAMES, default="redis", help="what decides (default: redis)")
    parser.add_argument("--batches", action="store_true", help="several events a call; compare the final state")
    parser.add_argument("--seed", type=int, default=0, help="where --batches puts its borders (default: 0)")
    return parser


def _run_all(driver: Driver, scenarios: Sequence[tuple[str, Scenario | MalformedScenario]], mode: Mode) -> int:
    failed = 0
    for name, scenario in scenarios:
        if isinstance(scenario, MalformedScenario):
            difference: str | None = f"malformed: {scenario}"
        else:
            difference = run(driver, scenario, mode)
        if difference is not None:
            failed += 1
            print(f"{name}: {difference}", flush=True)
    return failed


def _own() -> Iterator[tuple[str, Scenario]]:
    for scenario in own_scenarios():
        yield scenario.name, scenario


def _found(parser: argparse.ArgumentParser, directory: Path) -> Iterator[tuple[str, Scenario | MalformedScenario]]:
    if not directory.is_dir():
        parser.error(f"{directory} is not a directory")
    paths = sorted(directory.glob("*.in.jsonl"))
    if not paths:
        parser.error(f"{directory} holds no *.in.jsonl")
    for path in paths:
        try:
            yield path.name.removesuffix(".in.jsonl"), read_scenario(path)
        except MalformedScenario as error:
            yield path.name.removesuffix(".in.jsonl"), error


if __name__ == "__main__":
    sys.exit(main())
