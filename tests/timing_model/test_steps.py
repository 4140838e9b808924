"""Steps under the fitted effects: ordered ranges, honest sums, arrays like scalars, better devices never slower."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from calc.operators import work
from calc.profiles import catalog
from calc.serving.deployment import DeploymentOptions, resolve
from calc.serving.phase import evaluate, timed_step

MODELS = ("llama-3.1-8b", "mixtral-8x7b-v0.1", "deepseek-v3", "qwen3-30b-a3b")
PAIRS = [
    ("llama-3.1-8b", "h100-sxm5-80gb", {}),
    ("llama-3.1-8b", "rtx-4090", {"engine": "llama.cpp", "quantization": "q4_k_m"}),
    ("llama-3.1-8b", "apple-m2-ultra", {"engine": "llama.cpp"}),
    ("mixtral-8x7b-v0.1", "a100-sxm4-80gb", {"tensor_parallel_size": 2}),
    ("deepseek-v3", "h200-sxm-141gb", {"tensor_parallel_size": 8, "enable_expert_parallel": True}),
    ("llama-3.1-70b", "mi300x", {"tensor_parallel_size": 4, "engine": "sglang"}),
    ("llama-3.1-70b", "l4", {"tensor_parallel_size": 8, "engine": "tensorrt-llm", "quantization": "fp8"}),
]
WORKS = {
    "decode": work.decode(16, 2048),
    "prefill": work.prefill(2, 3000),
    "mixed": work.mixed(work.prefill(1, 612, 100), work.decode(8, 1000)),
    "verified": work.decode(4, 2048, 5),
}


def deployed(model, hardware, **options):
    return resolve(catalog.load(model, "model"), catalog.load(hardware, "hardware"), DeploymentOptions(**options))


@pytest.fixture(params=PAIRS, ids=lambda p: f"{p[0]} on {p[1]}", scope="module")
def deployment(request):
    model, hardware, options = request.param
    return deployed(model, hardware, **options)


@pytest.mark.parametrize("name", WORKS)
def test_ranges_ascend_from_the_floor_and_operators_sum_to_the_step(deployment, name):
    phase = evaluate(deployment, WORKS[name])
    time = phase.time_s
    assert 0 < time.floor <= time.low <= time.expected <= time.high
    for field in ("floor", "low", "expected", "high"):
        parts = [(getattr(o.time_s, field), o.operator.count) for o in phase.timed.operators]
        assert sum(s * n for s, n in parts) == pytest.approx(getattr(time, field), rel=1e-9)
    for item in phase.timed.operators:
        assert item.time_s.floor <= item.time_s.low * (1 + 1e-12) <= item.time_s.expected * (1 + 2e-12)


@pytest.mark.parametrize("name", WORKS)
def test_the_terms_of_a_step_sum_to_what_the_model_expects(deployment, name):
    timed = evaluate(deployment, WORKS[name]).timed
    assert sum(timed.terms_s.values()) <= timed.time_s.expected * (1 + 1e-12)
    assert 0 < timed.overhead_s < timed.time_s.expected


def test_arrays_of_batches_and_contexts_equal_single_steps(deployment):
    batches, contexts = np.array([[1], [7], [300]]), np.array([[10, 4096]])
    for phase, single in ((work.decode(batches, contexts), work.decode), (work.prefill(batches, contexts), work.prefill)):
        many = evaluate(deployment, phase).time_s
        for field in ("floor", "low", "expected", "high"):
            grid = np.broadcast_to(getattr(many, field), (3, 2))
            for i, batch in enumerate((1, 7, 300)):
                for j, context in enumerate((10, 4096)):
                    one = getattr(evaluate(deployment, single(batch, context)).time_s, field)
                    assert grid[i, j] == pytest.approx(one, rel=1e-9)


def _beside_decode(requests, chunk):
    """Eight requests decode while ``requests`` prompts bring ``chunk`` tokens each."""
    return work.Work("mixed", (work.Requests(requests, chunk, 100, writes_source=True), *work.decode(8, 1000).groups))


def test_mixed_steps_in_arrays_equal_single_ones_and_without_a_prompt_decode_steps(deployment):
    requests, chunks = np.array([0, 1, 1]), np.array([64, 64, 2048])
    many = evaluate(deployment, _beside_decode(requests, chunks)).time_s.expected
    for chunk, seconds in ((64, many[1]), (2048, many[2])):
        assert seconds == pytest.approx(evaluate(deployment, _beside_decode(1, chunk)).time_s.expected, rel=1e-9)
    assert many[0] == pytest.approx(evaluate(deployment, work.decode(8, 1000)).time_s.expected, rel=1e-9)
    assert (np.diff(many) > 0).all()


def test_a_step_without_its_operators_takes_the_same_time(deployment):
    for step in WORKS.values():
        whole, alone = evaluate(deployment, step).time_s, timed_step(deployment, step).time_s
        assert (alone.floor, alone.low, alone.expected, alone.high) == pytest.approx(
            (whole.floor, whole.low, whole.expected, whole.high), rel=1e-9
        )


def _better(hardware, what, factor):
    wires, peaks = hardware.interconnect, hardware.peak_dense_tflops
    if what == "bandwidth":
        return msgspec.structs.replace(hardware, memory_bandwidth_gb_per_s=hardware.memory_bandwidth_gb_per_s * factor)
    if what == "compute":
        faster = {f: getattr(peaks, f) * factor for f in peaks.__struct_fields__ if isinstance(getattr(peaks, f), (int, float))}
        return msgspec.structs.replace(hardware, peak_dense_tflops=msgspec.structs.replace(peaks, **faster))
    fields = ("scale_up_gb_per_s_per_direction", "pcie_gb_per_s_per_direction", "scale_out_gb_per_s_per_direction_per_device")
    faster = {f: getattr(wires, f) * factor for f in fields if getattr(wires, f)}
    return msgspec.structs.replace(hardware, interconnect=msgspec.structs.replace(wires, **faster))


@pytest.mark.parametrize("what", ["bandwidth", "compute", "link"])
@pytest.mark.parametrize("factor", [1.1, 2, 10])
@pytest.mark.parametrize(("model", "hardware", "options"), PAIRS, ids=lambda p: str(p))
def test_more_bandwidth_compute_or_link_never_slows_a_real_device(model, hardware, options, what, factor):
    loaded = catalog.load(hardware, "hardware")
    times = []
    for profile in (loaded.profile, _better(loaded.profile, what, factor)):
        found = resolve(catalog.load(model, "model"), replace(loaded, profile=profile), DeploymentOptions(**options))
        times.append([evaluate(found, step).time_s for step in WORKS.values()])
    for before, after in zip(*times, strict=True):
        for field in ("floor", "low", "expected", "high"):
            assert getattr(after, field) <= getattr(before, field) * (1 + 1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_steps_grow_with_batch_and_context(model):
    found = deployed(model, "h200-sxm-141gb", tensor_parallel_size=8)
    for phase in (work.decode, work.prefill):
        by_batch = [evaluate(found, phase(b, 1024)).time_s.expected for b in (1, 2, 5, 33, 256)]
        by_length = [evaluate(found, phase(4, n)).time_s.expected for n in (1, 100, 4000, 60000)]
        assert by_batch == sorted(by_batch)
        assert by_length == sorted(by_length)


def test_fixed_costs_bound_small_steps_on_fast_devices():
    assert evaluate(deployed("smollm2-360m-instruct", "b200-sxm"), work.decode(1, 100)).bound == "overhead"
    assert evaluate(deployed("llama-3.1-8b", "h100-sxm5-80gb"), work.decode(1, 100)).bound == "memory"
