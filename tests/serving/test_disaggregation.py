"""Caches on the move: transfer hidden behind prefill, machines in balance, host memory against recomputation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calc
from calc.serving import disaggregation, offload
from calc.serving.handover import handover, restore
from calc.serving.request import Workload
from tests.support.profiles import deployment, device, llama

SECONDS = st.floats(1e-4, 1e3)


@given(transfer=SECONDS, prefill=SECONDS, layers=st.integers(1, 128))
def test_what_shows_of_a_transfer_is_what_a_pipeline_of_layers_leaves(transfer, prefill, layers):
    sent = 0.0
    for layer in range(1, layers + 1):
        sent = max(sent, layer * prefill / layers) + transfer / layers
    assert disaggregation.exposed_s(transfer, prefill, layers) == pytest.approx(sent - prefill, rel=1e-6, abs=1e-6 * sent)


@given(prefill=SECONDS, step=SECONDS, batch=st.integers(1, 512), steps=st.integers(1, 4096))
def test_at_the_ratio_neither_side_waits(prefill, step, batch, steps):
    ratio = disaggregation.ratio(prefill, step, batch, steps)
    rate = disaggregation.request_rate(ratio, 1, prefill, step, batch, steps)
    assert rate == pytest.approx(ratio / prefill)
    assert rate == pytest.approx(batch / (steps * step))
    assert disaggregation.request_rate(2 * ratio, 1, prefill, step, batch, steps) == pytest.approx(rate)


def test_restoring_wins_on_a_link_above_break_even():
    found = restore(calc.deploy("llama-3.1-8b", "h100-sxm5-80gb"), 8192)
    assert found.bytes_per_rank == 8192 * 131_072
    best = 8192 * 131_072 / 63e9  # its PCIe link
    assert (found.restore_s.floor, found.restore_s.low) == pytest.approx((best, best))
    assert (found.restore_s.expected, found.restore_s.high) == pytest.approx((best * 32 / 25, best * 32 / 25))
    at_break_even = found.restore_s.expected * found.bandwidth_bytes_per_s / found.break_even_bytes_per_s
    assert at_break_even == pytest.approx(found.recompute_s.expected)


def test_nothing_is_decoded_of_a_single_token():
    one, two = (handover(calc.deploy("llama-3.1-8b", "h100-sxm5-80gb"), Workload(8, 1024, n)) for n in (1, 2))
    assert (one.prefill_per_decode, one.requests_per_s) == (None, None)
    assert two.prefill_per_decode > 0


def test_streamed_weights_hide_from_the_tokens_whose_products_take_as_long():
    tokens = offload.streaming_pays_tokens(100e12, 50e9)
    weight_bytes = 1e9
    compute_s = 2 * tokens * (weight_bytes / 2) / 100e12
    assert compute_s == pytest.approx(offload.host_stream_s(weight_bytes, 50e9))


def test_layers_on_the_host_take_its_memory_and_the_way_there():
    # 1 GB of layers at dual-channel DDR5-5600, and 4 rows of 8 KB at two boundaries over 25 GB/s
    found = offload.host_layers_s(1e9, 4, 8192, host_bandwidth=89.6e9, link=25e9, boundaries=2)
    assert found == pytest.approx(1e9 / 89.6e9 + 2 * 4 * 8192 / 25e9)


def test_a_device_without_links_answers_the_rest():
    found = handover(deployment(llama("8b"), device(links={})), Workload())
    assert found.transfer is None
    assert found.restore is None
    assert found.prefill_per_decode > 0
