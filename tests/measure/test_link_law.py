from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.measure.fitting.link_law import pieces

SIZES = [1024 * 4**i for i in range(11)]


@given(st.floats(1e-6, 1e-3), st.floats(1e8, 1e12))
def test_a_planted_line_comes_back(latency, bandwidth):
    (found,) = pieces([(x, latency + x / bandwidth) for x in SIZES])
    assert (found.from_bytes, found.to_bytes) == (SIZES[0], SIZES[-1])
    assert found.latency_s + 1e6 / found.bandwidth_bytes_per_s == pytest.approx(latency + 1e6 / bandwidth, rel=1e-6)


def test_two_protocols_are_two_lines():
    random = Random(2)
    times = [(5e-6 + x / 2e9 if x < 100_000 else 40e-6 + x / 100e9) * math.exp(random.gauss(0, 0.01)) for x in SIZES]
    small, large = pieces(list(zip(SIZES, times, strict=True)))
    assert small.to_bytes < 100_000 < large.from_bytes
    assert small.latency_s == pytest.approx(5e-6, rel=0.05)
    assert large.bandwidth_bytes_per_s == pytest.approx(100e9, rel=0.05)


def test_noise_alone_is_no_second_protocol():
    split = 0
    for seed in range(50):
        random = Random(seed)
        points = [(x, (20e-6 + x / 10e9) * math.exp(random.gauss(0, 0.03))) for x in SIZES]
        split += len(pieces(points)) > 1
    assert split <= 10


@given(st.lists(st.tuples(st.floats(1, 1e10), st.floats(1e-7, 10)), max_size=12), st.randoms(use_true_random=False))
def test_whatever_comes(points, random):
    found = pieces(points)
    assert (found == []) == (len(points) < 3)
    for piece in found:
        assert piece.latency_s >= 0
        assert piece.bandwidth_bytes_per_s is None or piece.bandwidth_bytes_per_s > 0
    random.shuffle(points)
    assert pieces(points) == found
