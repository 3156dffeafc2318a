"""Reads Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(text: str, name: str) -> Iterator[Sample]:
    """Yield the samples of *name*."""
    for family in text_string_to_metric_families(text):
        yield from (sample for sample in family.samples if sample.name == name)


def value(text: str, name: str, **labels: str) -> float:
    """Return the sum of the samples of *name* that have *labels*; 0 if there are none."""
    return sum(sample.value for sample in samples(text, name) if labels.items() <= sample.labels.items())
