"""Attention of one layer from its tensors: grouped heads in separate or fused projections, and latent attention."""

from __future__ import annotations

from typing import Any

from calc.errors import ProfileError
from calc.profiles.importers.gguf.stack import Stack
from calc.profiles.importers.gguf.tensor_list import Group
from calc.profiles.importers.gguf.tensor_types import Tensor
from calc.profiles.model import ChunkedAttention, FullAttention, Indexer, LatentAttention, Mixer, SlidingAttention

ROLE = "attention"


def has_attention(layer: Group) -> bool:
    """Whether a layer holds query projections."""
    return any(name in layer for name in ("attn_q.weight", "attn_qkv.weight", "attn_q_a.weight"))


def attention(stack: Stack, layer: Group, index: int) -> Mixer:
    """The attention mixer of a layer; its tensors are taken."""
    return latent(stack, layer) if "attn_kv_a_mqa.weight" in layer else grouped(stack, layer, index)


# --- grouped heads ----------------------------------------------------------------------------------------------------------


def grouped(stack: Stack, layer: Group, index: int) -> Mixer:
    """Softmax attention over per-head keys and values."""
    heads, kv_heads = stack.heads[index], stack.kv_heads[index]
    if not heads or not kv_heads or heads % kv_heads:
        key = "attention.head_count" if not heads else "attention.head_count_kv"
        raise stack.config.fault(key, f"gives layer {index} {heads:,} query and {kv_heads:,} key-value heads")
    key_dim, value_dim = stack.head_dims(index)
    shared = index >= stack.shared_from
    fields: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": key_dim,
        "causal": stack.causal,
        "kv_source": "shared" if shared else "own",
    }
    if value_dim != key_dim:
        fields["v_head_dim"] = value_dim
    widths = (heads * key_dim, kv_heads * key_dim, kv_heads * value_dim)
    fields |= _fused(stack, layer, widths) if "attn_qkv.weight" in layer else _separate(stack, layer, widths, shared=shared)
    fields |= _output(stack, layer, heads * value_dim)
    fields |= _norms(layer, widths, key_dim)
    gate = layer.take("attn_gate.weight", ROLE)
    if gate:
        fields["output_gate"] = _gate_kind(layer, gate, heads, heads * value_dim)
    sinks = layer.take("attn_sinks.weight", ROLE)
    if sinks:
        fields["sinks"] = _is_wide(layer, sinks, heads)
    fields["positions"] = stack.positions(index)
    if fields["positions"] == "rotary":
        fields["rotary_dim"] = stack.rotary_dim(index, key_dim)
    window = stack.windows[index]
    if window is None:
        return FullAttention(**fields)
    return ChunkedAttention(**fields, chunk=window) if stack.architecture.chunked else SlidingAttention(**fields, window=window)


def _is_wide(layer: Group, tensor: Tensor, width: int) -> bool:
    if tensor.elements != width:
        raise layer.ledger.fault(tensor, f"has {tensor.elements:,} elements; {width:,} are expected")
    return True


def _fused(stack: Stack, layer: Group, widths: tuple[int, int, int]) -> dict[str, Any]:
    tensor = layer.need("attn_qkv.weight", ROLE)
    total = sum(widths)
    if tensor.d_out != total:
        raise layer.ledger.fault(tensor, f"has {tensor.d_out:,} columns; heads and key-value heads make {total:,}")
    biased = layer.bias("attn_qkv", ROLE, total)
    return {"q_bias": biased, "k_bias": biased, "v_bias": biased, **_input(stack, tensor)}


def _separate(stack: Stack, layer: Group, widths: tuple[int, int, int], *, shared: bool) -> dict[str, Any]:
    """Three projections. Keys may serve as values (no value tensor); layers with another's cache may lack both."""
    tensors = {letter: layer.take(f"attn_{letter}.weight", ROLE) for letter in "qkv"}
    query, keys, values = tensors["q"], tensors["k"], tensors["v"]
    if query is None or (keys is None and not shared):
        layer.need("attn_q.weight" if query is None else "attn_k.weight", ROLE)
        raise AssertionError  # need has raised
    gated = stack.architecture.gated_query and query.d_out == 2 * widths[0]
    expected = (2 * widths[0] if gated else widths[0], widths[1], widths[2])
    found: dict[str, Any] = {"output_gate": "elementwise"} if gated else {}
    for letter, width in zip("qkv", expected, strict=True):
        tensor = tensors[letter]
        if tensor is None:
            continue
        if tensor.d_out != width:
            raise layer.ledger.fault(tensor, f"has {tensor.d_out:,} columns; heads and head size make {width:,}")
        found[f"{letter}_bias"] = layer.bias(f"attn_{letter}", ROLE, width)
    if keys is None:
        found["kv_weights_stored"] = False
    elif values is None:
        if widths[1] != widths[2]:
            raise layer.ledger.fault(keys, "has no value projection beside it, and keys and values differ in width")
        found["k_eq_v"] = True
    return found | _input(stack, query)


def _input(stack: Stack, tensor: Tensor) -> dict[str, Any]:
    return {"input_size": tensor.d_in} if tensor.d_in != stack.hidden_size else {}


def _output(stack: Stack, layer: Group, width: int) -> dict[str, Any]:
    tensor = layer.need("attn_output.weight", ROLE)
    if tensor.d_in != width or tensor.d_out != stack.hidden_size:
        raise layer.ledger.fault(tensor, f"is {tensor.d_in:,} x {tensor.d_out:,}; {width:,} x {stack.hidden_size:,} is expected")
    return {"o_bias": layer.bias("attn_output", ROLE, stack.hidden_size)}


