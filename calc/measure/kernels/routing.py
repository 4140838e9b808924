"""Choosing among many: the router's experts with the copies to their order and back, and a token from the logits. Plain torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import PLAIN, SLICE, Call, Kernel
from calc.measure.kernels.workspace import Workspace


def choose(case: Case, space: Workspace) -> Kernel:
    """Softmax of the router's scores in fp32 and the ``top`` best with their weights."""
    m, n, top = case.shape["m"], case.shape["n"], case.parameters["top"]
    scores = space.normal(m, n)

    def run() -> Any:
        weights, experts = space.torch.softmax(scores, -1, dtype=space.torch.float32).topk(top, -1)
        return weights / weights.sum(-1, keepdim=True), experts

    def compare() -> tuple[Any, Any]:
        best = scores[-SLICE:].float().sort(-1, descending=True).values[:, :top]
        return run()[0][-SLICE:], best.softmax(-1)

    space.charge((m, n + 3 * top), 8)
    return Kernel([run], compare, f"torch.softmax in fp32, topk of {top}, {PLAIN}", 4)


def permute(case: Case, space: Workspace) -> Kernel:
    """Rows of tokens copied into the order of experts."""
    m, n, tokens = case.shape["m"], case.shape["n"], case.parameters["tokens"]
    hidden, out = space.normal(tokens, n), space.empty(m, n)
    order = _order(space, m) % tokens
    call: Call = partial(space.torch.index_select, hidden, 0, order, out=out)
    return Kernel([call], lambda: (call()[-SLICE:], hidden[order[-SLICE:]].float()), "torch.index_select by expert")


def combine(case: Case, space: Workspace) -> Kernel:
    """The rows of each token gathered from the order of experts and summed with the router's weights."""
    torch = space.torch
    m, n, tokens = case.shape["m"], case.shape["n"], case.parameters["tokens"]
    each = -(-m // tokens)  # tokens whose zero-computation experts leave fewer rows read a row again, with weight zero
    computed, weights = space.normal(m, n), space.normal(tokens, 1, each)
    places = _order(space, m).repeat(2)[: tokens * each]
    weights.view(-1)[m:] = 0
    gathered, out = space.empty(tokens * each, n), space.empty(tokens, 1, n)

    def run() -> Any:
        torch.index_select(computed, 0, places, out=gathered)
        return torch.bmm(weights, gathered.view(tokens, each, n), out=out)

    def compare() -> tuple[Any, Any]:
        rows = computed[places.view(tokens, each)[-1]].float()
        return run()[-1, 0], weights[-1, 0].float() @ rows

    return Kernel([run], compare, f"torch.index_select, torch.bmm with the weights of {each} experts, {PLAIN}", 2)


def sample(case: Case, space: Workspace) -> Kernel:
    """Softmax over the vocabulary in fp32 and the best ``top``: what samplers begin with. No operator of the step."""
    m, n, top = case.shape["m"], case.shape["n"], case.parameters["top"]
    logits = space.full(m, n)

    def run() -> Any:
        return space.torch.softmax(logits, -1).topk(top, -1).values

    def compare() -> tuple[Any, Any]:
        return run()[-1], logits[-1].softmax(-1).sort(descending=True).values[:top]

    space.charge((m, n + 2 * top), 4)
    return Kernel([run], compare, f"torch.softmax in fp32, topk of {top}", 2)


def _order(space: Workspace, rows: int) -> Any:
    """A random order of rows."""
    return space.torch.randperm(rows, generator=space.generator, device=space.facts.torch_name)
