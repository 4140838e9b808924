from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.measure.sampling import StopRule
from calc.measure.statistics import Running, log_interval, median, median_interval, outliers, quantile, t95, two_clusters

times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)


@given(times, st.randoms(use_true_random=False))
def test_order_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert median(shuffled) == median(values)
    assert median_interval(sorted(shuffled)) == median_interval(sorted(values))
    assert outliers(shuffled) == outliers(values)
    assert two_clusters(shuffled) == two_clusters(values)
    a, b = log_interval(values), log_interval(shuffled)
    assert a[0] == pytest.approx(b[0])
    assert (a[1] is None) == (b[1] is None)


@given(times, st.sampled_from([2.0**-20, 2.0**10]))
def test_everything_scales_with_the_unit(values, unit):
    scaled = [v * unit for v in values]
    assert median(scaled) == pytest.approx(median(values) * unit)
    assert outliers(scaled) == outliers(values)
    centre, interval = log_interval(values)
    other, stretched = log_interval(scaled)
    assert other == pytest.approx(centre * unit)
    if interval and stretched:
        assert stretched == pytest.approx((interval[0] * unit, interval[1] * unit))


@given(times)
def test_intervals_contain_the_value(values):
    ordered = sorted(values)
    assert ordered[0] <= quantile(ordered, 0.5) <= ordered[-1]
    inside = median_interval(ordered)
    assert (inside is None) == (len(values) < 6)
    if inside:
        assert inside[0] <= median(values) <= inside[1]
    centre, interval = log_interval(values)
    assert (interval is None) == (len(values) < 3)
    if interval:
        assert interval[0] <= centre <= interval[1]


def test_quantiles_of_students_t():
    # Tables: 12.71, 2.776, 2.042, 2.021 (40), 1.984 (100).
    for degrees, value in ((1, 12.706), (4, 2.776), (30, 2.042), (40, 2.021), (100, 1.984)):
        assert t95(degrees) == pytest.approx(value, rel=2e-3)
    with pytest.raises(ValueError, match="at least two"):
        t95(0)


@pytest.mark.parametrize("rounds", [3, 5, 7])
def test_the_interval_covers_the_truth(rounds):
    """1 % between rounds, 0.5 % within: the interval over round medians holds the truth about 95 times in 100."""
    random = Random(3)
    held = 0
    for _ in range(400):
        medians = []
        for _ in range(rounds):
            level = random.gauss(0, 0.01)
            medians.append(median([math.exp(level + random.gauss(0, 0.005)) for _ in range(20)]))
        low, high = log_interval(medians)[1] or (0, 0)
        held += low <= 1.0 <= high
    assert 0.90 <= held / 400 <= 0.99


def test_clusters_need_a_gap_and_members_on_both_sides():
    assert two_clusters([1.0] * 10 + [1.2] * 10) == (1.0, 1.2)
    assert two_clusters([1.0] * 19 + [1.2]) is None
    assert two_clusters([1.0 + i / 1000 for i in range(30)]) is None


def test_outliers_are_counted():
    assert outliers([1.0, 1.01, 0.99, 1.02, 0.98, 5.0]) == 1
    assert outliers([1.0] * 5) == 0


def reason(samples: list[float], elapsed: float = 0.5, limit: float = 2.0) -> str | None:
    running = Running()
    running.add(samples)
    return StopRule().reason(running, sum(samples), elapsed, limit)


def test_stop_rule():
    assert reason([0.01] * 20) == "precise"
    assert reason([0.01] * 19) is None
    assert reason([0.001] * 20) is None  # less than 100 ms of timed work
    assert reason([0.01, 0.02] * 20) is None
    assert reason([0.01], elapsed=2.0) == "time"
    assert reason([0.01], elapsed=0.6, limit=0.5) == "budget"
    running = Running()
    for _ in range(600):
        running.add([0.01, 0.03])
    assert StopRule().reason(running, 10, 1, 2) == "flat"
