"""Which peak applies: the compute type of a deployment, what the device has, and what a format of weights can use."""

from __future__ import annotations

import pytest

import calc
from calc.errors import UsageError
from calc.operators import work
from calc.serving.critical import critical_points
from calc.serving.deployment import DeploymentOptions, resolve
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from tests.support.profiles import attention, decoder, deployment, device, loaded, named

MODEL = decoder(hidden=512, layers=2, mixers=attention(8, 2, 64), width=1024, vocab=1000)
HALF = decoder(hidden=512, layers=2, mixers=attention(8, 2, 64), width=1024, vocab=1000, storage={"dtype": "fp16"})
SINGLE = decoder(hidden=512, layers=2, mixers=attention(8, 2, 64), width=1024, vocab=1000, storage={"dtype": "fp32"})


def on(hardware: str, model=MODEL, **options):
    return resolve(loaded(model), calc.load_hardware(hardware), DeploymentOptions(**options))


def codes(found) -> list[str]:
    return [code for code, _ in found.warnings]


def types(found) -> dict[str, str]:
    return {o.name: o.compute_dtype for o in evaluate(found, work.decode(1, 64)).operators}


# --- the compute type ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hardware", "model", "expected", "substituted"),
    [
        ("h100-sxm5-80gb", MODEL, "bf16", False),
        ("h100-sxm5-80gb", HALF, "fp16", False),
        ("t4", MODEL, "fp16", True),
        ("t4", HALF, "fp16", False),
        ("tpu-v5e", MODEL, "bf16", False),
        ("tpu-v5e", HALF, "bf16", True),
    ],
)
def test_checkpoint_type_is_used_where_the_device_has_it_else_the_other_16_bit_type(hardware, model, expected, substituted):
    found = on(hardware, model)
    assert found.numbers.compute == expected
    assert ("dtype_substituted" in codes(found)) == substituted
    assert evaluate(found, work.decode(1, 64)).time_s.expected > 0


def test_a_device_with_fp32_alone_computes_in_fp32_and_warns():
    found = deployment(MODEL, device(peaks={"fp32": 10.0}))
    assert found.numbers.compute == "fp32"
    assert "dtype_substituted" in codes(found)


def test_substitution_leaves_weights_in_the_bytes_of_their_stored_format():
    stored = evaluate(on("h100-sxm5-80gb"), work.decode(1, 64)).totals.weight_bytes
    assert evaluate(on("t4"), work.decode(1, 64)).totals.weight_bytes == stored
    assert evaluate(deployment(MODEL, device(peaks={"fp32": 10.0})), work.decode(1, 64)).totals.weight_bytes == stored


@pytest.mark.parametrize("asked", ["bf16", "bfloat16"])
def test_a_type_asked_for_that_the_device_lacks_is_refused_with_what_it_has(asked):
    with pytest.raises(UsageError) as caught:
        on("t4", dtype=asked)
    assert caught.value.exit_code == 2
    assert "fp16" in caught.value.hint
    assert "bf16" in caught.value.message


@pytest.mark.parametrize("word", ["float17", "fp", ""])
def test_an_unknown_type_is_refused(word):
    with pytest.raises(UsageError):
        on("h100-sxm5-80gb", dtype=word or " ")


def test_a_type_asked_for_is_used():
    assert on("h100-sxm5-80gb", dtype="float16").numbers.compute == "fp16"
    assert on("h100-sxm5-80gb", dtype="fp32").numbers.compute == "fp32"


# --- devices without rates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [{"peaks": {}}, {"memory_bandwidth_gb_per_s": None}], ids=["no peak", "no bandwidth"])
def test_a_device_without_rates_gives_null_times_a_warning_and_memory(missing):
    found = deployment(MODEL, device(**missing))
    answer = calc.estimate_deployment(found, Workload())
    for phase in (answer.prefill, answer.decode):
        assert (phase.time_s.floor, phase.time_s.low, phase.time_s.expected, phase.time_s.high) == (None,) * 4
        assert phase.tokens_per_s.expected is None
        assert phase.bound is None
        assert phase.compute_utilization is None
        assert phase.bandwidth_utilization is None
        assert phase.totals.flops > 0
    assert answer.request.ttft_s.expected is None
    assert answer.fit.fits
    assert answer.capacity.kv_tokens > 0
    assert answer.warnings, "nothing says why no time is answered"


