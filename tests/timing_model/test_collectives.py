"""What messages between ranks usually cost, by algorithm, size and link."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators.operator import Collective
from calc.operators.sharding import stage_layers
from calc.operators.token_copies import TokenCopies, destinations
from calc.timing import network, pipeline
from calc.timing.efficiency import effect_files
from calc.timing.network import Link
from calc.timing.overlap import overlapped_s

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


def _brute(num_experts, per_token, ranks, idle=0):
    held = num_experts // ranks
    chosen = list(itertools.combinations(range(num_experts + idle), per_token))
    return sum(len({e // held for e in each if e < num_experts}) for each in chosen) / len(chosen)


@pytest.mark.parametrize(
    ("num_experts", "per_token", "ranks", "idle"),
    [(8, 2, 4, 0), (8, 2, 8, 0), (12, 4, 3, 0), (6, 6, 3, 0), (4, 1, 4, 0), (8, 3, 4, 2), (6, 2, 1, 3)],
)
def test_destinations_are_the_mean_over_all_choices(num_experts, per_token, ranks, idle):
    assert destinations(num_experts, per_token, ranks, idle) == pytest.approx(_brute(num_experts, per_token, ranks, idle))


def _exchange(ranks, *, relayed=False, payload=1e6):
    copies = TokenCopies(256, 8, payload, relayed)
    return Collective("all-to-all", ranks, copies.message_bytes(ranks), copies)


def test_an_exchange_inside_a_host_sends_all_copies_but_those_that_stay():
    message = _exchange(8)
    assert network.transfer_s(message, FABRIC) == pytest.approx(1e6 * destinations(256, 8, 8) * 7 / 8 / 450e9)
    assert network.transfer_s(message, FABRIC) == network.floor_s(message, FABRIC)


def test_copies_that_leave_the_host_go_over_the_network_and_the_others_over_the_fabric():
    inside, across = network.all_to_all_s(_exchange(32), _exchange(32).copies, NETWORK, relayed=False)
    copies = destinations(256, 8, 32)
    assert across == pytest.approx(1e6 * copies * 24 / 32 / 50e9)
    assert inside == pytest.approx(1e6 * copies * 7 / 32 / 450e9)
    assert network.transfer_s(_exchange(32), NETWORK) == inside + across


def test_relayed_copies_cross_the_network_once_a_host():
    inside, across = network.all_to_all_s(_exchange(32), _exchange(32).copies, NETWORK, relayed=True)
    assert across == pytest.approx(1e6 * destinations(256, 8, 4) * 3 / 4 / 50e9)
    assert inside == pytest.approx(1e6 * destinations(256, 8, 32) * 7 / 8 / 450e9)
    assert across < network.all_to_all_s(_exchange(32), _exchange(32).copies, NETWORK, relayed=False)[1]


@given(st.sampled_from([2, 4, 8, 16, 64, 256]), st.sampled_from(LINKS), st.booleans(), st.floats(1, 1e12))
def test_no_exchange_beats_its_floor(ranks, wires, relayed, payload):
    message = _exchange(ranks, relayed=relayed, payload=payload)
    assert network.floor_s(message, wires) <= network.transfer_s(message, wires) * (1 + 1e-12)
    assert network.cost(message, wires).usual_s > network.floor_s(message, wires)


@given(st.sampled_from([2, 8, 16, 64]), st.booleans(), st.floats(1, 100), st.floats(1, 100))
def test_a_faster_network_or_fabric_never_slows_an_exchange(ranks, relayed, faster, faster_inside):
    better = Link("network", 50e9 * faster, kind="network", local_ranks=8, local_bandwidth=450e9 * faster_inside)
    message = _exchange(ranks, relayed=relayed)
    for law in (network.transfer_s, network.floor_s):
        assert law(message, better) <= law(message, NETWORK) * (1 + 1e-12)


def test_a_network_without_a_fabric_carries_everything():
    bare = Link("network", 50e9, kind="network")
    for relayed in (False, True):
        assert network.transfer_s(_exchange(16, relayed=relayed), bare) == pytest.approx(
            1e6 * destinations(256, 8, 16) * 15 / 16 / 50e9
        )


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
    assert pipeline.pipeline_speedup(micro_batches, stages) == pytest.approx(stages * used)


@given(st.integers(1, 200), st.integers(1, 64))
def test_uneven_stages_wait_for_the_largest(layers, stages):
    stages = min(layers, stages)
    even = pipeline.even_stages(layers, stages)
    assert even == pytest.approx(layers / max(stage_layers(layers, stages)))
    assert even <= stages
    for micro_batches in (1, stages, 1e9):
        largest = 1 / even  # of one micro-batch's pass; one at a time leaves it
        last_out = 1 + (micro_batches - 1) * largest
        assert pipeline.pipeline_speedup(micro_batches, even) == pytest.approx(micro_batches / last_out)
    assert pipeline.round_s_per_pass_s(stages, even) == pytest.approx(max(1, stages / even))


def test_overlap_hides_a_share_of_the_shorter():
    assert overlapped_s(3.0, 2.0, 0.0) == 5.0
    assert overlapped_s(3.0, 2.0, 1.0) == 3.0
    assert overlapped_s(2.0, 3.0, 0.5) == 4.0
