"""Sparse attention's own kernels: scores of index keys, their selection, and the compressor of DeepSeek-V4. Plain torch.

A query is scored against all keys that the last one sees; pairs that a causal mask hides are computed, where engines skip them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import PLAIN, Call, Kernel
from calc.measure.kernels.workspace import Workspace

_ROWS = 4
_EPSILON = 1e-6


def score(case: Case, space: Workspace) -> Kernel:
    """ReLU of the products of each query head with the one head of index keys, summed over the heads with their weights."""
    torch = space.torch
    b, new, seen, heads, d = (case.shape[x] for x in ("b", "q", "kv", "h", "d"))
    keys = space.operands(b, seen, d)
    # Scores as of N(0, 1) operands, as in attention.
    query = space.normal(b, new * heads, d, deviation=1 / space.deviation)
    weights = space.normal(b, new, 1, heads)
    space.charge((2, b, new, heads, seen), space.element_bytes)

    def run(key: Any) -> Any:
        products = torch.matmul(query, key.transpose(1, 2)).relu_()
        return torch.matmul(weights, products.view(b, new, heads, seen))

    def compare() -> tuple[Any, Any]:
        got = run(keys[0])[-1, -1, 0]
        products = (query[-1, -heads:].float() @ keys[0][-1].float().t()).relu()
        return got, weights[-1, -1, 0].float() @ products

    calls: list[Call] = [partial(run, key) for key in keys]
    return Kernel(calls, compare, f"torch.matmul, relu, torch.matmul, {PLAIN}", 3, b * seen * d * space.element_bytes)


def block_score(case: Case, space: Workspace) -> Kernel:
    """Products of each query head with the index keys, the best of each block, and the choice of blocks."""
    torch = space.torch
    b, new, seen, heads, d = (case.shape[x] for x in ("b", "q", "kv", "h", "d"))
    block = min(case.parameters["block"], seen)
    blocks = seen // block
    top = min(case.parameters["top"], blocks)
    keys = space.operands(b, seen, d)
    query = space.normal(b, new * heads, d, deviation=1 / space.deviation)
    space.charge((2, b, new, heads, seen), space.element_bytes)

    def run(key: Any) -> Any:
        products = torch.matmul(query, key.transpose(1, 2))
        best = products[..., : blocks * block].view(b, new * heads, blocks, block).amax(-1)
        return best.topk(top, -1).values

    def compare() -> tuple[Any, Any]:
        got = run(keys[0])[-1, -1]
        products = query[-1, -1].float() @ keys[0][-1, : blocks * block].float().t()
        return got, products.view(blocks, block).amax(-1).sort(descending=True).values[:top]

    calls: list[Call] = [partial(run, key) for key in keys]
    words = f"torch.matmul, amax over blocks of {block}, topk of {top}, {PLAIN}"
    return Kernel(calls, compare, words, 3, b * seen * d * space.element_bytes)


def select(case: Case, space: Workspace) -> Kernel:
    """The best keys of each query by their fp32 scores."""
    rows, seen, top = case.shape["m"], case.shape["kv"], case.parameters["top"]
    scores = space.full(rows, seen)
    top = min(top, seen)
    call: Call = partial(space.torch.topk, scores, top, -1)

    def compare() -> tuple[Any, Any]:
        return call()[0][-_ROWS:], scores[-_ROWS:].sort(-1, descending=True).values[:, :top]

    space.charge((rows, 3 * top), 4)
    return Kernel([call], compare, f"torch.topk of {top}")


def compress(case: Case, space: Workspace) -> Kernel:
    """Softmax over the tokens of an entry of gates with a bias by position, the weighted sum of their values, a norm.

    A step that completes no entry only adds the position and keeps the tokens.
    """
    torch = space.torch
    m, wide, entries, ratio = case.shape["m"], case.shape["n"] // 2, case.parameters["entries"], case.parameters["ratio"]
    position, gain = space.normal(ratio, wide), space.normal(wide)
    if not entries:
        made, kept = space.normal(m, 2 * wide), space.empty(m, 2 * wide)
        offset = torch.cat((torch.zeros_like(position[:1]), position[:1]), -1)
        keep: Call = partial(torch.add, made, offset, out=kept)
        return Kernel([keep], lambda: (keep()[-1], made[-1].float() + offset[0].float()), "torch.add into the running block")
    values, gates = space.normal(entries, ratio, wide), space.normal(entries, ratio, wide)
    space.charge((3, entries, ratio, wide), space.element_bytes)

    def run() -> Any:
        pooled = ((gates + position).softmax(1) * values).sum(1)
        return torch.nn.functional.rms_norm(pooled, (wide,), gain, _EPSILON)

    def compare() -> tuple[Any, Any]:
        pooled = ((gates[-1].float() + position.float()).softmax(0) * values[-1].float()).sum(0)
        return run()[-1], pooled * (pooled.pow(2).mean() + _EPSILON).rsqrt() * gain.float()

    return Kernel([run], compare, f"softmax over {ratio} tokens of {entries} entries, functional.rms_norm, {PLAIN}", 5)
