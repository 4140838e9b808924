"""Multi-head latent attention (MLA): one compressed vector per token is cached, whole on every tensor-parallel rank.

Sources: DeepSeek-V2 arXiv 2405.04434, DeepSeek-V3 arXiv 2412.19437; vLLM `vllm/model_executor/layers/attention/mla_attention.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, minimum, where
from calc.operators import indexer as lightning
from calc.operators import work as step_work
from calc.operators.cache_law import CacheLaw
from calc.operators.choice import label
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.sharding import split_evenly
from calc.operators.weight import Weight, vector
from calc.profiles.model import LatentAttention


def weights(mixer: LatentAttention, hidden_size: int, tensor: int) -> list[Weight]:
    """Weight tensors of one rank: down projections are replicated, what spreads over heads is split."""
    heads = split_evenly(mixer.num_attention_heads, tensor, "attention heads")
    latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    q = heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    found: list[Weight] = []
    if mixer.q_lora_rank:
        bias = mixer.q_lora_rank if mixer.q_bias else 0
        found.append(Weight("fused_qkv_a_proj", "attention", hidden_size, mixer.q_lora_rank + latent, bias=bias))
        found.append(vector("q_a_norm", mixer.q_lora_rank))
        found.append(Weight("q_b_proj", "attention", mixer.q_lora_rank, q))
    else:
        found.append(Weight("q_proj", "attention", hidden_size, q, bias=q if mixer.q_bias else 0))
        found.append(Weight("kv_a_proj", "attention", hidden_size, latent))
    found.append(vector("kv_a_norm", mixer.kv_lora_rank))
    found.append(Weight("kv_b_proj", "attention", mixer.kv_lora_rank, heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)))
    if mixer.output_gate != "none":
        width = heads * (mixer.v_head_dim if mixer.output_gate == "elementwise" else 1)
        found.append(Weight("output_gate", "attention", hidden_size, width))
    if mixer.indexer is not None:
        found += lightning.weights(mixer.indexer, hidden_size, mixer.q_lora_rank)
    bias = hidden_size if mixer.o_bias else 0
    return [*found, Weight("o_proj", "attention", heads * mixer.v_head_dim, hidden_size, bias=bias)]


def cache_law(mixer: LatentAttention, hidden_size: int, tensor: int) -> CacheLaw:
    """One latent vector with its rotary part per token, not doubled and not divided; index keys beside it where scored here."""
    latent = (1, mixer.kv_lora_rank + mixer.qk_rope_head_dim)
    return CacheLaw(
        "latent" if mixer.window is None else "sliding",
        (latent,),
        limit=mixer.window,
        extra_bytes_per_token=lightning.key_bytes(mixer.indexer),
    )


@dataclass(frozen=True, slots=True)
class Form:
    """What one form does in a step: new tokens, visible pairs and distinct keys of the requests that take it."""

    tokens: Number
    pairs: Number
    keys: Number


@dataclass(frozen=True, slots=True)
class Paths:
    """The requests of a step by form: ``naive`` expands latents to keys and values, ``absorbed`` attends to them as they are."""

    naive: Form
    absorbed: Form
    path: str

    @property
    def rows(self) -> Number:
        """Rows through kv_b_proj: every visible latent to be expanded, or every new token's queries and output."""
        return self.naive.keys + self.absorbed.tokens


def pair_flops(mixer: LatentAttention, heads: int) -> tuple[int, int, int]:
    """FLOP of (one row through kv_b_proj, one pair in the naive form, one pair in the absorbed form)."""
    nope, rope, values, latent = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim, mixer.kv_lora_rank
    return 2 * latent * heads * (nope + values), 2 * heads * (nope + rope + values), 2 * heads * (2 * latent + rope)


def visible(mixer: LatentAttention, new: Number, cached: Number) -> tuple[Number, Number]:
    """(pairs, distinct keys read) of one request: all earlier tokens, a window, or the selection of the indexer."""
    reach = min((w for w in (mixer.window, mixer.indexer and mixer.indexer.topk) if w), default=None)
    if reach is None:
        return step_work.causal_pairs(new, cached), cached + new
    # Rows of a selection overlap as those of a window do: the fewest distinct keys that can serve the queries.
    return step_work.window_pairs(new, cached, reach), step_work.window_keys(new, cached, reach)


