"""The performance benchmarks run, and compare what they say they compare. Their bars are not asserted here: times need a quiet machine."""

import pytest

from benchmarks import evaluation, startup


def test_startup_times_every_process_that_a_bar_names() -> None:
    medians = startup.measure(runs=1)
    for name, baseline, _ in startup.BARS:
        assert medians[name] > 0
        assert medians[baseline] > 0


def test_grid_agrees_with_single_steps_at_its_corners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "SIDE", 40)
    seconds, points, figures = evaluation.grid()
    assert points == 1600
    assert seconds > 0
    assert figures["slowest_s"] > 0


def test_one_estimate_is_timed() -> None:
    assert all(seconds > 0 for seconds in evaluation.reading(every=50, repeats=1))
    estimate_s, settle_s = evaluation.one_estimate(rounds=1, repeats=3)
    assert 0 < estimate_s < 1
    assert 0 < settle_s < 1
