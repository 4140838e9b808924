"""What would help: nothing that is twice as good slows a step, and what binds it helps most."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.numerics import cache_format
from calc.operators import work
from calc.serving.deployment import DeploymentOptions
from calc.serving.phase import evaluate
from calc.serving.sensitivity import halved, sensitivity
from tests.support.profiles import deployment, device, llama

PAIRS = [
    ("llama-3.1-8b", "h100-sxm5-80gb", DeploymentOptions()),
    ("llama-3.1-70b", "h100-sxm5-80gb", DeploymentOptions(tensor_parallel_size=4)),
    ("deepseek-v3", "h200-sxm-141gb", DeploymentOptions(tensor_parallel_size=8)),
    ("llama-3.1-8b", "rtx-4090", DeploymentOptions(engine="llama.cpp", quantization="q4_k_m")),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]} {p[1]}")
@settings(max_examples=10, deadline=None)
@given(batch=st.integers(1, 512), length=st.integers(1, 100_000), decodes=st.booleans())
def test_nothing_better_is_ever_slower(pair, batch, length, decodes):
    target = calc.deploy(*pair)
    step = work.decode(batch, length) if decodes else work.prefill(batch, length)
    now = evaluate(target, step).time_s
    for change in sensitivity(target, step, now):
        assert change.time_s.expected <= now.expected * (1 + 1e-12), change.what
        assert change.time_s.floor <= now.floor * (1 + 1e-12), change.what
        assert change.time_s.expected / now.expected >= 0.5 - 1e-9
        assert -1e-12 <= change.saved <= 0.5 + 1e-9


def saved(step, **options):
    target = deployment(llama("8b"), device(), **options)
    return {c.what: c.saved for c in sensitivity(target, step, evaluate(target, step).time_s)}


def test_what_binds_a_step_helps_most():
    prefill, decode = saved(work.prefill(8, 2048)), saved(work.decode(1, 1024))
    assert max(prefill, key=prefill.get) == "compute"
    assert max(decode, key=decode.get) == "bandwidth"
    long = saved(work.decode(64, 16384))
    assert long["kv_cache_format"] > 0.25


def test_a_link_is_named_only_where_ranks_talk():
    assert "link" not in saved(work.decode(1, 1024))
    assert saved(work.prefill(8, 2048), tensor_parallel_size=4)["link"] > 0


def test_launches_help_with_factors_from_a_file_too(tmp_path):
    from calc.timing.efficiency import load_efficiency

    share = "{low: 0.5, expected: 0.6, high: 0.7, n: 3}"
    launch = "{low: 1.0e-5, expected: 1.0e-5, high: 1.0e-5, n: 3}"
    factor = f"{{compute: {share}, bandwidth: {share}, link: {share}, launch_s: {launch}}}"
    path = tmp_path / "own.yaml"
    path.write_text(f"id: own\nevidence: measured here\norigin: a test\nfactors:\n  - {factor}\n", encoding="utf-8")
    assert load_efficiency(str(path)).evidence == "measured here n=3"
    assert saved(work.decode(1, 1024), efficiency=str(path))["launch"] > 0


@pytest.mark.parametrize("name", ["bf16", "fp8", "q8_0", "fp8-per-token-head"])
def test_half_a_format_is_half_its_bytes(name):
    assert halved(cache_format(name)).vector_bytes(128) == cache_format(name).vector_bytes(128) / 2


def test_roofline_answers_what_would_help_in_each_phase():
    found = calc.roofline("llama-3.1-8b", "h100-sxm5-80gb", batch_size=4)
    assert set(found.sensitivity) == {"prefill", "decode"}
    for changes in found.sensitivity.values():
        assert [c.saved for c in changes] == sorted((c.saved for c in changes), reverse=True)
    assert calc.roofline("llama-3.1-405b", "h100-sxm5-80gb").sensitivity == {}
