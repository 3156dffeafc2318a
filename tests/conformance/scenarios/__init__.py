"""Our own tables, written from the semantics: every expectation is worked out by hand, none was printed by the code."""

from __future__ import annotations

from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import aggregation, counting, inputs, keys, settings, spam
from tests.conformance.scenarios.table import Table


def own_scenarios() -> list[Scenario]:
    """All of them, in the order of their files."""
    modules = (aggregation, counting, inputs, keys, settings, spam)
    tables: list[Table] = [table for module in modules for table in module.tables()]
    return [table.scenario() for table in tables]
