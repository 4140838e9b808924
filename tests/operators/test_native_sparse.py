"""Native sparse attention against counts position by position, and from a profile to an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.operators import work
from calc.operators.native_sparse_attention import BRANCHES
from calc.profiles.model import NativeSparseAttention
from calc.serving.phase import evaluate
from tests.operators import brute
from tests.operators.builders import BF16, cache_bytes, check_golden, laws, mixer_operators, operator
from tests.support.cli import answered, run
from tests.support.profiles import decoder, deployment, device

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
#: The setting of the paper: blocks of 32 every 16 tokens, 16 chosen blocks of 64, a window of 512.
PAPER = {"compressed_block": 32, "stride": 16, "block": 64, "selected_blocks": 16, "window": 512}


def shapes(mixer: NativeSparseAttention, new: int, cached: int) -> dict[str, tuple[float, float]]:
    """(pairs, keys) of each branch's kernel for one request."""
    found = mixer_operators(mixer, work.Work("decode", (work.Requests(1, new, cached),)))
    kernels = {branch: operator(found, f"attention_{branch}").shape for branch in BRANCHES}
    return {branch: (shape["pairs"], shape["keys"]) for branch, shape in kernels.items()}


@pytest.mark.parametrize(("context", "tokens"), [(65536, 5632), (8192, 2048)])
def test_tokens_that_a_decode_step_touches_in_the_setting_of_the_paper(context, tokens):
    touched = sum(keys for _, keys in shapes(NativeSparseAttention(**HEADS, **PAPER), 1, context - 1).values())
    assert touched == tokens
    if context == 65536:
        check_golden("nsa.tokens.65536", touched)


@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6), st.integers(1, 50))
def test_three_branches(new, cached, stride, block, chosen, window):
    mixer = NativeSparseAttention(
        **HEADS, compressed_block=2 * stride, stride=stride, block=block, selected_blocks=chosen, window=window
    )
    found = shapes(mixer, new, cached)
    visible = [brute.causal(i) for i in brute.positions(new, cached)]
    near = [brute.window(i, window) for i in brute.positions(new, cached)]
    entries = [brute.complete_entries(i, stride) for i in brute.positions(new, cached)]
    assert found["compressed"] == (brute.pairs(entries), brute.distinct(entries))
    assert found["window"] == (brute.pairs(near), brute.distinct(near))
    assert found["selected"][0] == sum(min(len(s), block * chosen) for s in visible)
    assert min(block * chosen, cached + new) <= found["selected"][1] <= cached + new


@given(st.integers(1, 400), st.integers(1, 9), st.booleans())
def test_the_cache_keeps_every_token_and_every_compressed_key(tokens, stride, own):
    mixer = NativeSparseAttention(
        **HEADS, compressed_block=stride, stride=stride, block=8, selected_blocks=2, window=32, own_keys=own
    )
    each = 2 * 2 * 16 * 2
    assert cache_bytes(mixer, tokens) == each * (tokens + tokens // stride + (min(tokens, 32) if own else 0))
    assert {law.token_bytes(BF16.keys, BF16.values) for law in laws(mixer)} == {each}


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 9))
def test_compressed_keys_made_in_pieces_are_those_made_at_once(first, second, stride):
    mixer = NativeSparseAttention(**HEADS, compressed_block=4, stride=stride, block=8, selected_blocks=2, window=32)

    def made(new: int, cached: int) -> float:
        return operator(mixer_operators(mixer, work.Work("prefill", (work.Requests(1, new, cached),))), "compress_kv").shape[
            "entries"
        ]

    assert made(first, 0) + made(second, first) == made(first + second, 0) == (first + second) // stride


def test_decode_reads_less_than_full_attention_at_long_contexts_and_stores_more():
    heads = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
    rest = {"hidden": 2048, "layers": 4, "width": 4096, "vocab": 32000}
    sparse, full = (decoder(mixers=m, **rest) for m in ({"kind": "native-sparse", **heads, **PAPER}, {"kind": "full", **heads}))
    deployments = [deployment(m, device(), engine="ideal") for m in (sparse, full)]
    steps = [evaluate(d, work.decode(1, 65536)) for d in deployments]
    assert steps[0].totals.kv_read_bytes == pytest.approx(steps[1].totals.kv_read_bytes * 5632 / 65536)
    held = [d.engine.capacity(d.question()).kv_bytes_per_token_per_gpu for d in deployments]
    assert held[0] == pytest.approx(held[1] * (1 + 1 / 16))


PROFILE = """\
id: sparse-toy
name: Sparse toy
family: test
hidden_size: 1024
vocab_size: 32000
layer_kinds:
  decoder:
    mixers:
      - {kind: native-sparse, num_attention_heads: 16, num_key_value_heads: 2, head_dim: 64, compressed_block: 32, stride: 16, block: 64,
         selected_blocks: 16, window: 512, compressor_parameters: 8192}
    feed_forwards:
      - {kind: dense, intermediate_size: 4096}
stack:
  - {repeat: 8, layers: [decoder]}
storage: {dtype: bf16}
"""


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang", "llama.cpp", "tensorrt-llm"])
def test_a_profile_of_the_kind_is_answered(tmp_path, engine):
    path = tmp_path / "sparse-toy.yaml"
    path.write_text(PROFILE)
    found = answered("roofline", str(path), "h100-sxm5-80gb", "--context-len", "64k", "--engine", engine, "--json").json["results"]
    names = {o["name"] for o in found["decode"]["operators"]}
    assert {
        "attention_compressed",
        "attention_selected",
        "attention_window",
        "compress_kv",
        "branch_gate",
        "branch_kv_proj",
    } <= names
    assert found["decode"]["time_s"]["floor"] > 0


def test_a_profile_without_a_stride_is_refused_with_the_field(tmp_path):
    path = tmp_path / "sparse-toy.yaml"
    path.write_text(PROFILE.replace(" stride: 16,", ""))
    outcome = run("estimate", str(path), "h100-sxm5-80gb")
    assert outcome.code == 3
    assert "stride" in outcome.stderr
