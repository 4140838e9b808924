"""Collectives: bytes on the wire, and a floor that no algorithm beats."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators import work
from calc.operators.operator import Collective
from calc.serving.phase import evaluate
from calc.timing import network
from calc.timing.network import Link
from tests.support.profiles import attention, decoder, deployment, device, llama

ranks = st.integers(2, 64)
message = st.integers(1, 1 << 40)
bandwidth = st.floats(1e6, 1e13)

#: Seconds of every all-reduce algorithm without latency, for M / bandwidth = 1.
ALL_REDUCE = {
    "ring": lambda n: 2 * (n - 1) / n,
    "two-shot": lambda n: 2 * (n - 1) / n,
    "one-shot": lambda n: n - 1,
    "tree": lambda n: 2.0,
}


@given(ranks, message, bandwidth)
def test_all_reduce_floor_is_not_above_any_algorithm(n, size, rate):
    floor = network.floor_s(Collective("all-reduce", n, size), Link("wire", rate))
    fastest = min(law(n) for law in ALL_REDUCE.values())
    assert floor == pytest.approx(fastest * size / rate)


@given(ranks, message, bandwidth)
def test_all_reduce_in_the_switch_moves_the_message_about_once(n, size, rate):
    floor = network.floor_s(Collective("all-reduce", n, size), Link("wire", rate, reduces_in_switch=True))
    fastest = min(*(law(n) for law in ALL_REDUCE.values()), 1 + 1 / n)
    assert floor == pytest.approx(fastest * size / rate)


@given(st.sampled_from(["all-gather", "reduce-scatter", "all-to-all"]), ranks, message, bandwidth)
def test_gathers_scatters_and_exchanges_move_all_but_the_own_share(kind, n, size, rate):
    collective = Collective(kind, n, size)
    assert collective.bytes_per_rank == pytest.approx((n - 1) / n * size)
    assert network.floor_s(collective, Link("wire", rate)) == pytest.approx((n - 1) / n * size / rate)


@given(message, bandwidth)
def test_a_send_moves_the_message_once(size, rate):
    assert network.floor_s(Collective("send", 2, size), Link("wire", rate)) == pytest.approx(size / rate)


@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"]), ranks, message, bandwidth, st.booleans()
)
def test_floor_is_never_above_the_transfer(kind, n, size, rate, in_switch):
    collective, wires = Collective(kind, n, size), Link("wire", rate, in_switch)
    assert network.floor_s(collective, wires) <= network.transfer_s(collective, wires) * (1 + 1e-12)


def test_no_collective_costs_nothing():
    assert network.floor_s(None, Link("wire", 1e9)) == 0
    assert network.transfer_s(None, Link("wire", 1e9)) == 0


# --- which link -----------------------------------------------------------------------------------------------------------------


def test_ranks_in_the_scale_up_domain_use_its_rate_in_one_direction():
    wires = {"scale_up_gb_per_s_per_direction": 450.0, "scale_up_gb_per_s_both_directions": 900.0, "scale_up_domain_size": 8}
    assert network.link(device(links=wires), 8).bandwidth == 450e9


def test_ranks_beyond_the_domain_use_the_network():
    wires = {
        "scale_up_gb_per_s_per_direction": 450.0,
        "scale_up_domain_size": 8,
        "pcie_gb_per_s_per_direction": 64.0,
        "scale_out_gb_per_s_per_direction_per_device": 50.0,
    }
    assert network.link(device(links=wires), 16).bandwidth == 50e9


def test_devices_without_a_fabric_talk_over_pcie():
    assert network.link(device(links={"pcie_gb_per_s_per_direction": 32.0}), 4).bandwidth == 32e9


def test_one_rank_has_no_link():
    assert network.link(device(), 1) is None


def test_without_any_link_a_split_deployment_has_no_times_but_says_so():
    model = decoder(hidden=512, layers=2, mixers=attention(8, 8, 64), width=1024, vocab=None)
    found = deployment(model, device(links={}), tensor_parallel_size=2)
    assert evaluate(found, work.decode(1, 64)).time_s.floor is None
    assert found.warnings


def test_tensor_parallel_latency_counts_per_message():
    """Two all-reduces a layer: at batch 1 the messages are tiny, yet more ranks must not look free."""
    found = deployment(llama("8b"), device(), tensor_parallel_size=8)
    timed = evaluate(found, work.decode(1, 64)).timed
    messages = [i for i in timed.operators if i.operator.collective]
    assert messages
    for item in messages:
        assert item.time_s.expected > 1e-6, "a message takes microseconds however small it is"
        assert item.time_s.floor <= item.time_s.low <= item.time_s.expected <= item.time_s.high < math.inf
