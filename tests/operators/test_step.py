"""The whole step: encoders, encoder-only models, embeddings and logits, pipeline and tensor parallelism."""

from __future__ import annotations

import subprocess
import sys

import pytest

from calc.errors import UsageError
from calc.operators import work
from calc.operators.parameters import count_parameters, model_weights
from calc.operators.sharding import Sharding
from calc.operators.step import is_encoder_only
from calc.profiles.model import (
    Block,
    CrossAttention,
    DenseFeedForward,
    Encoder,
    FullAttention,
    LayerKind,
    ModelProfile,
    SlidingAttention,
)
from tests.operators import architectures as known
from tests.operators.builders import model, operator, step, total, uniform

HEADS = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8}
FFN = DenseFeedForward(intermediate_size=128, gated=False)


def encoder_decoder() -> ModelProfile:
    kinds = {
        "encoder": LayerKind(mixers=[FullAttention(**HEADS, causal=False)], feed_forwards=[FFN]),
        "decoder": LayerKind(
            mixers=[FullAttention(**HEADS), CrossAttention(**HEADS, source_tokens=30)], feed_forwards=[FFN], norms=3
        ),
    }
    encoder = Encoder(stack=[Block(repeat=4, layers=["encoder"])], tokens=30)
    return model(64, 1000, kinds, [Block(repeat=2, layers=["decoder"])], encoder=encoder)


def bert() -> ModelProfile:
    return uniform(64, 1000, 3, [FullAttention(**HEADS, causal=False)], [FFN])


def test_the_encoder_runs_once_per_request() -> None:
    profile = encoder_decoder()
    first = step(profile, work.prefill(5, 7))
    inside = [o for o in first if o.layers == "encoder"]
    assert operator([o for o in inside if o.op_class == "attention"], "attention").flops == 2 * 5 * 8 * 16 * 30 * 30
    up = operator(inside, "up_proj")
    assert (up.count, up.flops) == (4, 2 * 5 * 30 * 64 * 128)
    assert operator(inside, "encoder_norm").shape["m"] == 150
    decode = step(profile, work.decode(5, 7))
    assert not [o for o in decode if o.layers == "encoder"]
    # The encoder's weights are streamed in prefill only.
    assert total(first, "weight_bytes") > total(decode, "weight_bytes") + 2 * 4 * 8 * 64 * 64


def test_mixed_steps_encode_only_new_requests() -> None:
    mixed = step(encoder_decoder(), work.mixed(work.prefill(1, 7), work.decode(9, 40)))
    assert operator([o for o in mixed if o.layers == "encoder"], "up_proj").shape["m"] == 30


def test_encoder_weights_are_part_of_the_total() -> None:
    profile = encoder_decoder()
    layer = 4 * 64 * 64 + 2 * 64 * 128 + 2 * 64
    assert count_parameters(profile).by_part["encoder"] == 4 * layer + 64


def test_encoder_only_models_have_no_decode_step() -> None:
    assert is_encoder_only(bert())
    assert not is_encoder_only(encoder_decoder())
    assert not is_encoder_only(known.jamba())
    assert not is_encoder_only(known.lfm2())
    assert total(step(bert(), work.prefill(2, 10)), "kv_write_bytes") == 0
    for done in (work.decode(1, 10), work.mixed(work.prefill(1, 4), work.decode(1, 10))):
        with pytest.raises(UsageError, match="no decode step"):
            step(bert(), done)


def test_the_embedding_is_looked_up_and_the_head_is_read() -> None:
    """A step streams every matrix but the embedding table; logits are made for one row per request."""
    profile = known.LLAMA_8B
    for done, rows in ((work.prefill(3, 100), 3), (work.decode(3, 100), 3), (work.decode(3, 100, 4), 12)):
        operators = step(profile, done)
        streamed = total([o for o in operators if o.op_class in ("gemm", "experts")], "weight_bytes")
        assert streamed == 2 * (8_030_261_248 - 128256 * 4096 - 65 * 4096)
        assert operator(operators, "embedding").weight_bytes == 0
        assert operator(operators, "lm_head").flops == 2 * rows * 4096 * 128256


def test_linear_flops_per_token_are_twice_the_active_matrices() -> None:
    """Excluding the embedding table, norms and other vectors; of a mixture only the experts that a token passes."""
    for profile in (known.LLAMA_8B, known.MIXTRAL, known.QWEN3_NEXT):
        operators = step(profile, work.decode(1, 1))
        linear = total([o for o in operators if o.op_class in ("gemm", "experts")], "flops")
        aside = sum(h.count * h.weight.elements for h in model_weights(profile) if h.weight.vector or h.weight.use == "table")
        assert linear == pytest.approx(2 * (count_parameters(profile).active - aside), rel=1e-12)


@pytest.mark.parametrize("tensor", [2, 4])
def test_tensor_parallel_ranks_share_the_flops(tensor: int) -> None:
    """MHA models divide exactly; the collectives move what rank sums need."""
    profile = uniform(64, 1024, 2, [FullAttention(**HEADS)], [FFN])
    alone = step(profile, work.prefill(2, 100))
    rank = step(profile, work.prefill(2, 100), sharding=Sharding(tensor=tensor))
    assert tensor * total(rank, "flops") == total(alone, "flops")
    reductions = [o for o in rank if o.name == "all_reduce" and o.layers == "layer"]
    assert sum(o.count for o in reductions) == 4


def test_indivisible_heads_are_refused_with_what_would_divide() -> None:
    with pytest.raises(UsageError, match="tensor parallel size 3") as caught:
        step(bert(), work.prefill(1, 4), sharding=Sharding(tensor=3))
    assert "sizes that do" in (caught.value.hint or "")


def test_windows_differ_from_full_layers_only_past_the_window() -> None:
    full = uniform(64, 1000, 1, [FullAttention(**HEADS)], [FFN])
    window = uniform(64, 1000, 1, [SlidingAttention(**HEADS, window=50)], [FFN])
    for context, equal in ((50, True), (51, False)):
        a, b = (total(step(p, work.decode(1, context)), "kv_read_bytes") for p in (full, window))
        assert (a == b) is equal


def test_plain_numbers_do_not_load_numpy() -> None:
    """A single estimate pays for no array library."""
    code = (
        "import sys; from calc.operators import layer_kinds as k; from importlib import import_module;"
        "[import_module(f'calc.operators.{m}') for m in {*k.MIXER_MODULES.values(), *k.FEED_FORWARD_MODULES.values()}];"
        "from tests.operators import architectures as a; from tests.operators.builders import step; from calc.operators import work;"
        "[step(p, w) for p in (a.DEEPSEEK_V32, a.QWEN3_NEXT, a.jamba(), a.kimi_linear(), a.lfm2(), a.recurrent_gemma_2b())"
        " for w in (work.prefill(2, 300), work.decode(3, 5000))];"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
