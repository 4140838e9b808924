"""Which mask an attention operator needs, told from its own counts of visible pairs, so that kernel and prediction agree."""

from __future__ import annotations

from typing import Any

from calc.operators.compressed_attention import compresses, entries_seen
from calc.operators.operator import Operator
from calc.operators.work import causal_pairs, chunk_pairs, window_pairs
from calc.profiles.model import ChunkedAttention, CompressedAttention, Heads, ModelProfile, SlidingAttention

#: Kinds that keep a key and a value per head and token (chosen blocks lie side by side here), and compressed ones, whose one vector
#: is both.
_KINDS = ("full", "sliding", "chunked", "cross", "block-sparse", "compressed")
#: Multi-head latent attention: keys and values made from the latent, or the latent itself as one head that holds both.
_LATENT = ("naive", "absorbed")
_NEEDED = ("tokens", "sequences", "pairs", "keys", "heads", "kv_heads", "head_dim", "v_head_dim")


def kernel(operator: Operator, model: ModelProfile) -> tuple[str, dict[str, Any], dict[str, Any]] | str:
    """(kernel, shape, parameters) of a softmax attention, or the reason why it has no kernel."""
    shape, path = operator.shape, operator.detail.get("path")
    kind = operator.detail.get("mask", "full" if path in _LATENT else None)
    if kind not in _KINDS or any(key not in shape for key in _NEEDED):
        return f"no kernel for {operator.name} of this kind yet"
    sequences = int(shape["sequences"])
    tokens, keys, pairs = (int(shape[k]) for k in ("tokens", "keys", "pairs"))
    if tokens % sequences or keys % sequences or pairs % sequences or shape["heads"] % shape["kv_heads"]:
        return "requests of unequal length have no kernel yet"
    new, seen, visible = tokens // sequences, keys // sequences, pairs // sequences
    mask = _mask(operator, model, new, seen, visible)
    if mask is None:
        return f"which keys a query sees in {'latent' if path in _LATENT else kind} attention depends on the data here"
    sizes = {"b": sequences, "q": new, "kv": seen}
    heads = {"h": int(shape["heads"]), "hkv": int(shape["kv_heads"]), "d": int(shape["head_dim"]), "dv": int(shape["v_head_dim"])}
    return "attention", sizes | heads, mask | ({"shared": True} if path == "absorbed" or kind == "compressed" else {})


def _mask(operator: Operator, model: ModelProfile, new: int, seen: int, visible: int) -> dict[str, Any] | None:
    """Kind and limit of the mask whose visible pairs equal the operator's; None when no known mask does."""
    if visible == new * seen:
        return {"mask": "none"}
    if visible == causal_pairs(new, seen - new):
        return {"mask": "causal"}
    kind = model.layer_kinds.get(operator.layers)
    for mixer in kind.mixers if kind else ():
        if isinstance(mixer, CompressedAttention):
            entries = entries_seen(new, mixer.ratio) if compresses(mixer) else 0
            whole = seen == new + (new // mixer.ratio if compresses(mixer) else 0)
            if whole and visible == window_pairs(new, 0, mixer.window) + entries:
                return {"mask": "compressed", "limit": mixer.window, "ratio": mixer.ratio}
        if not isinstance(mixer, Heads):
            continue
        if isinstance(mixer, SlidingAttention) and visible == window_pairs(new, 0, mixer.window) and seen == new:
            return {"mask": "window", "limit": mixer.window}
        if isinstance(mixer, ChunkedAttention) and visible == chunk_pairs(new, 0, mixer.chunk) and seen == new:
            return {"mask": "chunk", "limit": mixer.chunk}
    return None
