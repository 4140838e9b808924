"""What messages between ranks usually cost, by algorithm, size and link."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators.operator import Collective
from calc.timing import network
from calc.timing.efficiency import effect_files
from calc.timing.network import Link

FABRIC = Link("NVLink 4", 450e9, reduces_in_switch=True)
PCIE = Link("PCIe", 32e9, kind="pcie")
NETWORK = Link("network", 50e9, kind="network", local_ranks=8, local_bandwidth=450e9)
LINKS = (FABRIC, Link("NVLink 3", 300e9), Link("bridge", 300e9, kind="bridge"), PCIE, NETWORK)
sizes = st.integers(1, 1 << 34)


@given(sizes, st.sampled_from([2, 3, 4, 8, 16]), st.sampled_from(LINKS), st.booleans())
def test_no_algorithm_beats_the_floor(size, ranks, wires, direct):
    message = Collective("all-reduce", ranks, size)
    price = network.cost(message, wires, direct_kernels=direct)
    assert price.bytes_s * (1 + 1e-12) >= network.transfer_s(message, wires) >= network.floor_s(message, wires)
    assert price.usual_s > network.floor_s(message, wires)


@given(sizes, st.sampled_from([2, 4, 8]), st.floats(1, 100), st.booleans())
def test_a_faster_link_is_never_slower(size, ranks, factor, direct):
    message = Collective("all-reduce", ranks, size)
    seconds = [network.cost(message, Link("x", 1e9 * f), direct_kernels=direct).usual_s for f in (1, factor)]
    assert seconds[1] <= seconds[0] * (1 + 1e-12)


def test_small_messages_go_to_one_shot_kernels_medium_ones_to_two_shot_large_ones_to_the_library():
    stages = []
    for size in (16 << 10, 1 << 20, 64 << 20):
        price = network.cost(Collective("all-reduce", 8, size), FABRIC, direct_kernels=True)
        stages.append((price.direct, round(price.latency_s * 1e6)))
    assert stages == [(1, 1), (1, 2), (0, 4)]
    assert network.cost(Collective("all-reduce", 8, 1024), FABRIC).direct == 0
    assert network.cost(Collective("all-reduce", 8, 1024), PCIE, direct_kernels=True).direct == 0


def test_a_small_all_reduce_in_an_engine_takes_microseconds_a_large_one_its_bytes():
    small = network.cost(Collective("all-reduce", 8, 16 << 10), FABRIC, direct_kernels=True).usual_s
    assert 4e-6 < small < 12e-6
    large = Collective("all-reduce", 8, 1 << 30)
    assert network.cost(large, FABRIC).usual_s == pytest.approx(1.2 * network.transfer_s(large, FABRIC), rel=0.15)


def test_arrays_of_messages_equal_single_ones():
    messages = np.array([1, 1 << 18, 1 << 20, 1 << 24, 1 << 30])
    for direct in (False, True):
        many = network.cost(Collective("all-reduce", 8, messages), FABRIC, direct_kernels=direct).usual_s
        for size, seconds in zip(messages, many, strict=True):
            one = network.cost(Collective("all-reduce", 8, int(size)), FABRIC, direct_kernels=direct).usual_s
            assert seconds == pytest.approx(one, rel=1e-12)


def test_over_a_network_groups_sum_inside_first():
    """Sixteen ranks on two hosts of eight: twice 7/8 of the message inside, 1/8 of it across."""
    message = Collective("all-reduce", 16, 1 << 30)
    inside, across = 2 * 7 / 8 * (1 << 30) / 450e9, 2 * 1 / 2 * (1 << 30) / 8 / 50e9
    assert network.transfer_s(message, NETWORK) == pytest.approx(inside + across)


def test_the_usual_costs_are_those_of_the_fitted_tables():
    """The constants that steps are priced with agree with the fit of the all-reduce tables."""
    terms = effect_files()["shared"].terms

    def fitted(term, kind=""):
        effect = terms[term].levels["link"].effects.get(kind, (0.0,))[0] if kind else 0.0
        return math.exp(terms[term].base[0] + effect)

    assert fitted("allreduce.latency") == pytest.approx(network.USUAL_STAGE, rel=0.2)
    for kind in ("fabric", "bridge", "pcie"):
        assert fitted("allreduce.bytes", kind) == pytest.approx(network.USUAL_BYTES[kind], rel=0.2)
    assert fitted("allreduce.fill", "fabric") == pytest.approx(network.USUAL_FILL, rel=0.5)
    assert fitted("direct.latency") == pytest.approx(network.USUAL_DIRECT, rel=0.2)
    assert fitted("direct.bytes") == pytest.approx(network.USUAL_DIRECT_BYTES, rel=0.2)


# --- experts, pipelines, overlap ------------------------------------------------------------------------------------------------


def _brute(num_experts, per_token, ranks):
    held = num_experts // ranks
    chosen = list(itertools.combinations(range(num_experts), per_token))
    return sum(len({e // held for e in each}) for each in chosen) / len(chosen)


@pytest.mark.parametrize(("num_experts", "per_token", "ranks"), [(8, 2, 4), (8, 2, 8), (12, 4, 3), (6, 6, 3), (4, 1, 4)])
def test_destinations_are_the_mean_over_all_choices(num_experts, per_token, ranks):
    assert network.destinations(num_experts, per_token, ranks) == pytest.approx(_brute(num_experts, per_token, ranks))


def test_an_exchange_sends_all_copies_but_those_that_stay():
    copies = network.destinations(256, 8, 8)
    assert network.all_to_all_bytes(128, copies, 8, 7168) == pytest.approx(128 * copies * 7 / 8 * 7168)
    assert network.all_to_all_bytes(128, 1.0, 1, 7168) == 0


def test_the_fullest_rank_carries_more_the_fewer_tokens_there_are():
    loads = [network.imbalance(8, n) for n in (1, 10, 1000, 1e6)]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] <= 8
    assert loads[-1] == pytest.approx(1, abs=0.01)
    assert network.imbalance(1, 10) == 1


def test_imbalance_is_about_the_mean_of_random_draws():
    rng = np.random.default_rng(0)
    for mean in (64, 1000):
        loads = rng.multinomial(8 * mean, [1 / 8] * 8, size=400).max(axis=1).mean() / mean
        assert network.imbalance(8, mean) == pytest.approx(loads, rel=0.1)


@pytest.mark.parametrize(("micro_batches", "stages"), [(1, 1), (1, 4), (4, 4), (32, 8)])
def test_pipeline_waits(micro_batches, stages):
    """Stages x (micro-batches + stages - 1) slots, of which stages x micro-batches are used."""
    used = micro_batches / (micro_batches + stages - 1)
    assert network.bubble(micro_batches, stages) == pytest.approx(1 - used)
    assert network.pipeline_speedup(micro_batches, stages) == pytest.approx(stages * used)


def test_overlap_hides_a_share_of_the_shorter():
    assert network.overlapped_s(3.0, 2.0, 0.0) == 5.0
    assert network.overlapped_s(3.0, 2.0, 1.0) == 3.0
    assert network.overlapped_s(2.0, 3.0, 0.5) == 4.0