def test_every_shipped_device_answers_or_says_why_it_cannot():
    from calc.profiles import catalog

    for entry in catalog.entries("hardware"):
        found = on(entry.id)
        phase = evaluate(found, work.decode(1, 64))
        if phase.time_s.expected is None:
            assert found.warnings, f"{entry.id} gives no time and no reason"
        else:
            assert 0 < phase.time_s.floor <= phase.time_s.expected


# --- formats of weights -----------------------------------------------------------------------------------------------------------

FULL = {"fp32": 10.0, "fp16": 100.0, "bf16": 100.0, "fp8": 200.0, "int8": 200.0, "fp4": 400.0}
PLAIN = {"fp32": 10.0, "fp16": 100.0, "bf16": 100.0}


@pytest.mark.parametrize(
    ("quantization", "low"),
    [("fp8", "fp8"), ("fp8-block", "fp8"), ("int8", "int8"), ("nvfp4", "fp4")],
)
def test_a_low_precision_format_uses_its_peak_only_where_the_device_has_it(quantization, low):
    rich = types(deployment(MODEL, device(peaks=FULL), quantization=quantization))
    poor = types(deployment(MODEL, device(peaks=PLAIN), quantization=quantization))
    for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"):
        assert rich[name] == low
        assert poor[name] == "bf16"
    assert rich["attention"] == poor["attention"] == "bf16"
    assert rich["lm_head"] == poor["lm_head"] == "bf16"


@pytest.mark.parametrize("quantization", ["awq", "gptq", "w4a16", "nf4", "q4_k_m", "q8_0"])
def test_a_weight_only_format_keeps_the_16_bit_peak_everywhere(quantization):
    found = types(deployment(MODEL, device(peaks=FULL), quantization=quantization))
    assert set(found.values()) == {"bf16"}


@pytest.mark.parametrize(
    ("hardware", "low"), [("h100-sxm5-80gb", "fp8"), ("l40s", "fp8"), ("a100-sxm4-80gb", "bf16"), ("t4", "fp16")]
)
def test_fp8_weights_on_shipped_devices(hardware, low):
    assert types(on(hardware, quantization="fp8"))["down_proj"] == low


def test_nvfp4_uses_the_fp4_peak_of_blackwell_and_16_bit_on_hopper():
    assert types(on("h100-sxm5-80gb", quantization="nvfp4"))["down_proj"] == "bf16"
    assert types(on("b200-sxm", quantization="nvfp4"))["down_proj"] == "fp4"


@pytest.mark.parametrize(
    ("engine", "on_b200", "on_rtx_5090", "on_h100"),
    [
        ("vllm", "bf16", "bf16", "bf16"),
        ("sglang", "fp8", "bf16", "bf16"),
        ("tensorrt-llm", "fp8", "fp8", "bf16"),
        ("llama.cpp", "bf16", "fp4", "bf16"),
        ("transformers", "bf16", "bf16", "bf16"),
        ("ideal", "fp4", "fp4", "bf16"),
    ],
)
def test_mxfp4_weights_are_multiplied_as_the_engine_does_it(engine, on_b200, on_rtx_5090, on_h100):
    devices = ("b200-sxm", "rtx-5090", "h100-sxm5-80gb")
    found = [types(on(d, quantization="mxfp4", engine=engine))["down_proj"] for d in devices]
    assert found == [on_b200, on_rtx_5090, on_h100]


def test_mxfp4_weights_on_a_path_of_16_bit_are_no_faster_than_16_bit_where_compute_bound():
    step = work.prefill(8, 4096)
    plain, small = (evaluate(on("b200-sxm", quantization=q), step) for q in ("none", "mxfp4"))
    assert small.time_s.floor >= 0.95 * plain.time_s.floor
    assert on("b200-sxm", quantization="mxfp4").efficiency.setting.path == "unpacked in the kernel"


