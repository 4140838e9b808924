"""Every time is a range: nothing beats the floor, and a better device is never slower."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.operators import work
from calc.operators.fusion import FUSED, SEPARATE
from calc.serving.phase import evaluate
from tests.support.profiles import attention, decoder, deployment, device, llama

speed = st.floats(0.1, 10_000, allow_nan=False)
lengths = st.integers(1, 1 << 20)
batches = st.integers(1, 4096)


@st.composite
def devices(draw):
    return device(
        peaks={"fp32": draw(speed), "fp16": draw(speed), "bf16": draw(speed), "fp8": draw(st.none() | speed)},
        memory_bandwidth_gb_per_s=draw(speed),
        links={
            "scale_up_name": draw(st.sampled_from(["NVLink 3", "NVLink 4", "fabric"])),
            "scale_up_topology": draw(st.sampled_from([None, "NVSwitch", "ring"])),
            "scale_up_gb_per_s_per_direction": draw(speed),
            "scale_up_domain_size": 8,
        },
    )


@st.composite
def models(draw):
    kv_heads = draw(st.sampled_from([4, 8]))
    shape = (kv_heads * draw(st.sampled_from([1, 2, 8])), kv_heads, draw(st.sampled_from([16, 64, 128])))
    kinds = [attention(*shape), attention(*shape, "sliding", window=draw(st.integers(1, 4096)))]
    return decoder(
        hidden=draw(st.sampled_from([64, 512, 4096])),
        layers=2 * draw(st.integers(1, 8)),
        mixers=draw(st.sampled_from([kinds[:1], kinds[1:], kinds])),
        width=draw(st.sampled_from([64, 1024, 16384])),
        vocab=draw(st.sampled_from([None, 128, 128256])),
        gated=draw(st.booleans()),
    )


@st.composite
def steps(draw):
    batch, length = draw(batches), draw(lengths)
    prompt = work.prefill(batch, length, draw(st.integers(0, length)))
    new = draw(st.integers(1, 8))
    answer = work.decode(draw(batches), max(draw(lengths), new), new)
    return draw(st.sampled_from([prompt, answer, work.mixed(prompt, answer)]))


def ordered(time) -> bool:
    return 0 <= time.floor <= time.low <= time.expected <= time.high < math.inf


@settings(max_examples=80)
@given(models(), devices(), steps(), st.sampled_from([1, 2, 4]), st.sampled_from([None, "fp8", "awq", "int8"]))
def test_floor_low_expected_high_ascend_for_every_operator_and_step(model, hardware, step, tp, quantization):
    phase = evaluate(deployment(model, hardware, tensor_parallel_size=tp, quantization=quantization), step)
    assert ordered(phase.time_s)
    assert all(ordered(item.time_s) for item in phase.timed.operators)


@settings(max_examples=80)
@given(models(), devices(), steps(), st.sampled_from([1, 2, 4]))
def test_sum_of_maxima_is_at_least_the_maximum_of_sums(model, hardware, step, tp):
    phase = evaluate(deployment(model, hardware, tensor_parallel_size=tp), step)
    assert phase.time_s.floor >= phase.timed.floor_overlapped_s * (1 - 1e-12)
    assert phase.timed.floor_overlapped_s > 0


@settings(max_examples=80)
@given(models(), devices(), steps())
def test_floor_is_no_less_than_flop_over_peak_and_weights_over_bandwidth(model, hardware, step):
    phase = evaluate(deployment(model, hardware), step)
    at_least = max(
        phase.totals.flops / max(hardware.peak_flops_per_s(t) for t in ("bf16", "fp16", "fp32")),
        (phase.totals.weight_bytes + phase.totals.kv_read_bytes) / hardware.bandwidth_bytes_per_s,
    )
    assert phase.time_s.floor >= at_least * (1 - 1e-12)


@settings(max_examples=50)
@given(models(), steps(), st.sampled_from([1, 4]))
def test_the_floor_does_not_depend_on_the_fusion_policy(model, step, tp):
    """It counts only what must cross memory whatever the kernels do; element-wise operators cost nothing in it."""
    floors = [
        evaluate(deployment(model, device(), tensor_parallel_size=tp, fusion=policy), step).time_s.floor
        for policy in (SEPARATE, FUSED)
    ]
    assert floors[0] == pytest.approx(floors[1], rel=1e-12)


@pytest.mark.parametrize("step", [work.prefill(4, 512), work.decode(4, 512)], ids=["prefill", "decode"])
def test_element_wise_operators_cost_nothing_in_the_floor(step):
    timed = evaluate(deployment(llama("8b"), device()), step).timed
    assert {
        i.operator.name: i.time_s.floor for i in timed.operators if i.operator.op_class == "elementwise" and i.time_s.floor
    } == {}


@settings(max_examples=80)
@given(
    models(),
    devices(),
    steps(),
    st.sampled_from([1, 2, 4]),
    st.floats(1, 100),
    st.sampled_from(["memory_bandwidth_gb_per_s", "bf16", "fp16", "fp32", "link"]),
)
def test_more_bandwidth_compute_or_link_never_slows(model, hardware, step, tp, factor, what):
    def at(scale: float):
        peaks = {t: getattr(hardware.peak_dense_tflops, t) for t in ("fp32", "fp16", "bf16", "fp8")}
        links = {
            "scale_up_name": hardware.interconnect.scale_up_name,
            "scale_up_topology": hardware.interconnect.scale_up_topology,
            "scale_up_gb_per_s_per_direction": hardware.interconnect.scale_up_gb_per_s_per_direction,
            "scale_up_domain_size": 8,
        }
        bandwidth = hardware.memory_bandwidth_gb_per_s
        if what == "link":
            links["scale_up_gb_per_s_per_direction"] *= scale
        elif what in peaks:
            peaks[what] *= scale
        else:
            bandwidth *= scale
        better = device(peaks=peaks, links=links, memory_bandwidth_gb_per_s=bandwidth)
        return evaluate(deployment(model, better, tensor_parallel_size=tp), step).time_s

    before, after = at(1.0), at(factor)
    for name in ("floor", "low", "expected", "high"):
        assert getattr(after, name) <= getattr(before, name) * (1 + 1e-12)


@settings(max_examples=50)
@given(models(), devices(), batches, st.integers(1, 1 << 19), st.integers(1, 1 << 19))
def test_a_longer_context_or_a_larger_batch_never_takes_less_time(model, hardware, batch, context, more):
    found = deployment(model, hardware)

    def seconds(step):
        return evaluate(found, step).time_s.expected

    for phase in (work.decode, work.prefill):
        here = seconds(phase(batch, context))
        assert seconds(phase(batch, context + more)) >= here * (1 - 1e-12)
        assert seconds(phase(2 * batch, context)) >= here * (1 - 1e-12)


@settings(max_examples=50)
@given(models(), devices(), batches, lengths)
def test_rates_are_tokens_over_time_turned_round(model, hardware, batch, context):
    phase = evaluate(deployment(model, hardware), work.decode(batch, context))
    rate, time = phase.tokens_per_s, phase.time_s
    assert rate.low == pytest.approx(batch / time.high)
    assert rate.expected == pytest.approx(batch / time.expected)
    assert rate.high == pytest.approx(batch / time.low)
    assert rate.floor == pytest.approx(batch / time.floor)
    assert rate.low <= rate.expected <= rate.high <= rate.floor


@settings(max_examples=50)
@given(models(), devices(), steps(), st.sampled_from([1, 4]))
def test_shares_sum_to_one_and_utilisations_stay_below_it(model, hardware, step, tp):
    phase = evaluate(deployment(model, hardware, tensor_parallel_size=tp), step)
    assert sum(phase.share(item) for item in phase.timed.operators) == pytest.approx(1)
    assert 0 <= phase.compute_utilization <= 1 + 1e-12
    assert 0 < phase.bandwidth_utilization <= 1 + 1e-12


@settings(max_examples=50)
@given(models(), devices(), steps(), st.sampled_from([1, 4]))
def test_the_bound_is_the_resource_with_the_largest_share_of_the_floor(model, hardware, step, tp):
    phase = evaluate(deployment(model, hardware, tensor_parallel_size=tp), step)
    shares = {"compute": 0.0, "memory": 0.0, "network": 0.0}
    for item in phase.timed.operators:
        alone = {"compute": item.floor.compute_s, "memory": item.floor.memory_s, "network": item.floor.network_s}
        shares[max(alone, key=alone.get)] += item.time_s.floor * item.operator.count
    if phase.bound == "overhead":
        assert phase.timed.overhead_s > phase.time_s.expected / 2
        return
    best = max(shares.values())
    assert shares[phase.bound] >= best * (1 - 1e-9)


def test_the_ridge_point_decides_the_bound_of_a_product():
    """A product whose intensity is above the ridge point is compute-bound, below it memory-bound."""
    model = decoder(hidden=8192, layers=1, mixers=attention(64, 8, 128), width=28672, vocab=None)
    hardware = device()  # ridge point 100
    for batch, bound in ((99, "memory"), (101, "compute")):
        timed = evaluate(deployment(model, hardware), work.decode(batch, 1)).timed
        (down,) = [i for i in timed.operators if i.operator.name == "down_proj"]
        assert down.bound == bound
