"""Element-wise recurrences in plain torch, token by token: the real-gated recurrence of Griffin (arXiv 2402.19427) and the selective
scan of Mamba (arXiv 2312.00752). Engines scan within one kernel; here every token costs some launches, and the words say so."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import PLAIN, Call, Kernel
from calc.measure.kernels.workspace import Workspace

_SHARPNESS = 8.0  # of the recurrence gate: c in equation 4 of the paper
_CHANNELS = 4  # that are compared


def recurrence(case: Case, space: Workspace) -> Kernel:
    """h = a h + sqrt(1 - a^2) (gate x) with a = exp(-8 softplus(parameter) gate), per channel."""
    torch, functional = space.torch, space.torch.nn.functional
    new, b, width = (case.shape[x] for x in ("tokens", "sequences", "width"))
    length = new // b
    states = space.states(b, width)
    # An input of the arena's deviation keeps the state's: a channel is a weighted mean of what it saw.
    x = space.normal(length, b, width, deviation=space.deviation)
    own_gate, keep_gate = space.normal(length, b, width), space.normal(length, b, width)
    parameter, out = space.full(width), space.empty(length, b, width)
    space.charge((3, length, b, width), 4)

    def coefficients(part: Any) -> tuple[Any, Any]:
        decay = (keep_gate[..., part].float().sigmoid() * functional.softplus(parameter[part])).mul_(-_SHARPNESS).exp_()
        entry = (1 - decay * decay).sqrt_() * own_gate[..., part].float().sigmoid() * x[..., part].float()
        return decay, entry

    def run(held: Any) -> Any:
        decay, entry = coefficients(slice(None))
        for at in range(length):
            held.mul_(decay[at]).add_(entry[at])
            out[at] = held
        return out

    def compare() -> tuple[Any, Any]:
        part = slice(-_CHANNELS, None)
        before = states[0][-1, part].clone()
        decay, entry = (t[:, -1] for t in coefficients(part))
        later = decay.flip(0).cumprod(0).flip(0)  # product of the decays from a token on
        after = torch.cat((later[1:], torch.ones_like(later[:1])))
        return run(states[0])[-1, -1, part], before * later[0] + (entry * after).sum(0)

    calls: list[Call] = [partial(run, s) for s in states]
    return Kernel(calls, compare, f"{length} tokens in turn, {PLAIN}", 10 + 3 * length, b * width * 4)


def selective_scan(case: Case, space: Workspace) -> Kernel:
    """h = exp(dt A) h + dt B x and y = C h by channel, times the SiLU of a gate; A, dt and the state in fp32."""
    torch, functional = space.torch, space.torch.nn.functional
    new, b, inner, size = (case.shape[x] for x in ("tokens", "sequences", "inner", "state"))
    length = new // b
    states = space.states(b, inner, size)
    x, gate = space.normal(length, b, inner, deviation=space.deviation), space.normal(length, b, inner)
    steps = functional.softplus(space.full(length, b, inner, deviation=0.1) - 2)  # about 0.13, as trained models have
    entry, query = space.normal(length, b, size), space.normal(length, b, size)
    rates = -space.full(inner, size).abs_()  # A < 0: every state forgets
    out = space.empty(length, b, inner)

    def run(held: Any) -> Any:
        weighed, keys, queries = steps * x.float(), entry.float(), query.float()
        for at in range(length):
            held.mul_(torch.exp(steps[at, ..., None] * rates)).addcmul_(weighed[at, ..., None], keys[at, :, None, :])
            out[at] = torch.matmul(held, queries[at, ..., None])[..., 0]
        return out.mul_(functional.silu(gate))

    def compare() -> tuple[Any, Any]:
        part = slice(-_CHANNELS, None)
        before = states[0][-1, part].clone()
        own, rate = steps[:, -1, part], rates[part]
        left = (own.sum(0) - own.cumsum(0))[..., None] * rate  # logarithm of what is left of each entry at the end
        entries = (own * x[:, -1, part].float())[..., None] * entry[:, -1, None, :].float() * left.exp()
        held = entries.sum(0) + before * (own.sum(0)[:, None] * rate).exp()
        got = run(states[0])[-1, -1, part]
        return got, held @ query[-1, -1].float() * functional.silu(gate[-1, -1, part].float())

    space.charge((2, length, b, inner), 4)
    calls: list[Call] = [partial(run, s) for s in states]
    words = f"{length} tokens in turn, {PLAIN}"
    return Kernel(calls, compare, words, 5 + 6 * length, math.prod((b, inner, size)) * 4)