def test_quantised_weights_are_faster_where_memory_bound():
    base = evaluate(deployment(MODEL, device(peaks=FULL)), work.decode(1, 64)).time_s
    for quantization in ("fp8", "awq", "q4_k_m"):
        small = evaluate(deployment(MODEL, device(peaks=FULL), quantization=quantization), work.decode(1, 64)).time_s
        assert small.floor < base.floor


def test_weight_only_formats_do_not_raise_a_compute_bound_floor_nor_lower_it_below_the_16_bit_peak():
    step = work.prefill(64, 4096)
    base = evaluate(deployment(MODEL, device(peaks=FULL)), step)
    small = evaluate(deployment(MODEL, device(peaks=FULL), quantization="awq"), step)
    assert base.bound == small.bound == "compute"
    for name in ("gate_up_proj", "down_proj"):
        one, two = (next(i for i in p.timed.operators if i.operator.name == name).floor.compute_s for p in (base, small))
        assert one == two


def test_quantization_none_is_16_bit_whatever_the_checkpoint_stores():
    stored = decoder(
        hidden=512, layers=2, mixers=attention(8, 2, 64), width=1024, vocab=1000,
        storage={"dtype": "bf16", "roles": {"feed_forward": "fp8", "attention": "fp8"}},
    )  # fmt: skip
    found = deployment(stored, device(peaks=FULL))
    assert types(found)["down_proj"] == "fp8"
    plain = deployment(stored, device(peaks=FULL), quantization="none")
    assert types(plain)["down_proj"] == "bf16"
    down = [named(list(evaluate(d, work.decode(1, 64)).operators), "down_proj").weight_bytes for d in (found, plain)]
    assert down[0] < down[1] == 2 * 512 * 1024


@pytest.mark.parametrize("word", ["fp9", "awqq", "q4_k_x", "q99_0"])
def test_an_unknown_weight_format_is_refused(word):
    with pytest.raises(UsageError):
        deployment(MODEL, device(), quantization=word)


@pytest.mark.parametrize("option", ["kv_cache_dtype", "cache_type_k", "cache_type_v"])
def test_an_unknown_cache_format_is_refused(option):
    with pytest.raises(UsageError):
        deployment(MODEL, device(), **{option: "fp77"})


def test_keys_and_values_may_have_formats_of_their_own():
    both = evaluate(deployment(MODEL, device(), cache_type_k="q8_0", cache_type_v="q4_0"), work.decode(1, 64)).totals
    keys, values = (2 * 64 * 34 / 32 * 64, 2 * 64 * 18 / 32 * 64)  # heads x width x bytes x tokens
    assert both.kv_read_bytes == 2 * (keys + values)


def test_ridge_and_critical_batch_are_those_of_the_type_that_the_kernels_run_in():
    """llama.cpp rounds activations to int8 for quantised weights: what is compute-bound is judged against that rate everywhere."""
    hardware = device(peaks={"fp32": 10.0, "fp16": 100.0, "bf16": 100.0, "int8": 400.0})
    plain, tiles = (deployment(MODEL, hardware, engine="llama.cpp", quantization=form) for form in (None, "q8_0"))
    for found, dtype in ((plain, "fp16"), (tiles, "int8")):
        phase = evaluate(found, work.prefill(1, 4096))
        assert phase.ridge_point == found.ceilings.ridge_point(dtype)
        product = next(i for i in phase.timed.operators if i.operator.name == "down_proj")
        assert found.ceilings.dtype_for(product.operator) == dtype
        assert product.floor.compute_s == pytest.approx(float(product.operator.flops) / found.ceilings.peak(dtype))
        intensity = product.operator.flops / product.operator.compulsory_bytes
        assert (product.floor.bound == "compute") == (intensity > phase.ridge_point)
    slower = deployment(MODEL, device(peaks={"fp32": 10.0, "fp16": 100.0, "bf16": 100.0}), engine="llama.cpp", quantization="q8_0")
    assert critical_points(tiles).batch == pytest.approx(critical_points(slower).batch * 4, rel=0.5)