def _norms(layer: Group, widths: tuple[int, int, int], head_dim: int) -> dict[str, Any]:
    """Norms of queries and keys: one head wide, or as wide as the projections."""
    query = layer.take("attn_q_norm.weight", "norm")
    if query is None:
        return {}
    kind = "head" if query.elements == head_dim else "projection"
    expected = (head_dim, head_dim) if kind == "head" else widths[:2]
    _is_wide(layer, query, expected[0])
    keys = layer.take("attn_k_norm.weight", "norm")
    if keys:
        _is_wide(layer, keys, expected[1])
    biased = layer.bias("attn_q_norm", "norm", expected[0])
    if keys:
        layer.bias("attn_k_norm", "norm", expected[1])
    return {"qk_norm": kind, "qk_norm_bias": biased}


def _gate_kind(layer: Group, gate: Tensor, heads: int, width: int) -> str:
    if gate.d_out not in (heads, width):
        raise layer.ledger.fault(
            gate, f"has {gate.d_out:,} columns; a gate has one per head ({heads:,}) or per element ({width:,})"
        )
    return "head" if gate.d_out == heads else "elementwise"


# --- latent attention -------------------------------------------------------------------------------------------------------


def latent(stack: Stack, layer: Group) -> LatentAttention:
    """Multi-head latent attention. Keys and values are expanded by one matrix, or by one each where the file was made for the absorbed
    form; newer files give head sizes of the expanded form under ``_mla`` keys and those of the cache under the plain ones."""
    c = stack.config
    compressed = layer.need("attn_kv_a_mqa.weight", ROLE)
    norm = layer.need("attn_kv_a_norm.weight", "norm")
    rank = norm.elements
    rope = compressed.d_out - rank
    c.ignore("attention.kv_lora_rank", "attention.q_lora_rank", "attention.key_length", "attention.value_length")
    key = c.optional("attention.key_length_mla") or c.integer("attention.key_length")
    values = c.optional("attention.value_length_mla") or c.integer("attention.value_length")
    if rope < 0 or key <= rope:
        raise c.fault("attention.key_length", f"is {key:,}; {rope:,} elements of a head carry positions")
    heads = _latent_output(stack, layer, values)
    rank_q = _latent_query(layer, heads * key)
    _expansion(layer, rank, heads, key - rope, values)
    return LatentAttention(
        num_attention_heads=heads,
        q_lora_rank=rank_q,
        kv_lora_rank=rank,
        qk_nope_head_dim=key - rope,
        qk_rope_head_dim=rope,
        v_head_dim=values,
        o_bias=layer.bias("attn_output", ROLE, stack.hidden_size),
        indexer=_indexer(stack, layer),
    )


def _latent_output(stack: Stack, layer: Group, value_dim: int) -> int:
    """Heads, by the output projection: in files for the absorbed form the metadata count one key-value head."""
    out = layer.need("attn_output.weight", ROLE)
    if out.d_in % value_dim or out.d_out != stack.hidden_size:
        raise layer.ledger.fault(out, f"is {out.d_in:,} x {out.d_out:,}; whole heads of {value_dim:,} are expected")
    return out.d_in // value_dim


def _latent_query(layer: Group, width: int) -> int | None:
    """Rank of the query; None for a full projection."""
    down = layer.take("attn_q_a.weight", ROLE)
    up = layer.need("attn_q_b.weight" if down else "attn_q.weight", ROLE)
    if up.d_out != width:
        raise layer.ledger.fault(up, f"has {up.d_out:,} columns; heads and head size make {width:,}")
    if down is None:
        return None
    layer.need("attn_q_a_norm.weight", "norm")
    return down.d_out


def _expansion(layer: Group, rank: int, heads: int, nope: int, values: int) -> None:
    parts = [layer.take(f"attn_{letter}_b.weight", ROLE) for letter in "kv"]
    whole = layer.take("attn_kv_b.weight", ROLE, beyond="a second copy of kv_b" if all(parts) else None)
    expected = rank * heads * (nope + values)
    held = sum(t.elements for t in parts if t) if all(parts) else whole.elements if whole else 0
    if held != expected:
        raise ProfileError(
            f"{layer.ledger.name}: attn_kv_b (or attn_k_b and attn_v_b) holds {held:,} elements; heads and sizes make {expected:,}",
            "the tensor list and the metadata contradict each other",
        )


def _indexer(stack: Stack, layer: Group) -> Indexer | None:
    query = layer.take("indexer.attn_q_b.weight", ROLE)
    if query is None:
        return None
    keys, weights = layer.need("indexer.attn_k.weight", ROLE), layer.need("indexer.proj.weight", ROLE)
    layer.need("indexer.k_norm.weight", "norm")
    layer.bias("indexer.k_norm", "norm", keys.d_out)
    if query.d_out != weights.d_out * keys.d_out:
        raise layer.ledger.fault(query, f"has {query.d_out:,} columns; {weights.d_out:,} heads of {keys.d_out:,} are expected")
    stack.config.ignore("attention.indexer.head_count", "attention.indexer.key_length")
    return Indexer(num_heads=weights.d_out, head_dim=keys.d_out, topk=stack.config.integer("attention.indexer.top_k"))
