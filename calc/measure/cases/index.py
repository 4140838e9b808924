"""Kernels of sparse attention's own operators: how many keys a query is scored against follows from the step."""

from __future__ import annotations

from typing import Any

from calc.operators.compressed_attention import compresses
from calc.operators.operator import Operator
from calc.operators.work import Work, window_keys
from calc.profiles.model import BlockSparseAttention, CompressedAttention, Indexer, LatentAttention, ModelProfile

NAMES = ("index_score", "index_topk", "compressor", "index_compressor")


def choose(operator: Operator, model: ModelProfile, step: Work) -> tuple[str, dict[str, Any], dict[str, Any]] | str:
    """(kernel, shape, parameters) of an operator named in ``NAMES``, or the reason why it has no kernel."""
    kind = model.layer_kinds.get(operator.layers)
    mixers = [
        m for m in (kind.mixers if kind else ()) if isinstance(m, BlockSparseAttention | CompressedAttention | LatentAttention)
    ]
    if len(mixers) != 1 or len(step.groups) != 1:
        return "requests or mixers of several kinds have no kernel yet"
    mixer, group = mixers[0], step.groups[0]
    new, cached, count = int(group.new), int(group.cached), int(group.count)
    if operator.name in ("compressor", "index_compressor"):
        if not isinstance(mixer, CompressedAttention):
            return "its ratio is not known"
        entries = count * ((cached + new) // mixer.ratio - cached // mixer.ratio)
        rows = {"m": int(operator.shape["m"]), "n": int(operator.shape["n"])}
        return "compressor", rows, {"entries": entries, "ratio": mixer.ratio}
    seen = _scored(mixer, new, cached)
    if seen < 1:
        return "no entry is complete yet: there is nothing to score"
    if operator.name == "index_topk":
        top = int(operator.shape["topk"])
        return "index_topk", {"m": count * new, "kv": seen}, {"top": min(top, seen)}
    sizes = {"b": count, "q": new, "kv": seen, "h": int(operator.shape["heads"]), "d": int(operator.shape["head_dim"])}
    if isinstance(mixer, BlockSparseAttention):
        return "block_score", sizes, {"block": mixer.block, "top": mixer.topk_blocks}
    return "index_score", sizes, {}


def rotated(mixer: Any) -> tuple[int, int] | None:
    """(head size, turned part of it) of index queries and keys; None for a mixer without an index."""
    if isinstance(mixer, BlockSparseAttention):
        return mixer.index_head_dim, min(mixer.index_head_dim, mixer.rotary_dim or mixer.index_head_dim)
    indexer: Indexer | None = getattr(mixer, "indexer", None)
    if indexer is None:
        return None
    turned = mixer.qk_rope_head_dim if isinstance(mixer, LatentAttention) else mixer.rotary_dim
    return indexer.head_dim, min(indexer.head_dim, turned or indexer.head_dim)


def _scored(mixer: BlockSparseAttention | CompressedAttention | LatentAttention, new: int, cached: int) -> int:
    """Index keys that a request's last query is scored against."""
    if isinstance(mixer, CompressedAttention):
        return (cached + new) // mixer.ratio if compresses(mixer) else 0
    if isinstance(mixer, LatentAttention) and mixer.window is not None:
        return int(window_keys(new, cached, mixer.window))
    return cached + new
