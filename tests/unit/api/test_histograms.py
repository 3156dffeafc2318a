"""How things are distributed."""

from __future__ import annotations

from eventbus.api.histograms import Histogram


def test_a_value_is_counted_below_each_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 1, 2, 10, 11):
        histogram.note(value)
    assert list(histogram.lines("x", 'a="b"')) == [
        'x_bucket{a="b",le="1"} 2',
        'x_bucket{a="b",le="10"} 4',
        'x_bucket{a="b",le="+Inf"} 5',
        'x_count{a="b"} 5',
        'x_sum{a="b"} 24.500000',
    ]
