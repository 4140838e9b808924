"""Lengths as numbers, percentiles and traces; prefix hits in whole blocks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.serving.load.traffic import CLASSES, Request, quantile, spread, trace, uniform


def test_uniform_requests_are_one_class():
    traffic = uniform(1000, 101, 300)
    assert (traffic.mean_new_tokens, traffic.mean_output, traffic.mean_context) == (700, 101, 1050)
    assert (traffic.prompt_cv2, traffic.longest, traffic.in_flight) == (0, 1101, [(1.0, 1050)])


def test_the_first_token_is_no_decode_step():
    assert (uniform(8, 1).mean_decode_steps, uniform(8, 5).mean_decode_steps) == (0, 4)
    assert spread({0.5: 10, 0.95: 20}, {0.5: 1, 0.95: 1}).mean_context > 0


@given(length=st.integers(1, 10**5), output=st.integers(1, 10**4), share=st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_the_longest_is_of_each_list_alone(length, output, share):
    """However a constant length is written, and whatever the other list says."""
    constant = spread({1.0: length}, {1.0: output}).longest
    assert constant == length + output
    assert spread({0.5: length, 0.95: length}, {1.0: output}).longest == constant
    assert spread({0.5: length, 0.95: 2 * length}, {share: output}).longest - output == (
        spread({0.5: length, 0.95: 2 * length}, {1.0: 1}).longest - 1
    )


def test_the_last_prompt_token_is_never_cached():
    assert Request(8, 4, 100).new_tokens == 1


@given(length=st.integers(2, 5000), cached=st.integers(0, 6000), block=st.sampled_from([1, 16, 64]))
def test_hits_are_whole_blocks(length, cached, block):
    request = uniform(length, 10, cached).cached_in_blocks(block).tail
    assert request.cached_len % block == 0
    assert 0 <= min(cached, length - 1) - request.cached_len < block


def test_two_percentiles_make_a_log_normal():
    lengths = {0.5: 1000, 0.95: 8000}
    sigma = math.log(8) / 1.6448536269514722
    assert quantile(lengths, 0.5) == 1000
    assert quantile(lengths, 0.95) == 8000
    assert quantile(lengths, 0.8413447460685429) == pytest.approx(1000 * math.exp(sigma), abs=1)
    assert quantile({0.5: 1000}, 0.99) == 1000
    assert quantile(lengths | {1.0: 9000}, 0.999) == 9000


@given(
    points=st.dictionaries(st.sampled_from([0.1, 0.5, 0.9, 0.95, 0.99]), st.integers(1, 10**5), min_size=1),
    shares=st.lists(st.floats(0.01, 0.99), min_size=2),
)
def test_quantiles_grow_with_the_share(points, shares):
    ordered = dict(zip(sorted(points), sorted(points.values()), strict=True))
    found = [quantile(ordered, s) for s in sorted(shares)]
    assert found == sorted(found)


def test_spread_holds_the_tail_and_the_longest():
    traffic = spread({0.5: 1000, 0.95: 8000}, {0.5: 200, 0.95: 400}, cached_len=64)
    assert len(traffic.requests) == CLASSES
    assert (traffic.tail.input_len, traffic.tail.output_len) == (8000, 400)
    assert traffic.longest >= 8400
    assert sum(share for share, _ in traffic.in_flight) == pytest.approx(1)
    products = sum(r.input_len * r.output_len for r in traffic.requests) / CLASSES
    assert products == pytest.approx(traffic.mean_input * traffic.mean_output, rel=0.12)  # independent, but for the coarse tails


def test_a_trace_gives_lengths_rate_and_unevenness():
    rows = [Request(100 * i, 10 + i) for i in range(1, 101)]
    steady = trace(rows, [float(i) for i in range(100)])
    assert steady.request_rate == 1.0
    assert steady.arrival_cv2 == 0.0
    assert steady.mean_input == pytest.approx(5050, rel=0.01)
    assert steady.tail.input_len == 9600
    assert steady.longest == 10110
    bursts = trace(rows, [float(i // 10) for i in range(100)])
    assert bursts.arrival_cv2 > 5
    assert trace(rows).request_rate is None
    with pytest.raises(UsageError, match="one moment"):
        trace(rows, [5.0] * 100)
