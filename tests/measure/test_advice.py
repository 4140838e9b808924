"""Every warning says what was seen, why, and the option that helps, or something else where that option is already on."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from calc.measure import advice
from calc.measure.records import Round
from calc.measure.runner import Setup

WALL = Setup("wall", "eager", "cold", 3, 1, "planted")
GRAPH = Setup("graph", "graph", "cold", 3, 1, "planted")


def rounds(samples: list[float], count: int = 3, stop: str = "precise", clocks: tuple[float, ...] = ()) -> list[Round]:
    padded = clocks or (None,) * count
    return [Round(i, tuple(samples), stop, sm_clock_hz=padded[i]) for i in range(count)]


def told(found: list[Round], *, setup: Setup = WALL, narrowed: bool = False, time_s: float = 1.0) -> dict[str, str]:
    samples = [r.samples_s for r in found]
    return {n.code: n.message for n in advice.of_samples(samples, found, None, time_s, setup=setup, narrowed=narrowed)}


def spread(share: float) -> list[float]:
    """41 evenly spread samples around 1 whose quartiles lie ``share`` apart."""
    return [1 + share * (i - 20) / 20 for i in range(41)]


@pytest.mark.parametrize(("share", "code"), [(0.09, None), (0.15, "W_NOISY"), (0.30, "W_UNRELIABLE")])
def test_spread(share, code):
    assert set(told(rounds(spread(share)))) == ({code} if code else set())


@pytest.mark.parametrize(
    ("stop", "narrowed", "words"),
    [
        ("budget", False, "larger --budget gives it more samples, and so does --only"),
        ("budget", True, "larger --budget gives it more samples"),
        ("flat", False, "measure it alone with --only"),
        ("flat", True, "no option helps"),
    ],
)
def test_the_option_that_helps(stop, narrowed, words):
    message = told(rounds(spread(0.15), stop=stop), narrowed=narrowed)["W_NOISY"]
    assert "half of the samples spread over 15" in message
    assert words in message
    assert ("--only" in message) == (not narrowed)


def test_outliers_are_counted_and_explained():
    random = Random(1)
    samples = [1 + random.gauss(0, 0.001) for _ in range(90)] + [3.0] * 10
    message = told(rounds(samples))["W_OUTLIERS"]
    assert message.startswith("30 of 300 samples")
    assert "W_OUTLIERS" not in told(rounds(samples[:94]))
    assert "W_OUTLIERS" not in told(rounds([1.0, 1.001, 9.0]))  # too few to tell


def test_a_slow_first_sample():
    samples = [1.5] + [1.0, 1.001, 0.999] * 7
    assert "larger --budget or --only" in told(rounds(samples, stop="budget"))["W_SLOW_FIRST"]
    assert "--only" not in told(rounds(samples, stop="budget"), narrowed=True)["W_SLOW_FIRST"]
    assert "the warm-up was whole" in told(rounds(samples))["W_SLOW_FIRST"]
    assert "W_SLOW_FIRST" not in told(rounds([1.1, *samples[1:]]))


def test_two_groups_show_both():
    samples = [1.0, 1.2] * 15
    message = told(rounds(samples))["W_BIMODAL"]
    assert "at 1.00 s and 1.20 s" in message
    assert "two algorithms, two clocks or a neighbour" in message
    assert "nvidia-ml-py" not in message  # a CPU's clock is no matter of that package
    assert "nvidia-ml-py" in told(rounds(samples), setup=GRAPH)["W_BIMODAL"]
    seen = rounds(samples, clocks=(1.98e9, 1.41e9, 1.98e9))
    assert "two clocks, 1.41 GHz and 1.98 GHz" in told(seen, setup=GRAPH)["W_BIMODAL"]
    steady = rounds(samples, clocks=(1.98e9,) * 3)
    assert "two algorithms or a neighbour" in told(steady, setup=GRAPH)["W_BIMODAL"]


def test_rounds_that_differ():
    found = rounds([1.0] * 20)
    notices = advice.of_samples([r.samples_s for r in found], found, (0.6, 1.6), 1.0, setup=WALL, narrowed=False)
    assert [n.code for n in notices] == ["W_ROUNDS_DIFFER"]
    assert "600 ms to 1.60 s" in notices[0].message


def device(found: list[Round], kept: int, *, lost: dict[str, int] | None = None, spoilt: bool = False) -> dict[str, str]:
    return {n.code: n.message for n in advice.of_the_device(found, kept, Counter(lost or {}), spoilt=spoilt)}


def test_dropped_samples():
    assert device([Round(0, (1.0,) * 90, "precise", dropped={"hw_thermal": 10})], 90) == {}
    found = device([Round(0, (1.0,) * 90, "precise", dropped={"hw_thermal": 11, "sw_thermal": 1})], 90)
    assert found["W_DROPPED"].startswith("12 of 102 samples")
    assert "hw_thermal, sw_thermal" in found["W_DROPPED"]
    assert "W_DROPPED" in device([Round(0, (1.0,) * 20, "precise")], 20, lost={"hw_power_brake": 30})


def test_neighbours():
    assert "W_CONTENDED" in device([Round(0, (), "time", preempted_s=(1.0,) * 9)], 9, spoilt=True)
    assert "W_PREEMPTED" in device([Round(0, (1.0,) * 4, "time", preempted_s=(1.0,) * 9)], 4)
    assert device([Round(0, (1.0,) * 9, "time", preempted_s=(1.0,) * 4)], 9) == {}
