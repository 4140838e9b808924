"""Recurrent mixers: FLOP of both forms against formulas written out, states read and written, convolutions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from calc.operators import work
from calc.operators.numbers import plan
from calc.operators.operator import Operator
from calc.operators.recurrent import STEPWISE_TOKENS
from calc.profiles.model import (
    ChannelMixing,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    RgLru,
    Rwkv,
    ShortConvolution,
)
from tests.operators.builders import cache_bytes, mixer_operators, operator, part_operators, total

MAMBA1 = Mamba1(inner_size=128, state_size=16, dt_rank=8, conv_kernel=4)
MAMBA2 = Mamba2(num_heads=8, head_dim=16, state_size=32, num_groups=2, conv_kernel=4, chunk=128)
GDN = GatedDeltaNet(num_key_heads=4, num_value_heads=8, key_head_dim=16, value_head_dim=24, conv_kernel=4, chunk=64)
KDA = KimiDeltaAttention(num_heads=8, head_dim=16, conv_kernel=4, chunk=64, decay_gate_rank=16, output_gate_rank=16)
LIGHTNING = LightningAttention(num_heads=8, head_dim=16, chunk=256)
RWKV5 = Rwkv(version=5, attention_size=64, head_dim=16)
RWKV6 = Rwkv(version=6, attention_size=64, head_dim=16, low_rank_parameters=64 * 24)
RWKV7 = Rwkv(version=7, attention_size=64, head_dim=16, low_rank_parameters=64 * 40)
RGLRU = RgLru(width=64, num_heads=8, conv_kernel=4)
SHORT = ShortConvolution(conv_kernel=3)
ALL = [MAMBA1, MAMBA2, GDN, KDA, LIGHTNING, RWKV5, RWKV6, RWKV7, RGLRU, SHORT]
CORES = ("selective_scan", "ssd_scan", "gated_delta_rule", "kimi_delta_rule", "lightning_attention", "rwkv_time_mix", "rg_lru")
IDS = [type(m).__name__ + str(getattr(m, "version", "")) for m in ALL]


def core(operators: list[Operator]) -> Operator:
    (found,) = [o for o in operators if o.name in CORES]
    return found


def delta(dk: int, dv: int, q: int) -> float:
    return 2 * q * (3 * dk + 2 * dv) + 6 * dk * dv + q * q / 3


#: FLOP per token of (the chunked form with chunks of q tokens, one token at a time).
FORMULAS: list[tuple[Mixer, Callable[[int], float], float]] = [
    (
        MAMBA2,
        lambda q: 2 * q * 32 * 2 + 2 * q * 16 * 8 + 4 * 8 * 16 * 32 + 2 * 8 * 16 * 32 / q,
        5 * 8 * 16 * 32,
    ),
    (GDN, lambda q: 8 * delta(16, 24, q), 8 * 7 * 16 * 24),
    (KDA, lambda q: 8 * delta(16, 16, q), 8 * 7 * 16 * 16),
    (LIGHTNING, lambda q: 8 * (4 * q * 16 + 4 * 16**2), 8 * 5 * 16**2),
    (RWKV5, lambda q: 4 * (4 * q * 16 + 4 * 16**2), 4 * 7 * 16**2),
    (RWKV6, lambda q: 4 * (4 * q * 16 + 4 * 16**2), 4 * 7 * 16**2),
    (RWKV7, lambda q: 4 * delta(16, 16, q), 4 * 9 * 16**2),
]


@pytest.mark.parametrize(("mixer", "chunked", "single"), FORMULAS, ids=[type(f[0]).__name__ for f in FORMULAS])
def test_flops_of_both_forms(mixer: Mixer, chunked: Callable[[int], float], single: float) -> None:
    chunk: int = mixer.chunk  # type: ignore[union-attr]
    long = core(mixer_operators(mixer, work.prefill(3, 2048)))
    assert long.flops == pytest.approx(3 * 2048 * chunked(chunk), rel=1e-12)
    assert long.detail["form"] == "chunked"
    short = core(mixer_operators(mixer, work.prefill(3, 100)))  # a prompt shorter than some chunks
    assert short.flops == pytest.approx(3 * 100 * chunked(min(chunk, 100)), rel=1e-12)
    for new in (1, 4, STEPWISE_TOKENS):
        step = core(mixer_operators(mixer, work.decode(3, 5000, new)))
        assert (step.flops, step.vector_flops) == (0, 3 * new * single)
        assert step.detail["form"] == "stepwise"


def test_kimi_decays_every_channel_on_the_vector_units() -> None:
    long = core(mixer_operators(KDA, work.prefill(1, 2048)))
    assert long.vector_flops == 2048 * 8 * 4 * 64 * 16


def test_scans_run_on_the_vector_units_in_both_phases() -> None:
    for done, tokens in ((work.prefill(2, 500), 1000), (work.decode(2, 500), 2)):
        scan = core(mixer_operators(MAMBA1, done))
        assert (scan.flops, scan.vector_flops, scan.exponentials) == (0, 7 * 128 * 16 * tokens, 128 * 16 * tokens)
        unit = mixer_operators(RGLRU, done)
        assert (core(unit).flops, core(unit).vector_flops) == (0, 10 * 64 * tokens)
        # Two block-diagonal gates: 4 w^2 / blocks.
        assert operator(unit, "gates").flops == 4 * 64 * 64 / 8 * tokens
        short = operator(mixer_operators(SHORT, done), "causal_conv1d")
        assert short.vector_flops == (2 * 3 * 64 + 2 * 64) * tokens


@pytest.mark.parametrize("mixer", ALL, ids=IDS)
@pytest.mark.parametrize("state_dtype", ["fp32", "bf16"])
def test_states_are_read_and_written_back_once_per_step(mixer: Mixer, state_dtype: str) -> None:
    """Twice the bytes that the sequence occupies, in prefill as in decode, whatever the context."""
    numbers = plan("bf16", {}, compute="bf16", state_dtype=state_dtype)
    held = cache_bytes(mixer, 1, numbers=numbers)
    for done in (work.decode(3, 10), work.decode(3, 100_000), work.prefill(3, 700), work.decode(3, 10, 4)):
        moved = total(mixer_operators(mixer, done, numbers=numbers), "state_bytes")
        if isinstance(mixer, Rwkv):  # the shift of channel mixing belongs to the feed-forward part
            moved += total(part_operators(ChannelMixing(intermediate_size=128), done, numbers=numbers), "state_bytes")
        assert moved == 2 * 3 * held


@pytest.mark.parametrize("mixer", [GDN, KDA, RWKV6], ids=lambda m: type(m).__name__)
def test_decode_intensity_of_an_fp32_state(mixer: Mixer) -> None:
    """7 FLOP per state element against 8 bytes: 0.875, at any batch."""
    for batch in (1, 64):
        found = core(mixer_operators(mixer, work.decode(batch, 1000)))
        assert found.vector_flops / found.state_bytes == 0.875


@pytest.mark.parametrize("mixer", ALL, ids=IDS)
def test_recurrent_layers_neither_read_nor_write_a_growing_cache(mixer: Mixer) -> None:
    for done in (work.prefill(2, 300), work.decode(2, 300)):
        found = mixer_operators(mixer, done)
        assert total(found, "kv_read_bytes") == total(found, "kv_write_bytes") == 0


@pytest.mark.parametrize(("mixer", "elements"), [(MAMBA2, 8 * 16 * 32), (GDN, 8 * 16 * 24)])
def test_chunk_states_are_traffic_but_not_compulsory(mixer: Mixer, elements: int) -> None:
    chunk: int = mixer.chunk  # type: ignore[union-attr]
    one, two = (core(mixer_operators(mixer, work.prefill(1, n * chunk))) for n in (2, 3))
    per_token = (one.activation_bytes - 2 * 2 * elements * 2) / (2 * chunk)
    assert two.activation_bytes == pytest.approx(per_token * 3 * chunk + 2 * 3 * elements * 2, rel=1e-12)
    assert one.state_bytes == two.state_bytes


def test_groups_are_replicated_when_fewer_than_ranks() -> None:
    mixer = Mamba2(num_heads=8, head_dim=16, state_size=32, num_groups=1, conv_kernel=4)
    whole, rank = (operator(mixer_operators(mixer, work.decode(1, 1), tensor=t), "in_proj").shape["n"] for t in (1, 4))
    assert whole == 2 * 128 + 2 * 32 + 8
    assert rank == 2 * 32 + 2 * 32 + 2
    assert cache_bytes(mixer, 1, tensor=4) == 2 * 16 * 32 * 4 + (32 + 64) * 3 * 2


def test_mamba1_sums_its_parameters_over_ranks() -> None:
    found = mixer_operators(MAMBA1, work.decode(5, 1), tensor=2)
    reduction = operator(found, "all_reduce")
    assert reduction.collective is not None
    assert reduction.collective.message_bytes == 5 * (8 + 2 * 16) * 2
    assert not [o for o in mixer_operators(MAMBA1, work.decode(5, 1)) if o.collective]


def test_convolutions_are_depthwise() -> None:
    conv = operator(mixer_operators(GDN, work.decode(5, 100)), "causal_conv1d")
    channels = 2 * 4 * 16 + 8 * 24
    assert conv.vector_flops == 5 * 2 * 4 * channels
    assert conv.state_bytes == 5 * 2 * 3 * channels * 2
    assert conv.weight_bytes == 2 * 4 * channels


def test_qwen3_next_layer_equals_full_attention_at_2096_tokens() -> None:
    """Context at which a full layer reads as many bytes as the linear layer reads and writes."""
    from tests.operators.architectures import QWEN3_NEXT, QWEN3_NEXT_LINEAR

    full = QWEN3_NEXT.layer_kinds["full"].mixers[0]
    linear_bytes = total(mixer_operators(QWEN3_NEXT_LINEAR, work.decode(1, 1), hidden_size=2048), "state_bytes")
    assert linear_bytes / cache_bytes(full, 1) == pytest.approx(2096, abs=0.5)