def paths(mixer: LatentAttention, heads: int, work: step_work.Work) -> Paths:
    """Choose the cheaper form by FLOP for each request. Past the indexer's topk only the absorbed form can gather its rows."""
    row, naive_pair, absorbed_pair = pair_flops(mixer, heads)
    empty = (0, 0, 0)
    naive_sum: tuple[Number, ...] = empty
    absorbed_sum: tuple[Number, ...] = empty
    flags = []
    for group in work.groups:
        pairs, keys = visible(mixer, group.new, group.cached)
        naive = keys * row + pairs * naive_pair < group.new * row + pairs * absorbed_pair
        if mixer.indexer is not None:
            naive = naive & (group.cached + group.new <= mixer.indexer.topk)
        flags.append(naive)
        figures = (group.count * group.new, group.count * pairs, group.count * keys)
        naive_sum = tuple(s + where(naive, f, 0) for s, f in zip(naive_sum, figures, strict=True))
        absorbed_sum = tuple(s + where(naive, 0, f) for s, f in zip(absorbed_sum, figures, strict=True))
    return Paths(Form(*naive_sum), Form(*absorbed_sum), label(flags, "naive", "absorbed"))


def operators(mixer: LatentAttention, ctx: LayerContext) -> list[Operator]:
    """Operators of one mixer: projections, indexer, expansion or absorption through kv_b_proj, attention, output projection."""
    tensor = ctx.sharding.tensor
    held = {w.name: w for w in weights(mixer, ctx.hidden_size, tensor)}
    heads = split_evenly(mixer.num_attention_heads, tensor, "attention heads")
    latent, rope = mixer.kv_lora_rank, mixer.qk_rope_head_dim
    chosen = paths(mixer, heads, ctx.work)
    row_bytes = ctx.numbers.keys.vector_bytes(latent + rope)
    written, fused_write = ctx.tokens * row_bytes, not ctx.policy.kv_write
    found: list[Operator] = []
    for name in ("fused_qkv_a_proj", "q_proj", "kv_a_proj", "q_b_proj"):
        if name in held:
            stores = fused_write and name in ("fused_qkv_a_proj", "kv_a_proj")
            kept = held[name].d_out - (latent + rope if stores else 0)
            makes = name in ("fused_qkv_a_proj", "kv_a_proj")
            found.append(ctx.linear(held[name], written=kept, makes_kv_bytes=written if makes else 0))
    normed = latent + (mixer.q_lora_rank or 0)
    found.append(
        ctx.elementwise(
            "latent_norm", normed, normed, vector_flops=4 * ctx.tokens * normed, weight_bytes=2 * normed, moves=ctx.policy.norm
        )
    )
    if rope:
        width = (heads + 1) * rope
        found.append(ctx.elementwise("rope", width, width, vector_flops=3 * ctx.tokens * width, moves=ctx.policy.position))
    if not fused_write:
        found.append(ctx.kv_cache_write(latent + rope, written))
    found += _indexer(mixer, ctx)
    found.append(_kv_b(held["kv_b_proj"], mixer, ctx, heads, chosen, row_bytes))
    found += [_core(mixer, part, heads, paths(mixer, heads, part.work), row_bytes) for part in ctx.parts()]
    if "output_gate" in held:
        out = held["o_proj"].d_in
        found.append(ctx.linear(held["output_gate"]))
        found.append(
            ctx.elementwise(
                "output_gate_mul",
                out + held["output_gate"].d_out,
                out,
                vector_flops=ctx.tokens * out,
                exponentials=ctx.tokens * held["output_gate"].d_out,
                moves=ctx.policy.activation,
            )
        )
    return [*found, ctx.linear(held["o_proj"])]


