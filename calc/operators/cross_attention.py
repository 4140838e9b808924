"""Cross-attention of encoder-decoder and image-text models: decoder tokens attend to encoder positions cached once per request."""

from __future__ import annotations

from calc.operators import attention
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.weight import Weight, vector
from calc.profiles.model import CrossAttention


def weights(mixer: CrossAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: queries from decoder tokens, keys and values from the encoder's output."""
    heads, kv_heads = attention.local_heads(mixer, tensor)
    q, k = heads * mixer.head_dim, kv_heads * mixer.head_dim
    v = kv_heads * mixer.value_dim
    bias_kv = (k if mixer.k_bias else 0) + (v if mixer.v_bias else 0)
    found = [
        Weight("q_proj", "attention", mixer.input_size or hidden_size, q, bias=q if mixer.q_bias else 0),
        Weight("kv_proj", "attention", mixer.source_size or hidden_size, k + v, bias=bias_kv),
        *attention.norm_weights(mixer, heads, kv_heads),
    ]
    if mixer.tanh_gate:  # Llama 3.2 Vision: one gate on the attention, one on the layer's feed-forward network
        found.append(vector("tanh_gates", 2, "attention"))
    bias = hidden_size if mixer.o_bias else 0
    return [*found, Weight("o_proj", "attention", heads * mixer.value_dim, hidden_size, bias=bias)]


def cache_law(mixer: CrossAttention, hidden_size: int, tensor: int) -> CacheLaw:
    """Keys and values of the encoder positions, constant during decoding."""
    _, kv_heads = attention.local_heads(mixer, tensor)
    keys, values = (kv_heads, mixer.head_dim), (kv_heads, mixer.value_dim)
    return CacheLaw("cross", (keys,), (values,), fixed_tokens=mixer.source_tokens)


def operators(mixer: CrossAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer. Keys and values are made only in the step in which the encoder ran; every step reads them."""
    _, kv_heads = attention.local_heads(mixer, ctx.sharding.tensor)
    held = {w.name: w for w in weights(mixer, ctx.hidden_size, ctx.sharding.tensor)}
    written = mixer.source_tokens * sum(g.count for g in ctx.work.groups if g.writes_source)
    makes_keys = any(g.writes_source for g in ctx.work.groups)
    token_bytes = attention.vector_bytes(mixer, kv_heads, ctx)
    kv_width = held["kv_proj"].d_out
    fused_write = not ctx.policy.kv_write
    found = [ctx.linear(held["q_proj"])]
    if makes_keys:
        found.append(
            ctx.linear(
                held["kv_proj"],
                written,
                written=0 if fused_write else None,
                makes_kv_bytes=written * token_bytes,
            )
        )
        if not fused_write:
            found.append(ctx.kv_cache_write(kv_width, written * token_bytes, written))
    if mixer.qk_norm != "none":
        q = held["q_proj"].d_out
        found.append(ctx.elementwise("q_norm", q, q, vector_flops=4 * ctx.tokens * q, moves=ctx.policy.position))
    keys = ctx.work.sequences * mixer.source_tokens
    stored = written * token_bytes
    found.append(attention.core(mixer, ctx, ctx.tokens * mixer.source_tokens, keys, token_bytes=token_bytes, stored_bytes=stored))
    return [*found, ctx.linear(held["o_proj"])]
