"""Deployments cut over devices: pipelines, data-parallel attention with shared experts, hidden messages; limits, memory, refusals."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import calc
from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.operators import work
from calc.profiles.model import ModelProfile
from calc.serving.chunking import chunked_prefill
from calc.serving.deployment import Deployment, DeploymentOptions
from calc.serving.estimate import capacity, check_fit, estimate
from calc.serving.load.replica import replica
from calc.serving.load.traffic import uniform
from calc.serving.phase import evaluate, timed_step
from calc.serving.request import Workload
from tests.support.profiles import attention, decoder, deployment, device

PARTS = ("floor", "low", "expected", "high")
DENSE = decoder(hidden=1024, layers=12, mixers=attention(16, 4, 64), width=4096, vocab=32000)
MIXTURE = msgspec.convert(
    {
        **msgspec.to_builtins(DENSE),
        "layer_kinds": {
            "kind0": {
                "mixers": [attention(16, 4, 64)],
                "feed_forwards": [
                    {"kind": "experts", "num_experts": 32, "num_experts_per_token": 4, "intermediate_size": 512,
                     "shared": {"intermediate_size": 512}}
                ],
            }
        },
    },
    ModelProfile,
)  # fmt: skip
LINKS = {
    "scale_up_name": "fabric",
    "scale_up_gb_per_s_per_direction": 100.0,
    "scale_up_domain_size": 8,
    "scale_out_gb_per_s_per_direction_per_device": 25.0,
}


def settled(model: ModelProfile = MIXTURE, links: dict | None = None, **options: object) -> Deployment:
    options.setdefault("engine", "vllm")
    options.setdefault("memory", MemoryOptions(max_num_batched_tokens=2048))
    return deployment(model, device(links=links or LINKS), **options)


def wide(data: int = 4, **options: object) -> Deployment:
    return settled(data_parallel_size=data, enable_expert_parallel=True, **options)


# --- pipelines ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [work.decode(24, 1000), work.prefill(3, 900)])
def test_one_stage_is_the_plain_step(step):
    plain, one = (evaluate(settled(DENSE, **o), step) for o in ({}, {"pipeline_parallel_size": 1}))
    assert plain.timed == one.timed
    assert plain.totals == one.totals


@pytest.mark.parametrize("stages", [2, 3, 4, 6])
def test_a_long_prompt_keeps_all_stages_busy_and_a_short_one_passes_them_in_turn(stages):
    def faster(tokens, pp):
        links = LINKS | {"scale_up_gb_per_s_per_direction": 1e9}
        one, cut = (settled(DENSE, links, pipeline_parallel_size=p) for p in (1, pp))
        step = work.prefill(tokens // 1000, 1000)
        return evaluate(one, step).time_s, evaluate(cut, step).time_s

    for part in ("floor", "expected"):
        short, long = ([float(getattr(t, part)) for t in faster(n, stages)] for n in (2000, 4_000_000))
        assert short[1] == pytest.approx(short[0], rel=0.01)
        assert long[0] / long[1] == pytest.approx(stages, rel=0.02)


@given(st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 12]))
@settings(max_examples=20)
def test_a_round_of_decode_is_the_pass_of_its_largest_micro_batch(batch, stages):
    cut = evaluate(settled(DENSE, pipeline_parallel_size=stages), work.decode(batch, 1000))
    each = -(-batch // min(batch, stages))
    one = evaluate(settled(DENSE), work.decode(each, 1000))
    sends = [i for i in cut.timed.operators if i.operator.name == "stage_send"]
    assert cut.timed.time_s.floor == pytest.approx(one.time_s.floor + sum(i.time_s.floor * i.operator.count for i in sends))
    assert cut.totals.flops == pytest.approx(evaluate(settled(DENSE), work.decode(batch, 1000)).totals.flops)
    assert cut.totals.weight_bytes == pytest.approx(one.totals.weight_bytes * min(batch, stages))
    assert cut.flow.idle_share == pytest.approx(1 - min(batch, stages) / stages)


def test_waiting_of_a_prompt_is_the_bubble():
    cut = settled(DENSE, pipeline_parallel_size=4)
    for pieces in (1, 2, 8, 50):
        waits = evaluate(cut, work.prefill(1, 2048 * pieces)).flow.idle_share
        assert waits == pytest.approx(3 / (pieces + 3))


@given(st.integers(1, 20_000), st.integers(1, 5000), st.sampled_from([2, 3, 4]))
@example(prompt=8192, more=1, stages=2)  # four full micro-batches and one token
@settings(max_examples=20)
def test_a_longer_prompt_never_passes_the_stages_sooner(prompt, more, stages):
    """What is left over from full micro-batches fills no stage by itself, as one step or as chunks beside decoding requests."""
    cut = settled(DENSE, pipeline_parallel_size=stages)

    def seconds(tokens):
        whole, chunks = evaluate(cut, work.prefill(1, tokens)).time_s, chunked_prefill(cut, Workload(2, tokens), 2048).ttft_s
        return [float(getattr(times, part)) for times in (whole, chunks) for part in PARTS]

    assert all(longer >= shorter * (1 - 1e-9) for longer, shorter in zip(seconds(prompt + more), seconds(prompt), strict=True))


def test_uneven_stages_make_a_full_round_longer_and_a_single_request_not():
    cut = settled(DENSE, pipeline_parallel_size=5)  # 12 layers: the largest stage has three
    assert evaluate(cut, work.decode(1, 500)).flow.stretch == 1
    assert evaluate(cut, work.decode(50, 500)).flow.stretch == pytest.approx(5 * 3 / 12)


def test_chunks_follow_each_other_through_the_stages():
    one, cut = (settled(DENSE, pipeline_parallel_size=p, memory=MemoryOptions(max_num_batched_tokens=1000)) for p in (1, 4))
    load = Workload(1, 16_000, 10)
    ratio = chunked_prefill(one, load, 1000).ttft_s.floor / chunked_prefill(cut, load, 1000).ttft_s.floor
    assert ratio == pytest.approx(16 * 4 / 19, rel=0.1)
    whole = evaluate(cut, work.prefill(1, 16_000)).time_s.floor
    assert chunked_prefill(cut, load, 1000).ttft_s.floor == pytest.approx(whole, rel=0.15)


# --- data-parallel attention ----------------------------------------------------------------------------------------------------

STEPS = [work.decode(64, 1000), work.decode(3, 1000), work.decode(30, 77), work.prefill(9, 700), work.prefill(1, 3000)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("options", [{}, {"tensor_parallel_size": 2}, {"overlap": 0.5}, {"pipeline_parallel_size": 2}])
def test_ranges_are_ordered_and_a_step_alone_takes_as_long(step, options):
    cut = wide(**options)
    phase, alone = evaluate(cut, step), timed_step(cut, step)
    ends = [float(getattr(phase.time_s, part)) for part in PARTS]
    assert 0 < ends[0] <= ends[1] <= ends[2] <= ends[3]
    for part in PARTS:
        assert getattr(alone.time_s, part) == pytest.approx(getattr(phase.time_s, part), rel=1e-12)
    assert phase.compute_utilization <= 1
    assert phase.timed.floor_overlapped_s <= phase.time_s.floor * (1 + 1e-12)


@pytest.mark.parametrize("options", [{}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 3}])
def test_many_points_at_once_are_single_steps(options):
    cut, batches = wide(**options), np.array([1.0, 7.0, 64.0, 200.0])
    for make in (lambda b: work.decode(b, 900), lambda b: work.prefill(b, 900)):
        many = timed_step(cut, make(batches)).time_s
        for i, batch in enumerate((1, 7, 64, 200)):
            one = timed_step(cut, make(batch)).time_s
            for part in PARTS:
                assert np.broadcast_to(getattr(many, part), batches.shape)[i] == pytest.approx(float(getattr(one, part)), rel=1e-9)


def test_dense_models_and_deployments_without_the_option_keep_independent_replicas():
    step = work.decode(8, 1000)
    alone = evaluate(settled(), step)
    replicas = evaluate(settled(data_parallel_size=4), step)
    assert (replicas.timed, replicas.totals, replicas.ranks) == (alone.timed, alone.totals, 1)
    dense = settled(DENSE, data_parallel_size=4, enable_expert_parallel=True)
    assert (dense.sharding.ranks, dense.sharding.gpus) == (1, 4)
    assert [code for code, _ in dense.warnings if code == "no_experts"]
    assert not dense.inputs["enable_expert_parallel"]


@given(st.integers(1, 8), st.sampled_from(["scale_up_gb_per_s_per_direction", "scale_out_gb_per_s_per_direction_per_device"]))
@settings(max_examples=16)
def test_faster_links_never_slow_a_step(factor, which):
    layouts = {"data_parallel_size": 16}, {"tensor_parallel_size": 4, "data_parallel_size": 8}
    for options, overlap in itertools.product(layouts, (0.0, 0.7)):
        options = options | {"overlap": overlap}
        slow, fast = (
            settled(links=LINKS | {which: LINKS[which] * f}, enable_expert_parallel=True, **options) for f in (1, 1 + factor)
        )
        for step in (work.decode(256, 500), work.prefill(32, 500)):
            for part in PARTS:
                later, sooner = (getattr(evaluate(d, step).time_s, part) for d in (slow, fast))
                assert sooner <= later * (1 + 1e-12)


def test_a_single_request_attends_as_fast_as_on_one_device():
    alone, cut = evaluate(settled(), work.decode(1, 5000)), evaluate(wide(), work.decode(1, 5000))
    for one, many in ((o, m) for o in alone.timed.operators for m in cut.timed.operators if o.operator.name == m.operator.name):
        if one.operator.op_class == "attention":
            assert many.floor == one.floor
    assert cut.totals.flops == pytest.approx(alone.totals.flops)
    assert cut.totals.kv_read_bytes == pytest.approx(alone.totals.kv_read_bytes)


def test_the_fullest_rank_sets_the_time():
    even, more = (evaluate(wide(), work.decode(b, 1000)) for b in (64, 65))
    next_even = evaluate(wide(), work.decode(68, 1000))
    assert more.flow.rank.sequences == 17
    assert even.time_s.floor < more.time_s.floor <= next_even.time_s.floor
    assert more.totals.kv_read_bytes == pytest.approx(even.totals.kv_read_bytes * 65 / 64)


@pytest.mark.parametrize(("batch", "code"), [(3, "idle_ranks"), (5, "uneven_ranks"), (8, None)])
def test_what_does_not_fill_the_ranks_is_said(batch, code):
    found = estimate(wide(), Workload(batch, 100, 10)).warnings
    assert {c for c, _ in found} & {"idle_ranks", "uneven_ranks"} == ({code} if code else set())
    assert "wide_expert_parallel" in {c for c, _ in found}


def test_memory_counts_all_ranks():
    apart, together = settled(), wide()
    alone, held = capacity(apart), capacity(together)
    assert held.weights_bytes_per_gpu < alone.weights_bytes_per_gpu
    per_rank = min(r.pool.printed_concurrency(r.kv.bytes, held.max_model_len) for r in held.ranks)
    assert held.max_concurrency == pytest.approx(4 * per_rank)
    assert held.kv_bytes_per_sequence["read_per_step"] == pytest.approx(alone.kv_bytes_per_sequence["read_per_step"])
    limit = together.engine.sequences(together.question(), held, 1000)
    assert limit % 4 == 0
    for batch, fits in ((limit, True), (limit + 1, False)):
        assert check_fit(together, Workload(batch, 900, 100))[0].fits is fits


def test_experts_bytes_per_gpu_fall_with_the_ranks_and_attention_stays():
    from calc.memory.weights import stage_bytes

    parts = [stage_bytes(MIXTURE, wide(d).sharding, wide(d).numbers, 0) for d in (2, 4, 8, 32)]
    whole = stage_bytes(MIXTURE, settled().sharding, settled().numbers, 0)
    for part, data in zip(parts, (2, 4, 8, 32), strict=True):
        assert part["experts"] * data == whole["experts"]
        assert {k: v for k, v in part.items() if k != "experts"} == {k: v for k, v in whole.items() if k != "experts"}


def test_a_loaded_replica_of_one_user_is_the_single_estimate():
    one = wide(tensor_parallel_size=2)
    traffic = uniform(700, 100)
    found = replica(one, capacity(one), traffic, np.array([1.0, 64.0, 512.0]), closed=True)
    assert (found.at("expected").rate[1:] > found.at("expected").rate[:-1]).all()
    assert found.at("floor").tpot_s[0] == pytest.approx(estimate(one, Workload(1, 700, 100)).request.tpot_s.floor)


# --- hidden messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [work.decode(64, 1000), work.prefill(4, 700)])
def test_overlap_goes_from_the_sum_to_the_larger_layer_by_layer(step):
    def at(share):
        return evaluate(settled(tensor_parallel_size=4, overlap=share), step)

    plain, half, full = at(0.0), at(0.5), at(1.0)
    assert plain.timed.hidden_s is None
    for part in PARTS:
        times = [float(getattr(p.time_s, part)) for p in (plain, half, full)]
        assert times[0] > times[1] > times[2]
        assert times[1] == pytest.approx((times[0] + times[2]) / 2)
    assert float(full.time_s.floor) <= float(full.time_s.low) <= float(full.time_s.expected)
    assert full.time_s.high - full.time_s.expected == pytest.approx(plain.time_s.high - plain.time_s.expected)
    kinds: dict[str, list[float]] = {}
    for item in plain.timed.operators:
        both = kinds.setdefault(item.operator.layers, [0.0, 0.0])
        both[item.operator.collective is not None] += item.time_s.floor * item.operator.count
    assert float(full.time_s.floor) == pytest.approx(sum(max(k) for k in kinds.values()))
    assert full.timed.floor_overlapped_s <= full.time_s.floor
    assert sum(float(s) for s in full.timed.share_s.values()) == pytest.approx(full.time_s.floor)
    assert sum(float(s) for s in half.timed.terms_s.values()) == pytest.approx(float(half.time_s.expected))


@pytest.mark.parametrize("step", [work.decode(64, 1000), work.prefill(4, 700)])
@pytest.mark.parametrize(
    "cut", [{"tensor_parallel_size": 4}, {"pipeline_parallel_size": 4}, {"data_parallel_size": 4, "enable_expert_parallel": True}]
)
def test_hiding_more_never_takes_longer(step, cut):
    times = [evaluate(settled(overlap=share, **cut), step).time_s for share in (0.0, 0.3, 1.0)]
    for part in PARTS:
        ends = [float(getattr(t, part)) for t in times]
        assert ends == sorted(ends, reverse=True)


def test_what_is_hidden_never_brings_a_step_below_its_floor():
    """A device that is slow beside its links: products are expected at their floor, messages far above theirs."""
    options = DeploymentOptions(engine="llama.cpp", tensor_parallel_size=16, quantization="int8", overlap=1.0)
    times = evaluate(calc.deploy("qwen3-32b", "inferentia2", options), work.prefill(2, 30_000)).time_s
    assert times.floor <= times.low <= times.expected <= times.high


@pytest.mark.parametrize(("engine", "hides"), [("vllm", True), ("sglang", True), ("ideal", False)])
def test_only_the_fast_end_hides_messages_unasked_where_the_engine_can(engine, hides):
    phase = evaluate(wide(engine=engine), work.decode(256, 500))
    hidden = phase.timed.hidden_s
    if hides:
        assert hidden["floor"] > 0
        assert hidden["low"] > 0
        assert hidden["expected"] == hidden["high"] == 0
    else:
        assert hidden is None


# --- refusals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ({"data_parallel_size": 5, "enable_expert_parallel": True}, "32 experts", "1, 2, 4, 8, 16, 32"),
        ({"data_parallel_size": 4, "tensor_parallel_size": 16, "enable_expert_parallel": True}, "32 experts", "16, 32"),
        ({"data_parallel_size": 2, "enable_expert_parallel": True, "engine": "llama.cpp"}, "llama.cpp", "replicas"),
        ({"tensor_parallel_size": 4, "decode_context_parallel_size": 2}, "key-value heads", "8 tensor-parallel ranks"),
        ({"tensor_parallel_size": 4, "decode_context_parallel_size": 3}, "does not divide", ""),
        ({"tensor_parallel_size": 8, "decode_context_parallel_size": 2, "engine": "sglang"}, "of sglang is known", "vllm"),
        ({"overlap": 1.5}, "overlap", ""),
        ({"overlap": float("nan")}, "overlap", ""),
    ],
)
def test_what_cannot_be_says_what_could(options, said, hint):
    with pytest.raises(UsageError, match=said) as refused:
        settled(**options)
    assert hint in (refused.value.hint or "")


def test_no_network_no_times():
    links = {"scale_up_name": "fabric", "scale_up_gb_per_s_per_direction": 100.0, "scale_up_domain_size": 8}
    assert wide(8, links=links).has_rates
    assert not wide(16, links=links).has_rates


def test_slots_are_limited_by_memory_and_by_what_the_engine_can_be_told_to_start():
    """llama.cpp starts as many slots as it is told to, up to 256: a batch beyond its memory lacks cache, not slots."""
    found = deployment(DENSE, device(), engine="llama.cpp")
    few, many, beyond = (check_fit(found, Workload(n, length, 1))[0] for n, length in ((200, 64), (200, 1 << 20), (300, 64)))
    assert few.fits
    assert (many.fits, many.too_large) == (False, "kv_cache")
    assert (beyond.fits, beyond.too_large, beyond.largest_batch) == (False, "max_num_seqs", 256)
    asked = deployment(DENSE, device(), engine="llama.cpp", memory=MemoryOptions(max_num_seqs=8))
    assert check_fit(asked, Workload(9, 64, 1))[0].too_large == "max_num_seqs"


def test_devices_alone_are_split_as_the_engine_does_by_itself():
    """Two devices of llama.cpp work in turn: a token takes as long as on one that holds the whole model."""

    def cut(**options):
        sharding = deployment(DENSE, device(), gpus=2, **options).sharding
        return sharding.tensor, sharding.pipeline

    assert cut(engine="llama.cpp") == (1, 2)
    assert cut(engine="llama.cpp", memory=MemoryOptions(split_mode="row")) == (2, 1)
    assert cut(engine="vllm") == (2, 1)


def test_slices_of_an_engine_that_deals_out_layers_are_warned_of():
    def told(**options):
        return "layer_split" in dict(deployment(DENSE, device(), **options).warnings)

    assert told(engine="llama.cpp", tensor_parallel_size=2)
    assert not told(engine="llama.cpp", gpus=2)
    rows = MemoryOptions(split_mode="row")
    assert not told(engine="llama.cpp", tensor_parallel_size=2, memory=rows)
    assert not told(engine="llama.cpp", pipeline_parallel_size=2)
    assert not told(engine="vllm", tensor_parallel_size=2)