def _indexer(mixer: LatentAttention, ctx: LayerContext) -> list[Operator]:
    if mixer.indexer is None or not lightning.owns(mixer.indexer):
        return []
    pairs: Number = 0
    keys: Number = 0
    for group in ctx.work.groups:
        context = group.cached + group.new
        if mixer.window is None:
            seen, read = step_work.causal_pairs(group.new, group.cached), context
        else:
            seen = step_work.window_pairs(group.new, group.cached, mixer.window)
            read = step_work.window_keys(group.new, group.cached, mixer.window)
        pairs, keys = pairs + group.count * seen, keys + group.count * read
    projections = lightning.weights(mixer.indexer, ctx.hidden_size, mixer.q_lora_rank)
    return lightning.operators(mixer.indexer, ctx, projections, pairs=pairs, keys=keys, new_keys=ctx.tokens)


def _kv_b(weight: Weight, mixer: LatentAttention, ctx: LayerContext, heads: int, chosen: Paths, row_bytes: float) -> Operator:
    """Naive: cached latents are read and expanded into a workspace of keys and values. Absorbed: the same matrices, head by head,
    fold the queries into latent width and unfold the output."""
    nope, rope, values, latent = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim, mixer.kv_lora_rank
    per_head = chosen.naive.keys * (nope + rope + values) + chosen.absorbed.tokens * (nope + 2 * latent + values)
    number_format = ctx.numbers.weight(weight.role)
    return Operator(
        weight.name,
        "gemm",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {"m": chosen.rows, "n": weight.d_out, "k": weight.d_in},
        ctx.numbers.compute_for(weight.role),
        flops=2 * chosen.rows * weight.d_in * weight.d_out,
        weight_bytes=weight.bytes(number_format),
        activation_bytes=heads * per_head * ctx.activation,
        kv_read_bytes=chosen.naive.keys * row_bytes,
        new_kv_read_bytes=minimum(chosen.naive.keys, chosen.naive.tokens) * row_bytes,
        stored_kv_bytes=chosen.naive.tokens * row_bytes,
        weight_format=number_format.name,
        detail={"path": chosen.path},
    )


def _core(mixer: LatentAttention, ctx: LayerContext, heads: int, chosen: Paths, row_bytes: float) -> Operator:
    """The attention kernel: multi-head over the expanded workspace, or multi-query over the latents themselves."""
    nope, rope, values, latent = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim, mixer.v_head_dim, mixer.kv_lora_rank
    _, naive_pair, absorbed_pair = pair_flops(mixer, heads)
    naive, absorbed = chosen.naive, chosen.absorbed
    pairs = naive.pairs + absorbed.pairs
    expanded = absorbed.pairs <= 0  # a mixed step is shaped as its absorbed part
    per_head = (naive.tokens + naive.keys) * (nope + rope + values) + absorbed.tokens * (2 * latent + rope)
    detail: dict[str, Number | str] = {"path": chosen.path}
    if mixer.indexer is not None:
        detail["gathered_rows"] = absorbed.pairs  # rows that a kernel fetches one by one when nothing is shared in cache
    return Operator(
        "attention",
        "attention",
        ctx.layers,
        ctx.count,
        ctx.ranks,
        {
            "tokens": ctx.tokens,
            "sequences": ctx.work.sequences,
            "pairs": pairs,
            "keys": naive.keys + absorbed.keys,
            "heads": heads,
            "kv_heads": where(expanded, heads, 1),
            "head_dim": where(expanded, nope + rope, latent + rope),
            "v_head_dim": where(expanded, values, latent),
        },
        ctx.numbers.compute,
        flops=naive.pairs * naive_pair + absorbed.pairs * absorbed_pair,
        vector_flops=4 * heads * pairs,
        exponentials=heads * pairs,
        activation_bytes=heads * per_head * ctx.activation,
        kv_read_bytes=absorbed.keys * row_bytes,
        new_kv_read_bytes=minimum(absorbed.keys, absorbed.tokens) * row_bytes,
        stored_kv_bytes=absorbed.tokens * row_bytes,
        detail=detail,
    )
