"""Recurrent mixers in plain torch: causal convolution, token shift, state-space scan.

torch has no fused kernel for them, so the words say ``plain torch``: engines are faster, and these times do not stand for theirs.
The state-space scan in chunks follows Dao and Gu 2024 (arXiv 2405.21060).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import PLAIN, Call, Kernel
from calc.measure.kernels.workspace import Workspace

_DECAY = 0.9
_ROWS = 4


def convolution(case: Case, space: Workspace) -> Kernel:
    """Depth-wise causal convolution of ``tokens`` new tokens behind the ones that the state holds."""
    torch = space.torch
    new, b, channels, width = (case.shape[x] for x in ("tokens", "sequences", "channels", "kernel"))
    length = new // b
    weights = [w.view(channels, 1, width) for w in space.operands(channels, width)]
    hidden = space.normal(b, channels, length + width - 1)
    calls: list[Call] = [partial(torch.nn.functional.conv1d, hidden, w, None, 1, 0, 1, channels) for w in weights]

    def compare() -> tuple[Any, Any]:
        got = calls[0]()[-1, :, -1]
        return got, (hidden[-1, :, -width:].float() * weights[0][:, 0].float()).sum(-1)

    return Kernel(calls, compare, f"functional.conv1d by channel, {PLAIN}", 1, channels * width * space.element_bytes)


def shift(case: Case, space: Workspace) -> Kernel:
    """Mixtures of each token with the one before it, ``mixes`` of them; the first token's predecessor is the kept one."""
    torch = space.torch
    new, b, channels, mixes = case.shape["tokens"], case.shape["sequences"], case.shape["channels"], case.parameters["mixes"]
    length = new // b
    shares = [w.view(mixes, 1, 1, channels) for w in space.operands(mixes, channels)]
    hidden, out = space.normal(b, length + 1, channels), space.empty(mixes, b, length, channels)
    before, now, difference = hidden[:, :-1], hidden[:, 1:], space.empty(b, length, channels)

    def run(share: Any) -> Any:
        torch.sub(before, now, out=difference)
        return torch.addcmul(now, difference, share, out=out)

    def compare() -> tuple[Any, Any]:
        got = run(shares[0])[:, -1, -1]
        one, two = hidden[-1, -1].float(), hidden[-1, -2].float()
        return got, one + (two - one) * shares[0][:, 0, 0].float()

    calls: list[Call] = [partial(run, s) for s in shares]
    return Kernel(calls, compare, f"torch.sub, torch.addcmul, {PLAIN}", 2, mixes * channels * space.element_bytes)


def scan(case: Case, space: Workspace) -> Kernel:
    """State-space scan: one step on a cold state, or a prompt in chunks."""
    return _scan_step(case, space) if case.parameters["form"] == "stepwise" else _scan_chunks(case, space)


def _scan_step(case: Case, space: Workspace) -> Kernel:
    torch = space.torch
    new, b, heads, size, state = (case.shape[x] for x in ("tokens", "sequences", "heads", "head_dim", "state"))
    length = new // b
    states = space.states(b, heads, size, state)
    # Input and decay that leave the spread of the state as it is: the arena serves other cases too.
    entry = space.full(length, b, heads, size, 1, deviation=space.deviation * math.sqrt(1 - _DECAY**2))
    key, query = space.full(length, b, heads, 1, state), space.full(length, b, heads, state, 1)

    def step(held: Any) -> Any:
        out = None
        for at in range(length):
            held.mul_(_DECAY).add_(entry[at] * key[at])
            out = torch.matmul(held, query[at])
        return out

    def compare() -> tuple[Any, Any]:
        after = states[0][-1, -1].clone()
        got = step(states[0])[-1, -1]
        for at in range(length):
            after = after * _DECAY + entry[at, -1, -1] * key[at, -1, -1]
        return got, after @ query[-1, -1, -1]

    calls: list[Call] = [partial(step, s) for s in states]
    words = f"state update and read-out, {length} tokens in turn, {PLAIN}"
    return Kernel(calls, compare, words, 4 * length, b * heads * size * state * 4)


def _scan_chunks(case: Case, space: Workspace) -> Kernel:
    """Products inside chunks, and a recurrence from chunk to chunk."""
    torch = space.torch
    b, heads, size, state, groups, chunk = (case.shape[x] for x in ("sequences", "heads", "head_dim", "state", "groups", "chunk"))
    length = case.shape["tokens"] // b
    count = -(-length // chunk)
    x = space.normal(b, count, chunk, heads, size)
    key, query = (space.normal(b, count, chunk, groups, state, deviation=state**-0.25) for _ in range(2))
    space.charge((b, count, heads, chunk, chunk), 3 * space.element_bytes)  # scores, decays and their product
    steps = torch.arange(chunk, device=space.facts.torch_name)
    gaps = (steps[:, None] - steps[None, :]).clamp(min=0)
    inside = (_DECAY**gaps * (steps[:, None] >= steps[None, :])).to(space.torch_dtype)
    to_end, from_start = (_DECAY**e for e in ((chunk - 1 - steps).float(), (steps + 1).float()))
    to_end, from_start = to_end.to(space.torch_dtype), from_start.to(space.torch_dtype)

    def run() -> Any:
        k, q = (t.repeat_interleave(heads // groups, 3).permute(0, 1, 3, 2, 4) for t in (key, query))  # b c h q n
        values = x.permute(0, 1, 3, 2, 4)  # b c h q p
        out = ((q @ k.transpose(-1, -2)) * inside) @ values
        ends = (values * to_end[:, None]).transpose(-1, -2) @ k  # b c h p n: what each chunk adds
        held = torch.zeros_like(ends[:, 0])
        for i in range(count):
            out[:, i] += (q[:, i] * from_start[:, None]) @ held.transpose(-1, -2)
            held = held * _DECAY**chunk + ends[:, i]
        return out

    def compare() -> tuple[Any, Any]:
        got = run()[-1, -1, -1, -_ROWS:]
        k, q = (t[-1, :, :, -1].reshape(-1, state).float() for t in (key, query))
        ages = torch.arange(count * chunk, device=space.facts.torch_name)
        weight = torch.where(ages[-_ROWS:, None] >= ages, _DECAY ** (ages[-_ROWS:, None] - ages).clamp(min=0).float(), 0.0)
        return got, (q[-_ROWS:] @ k.t() * weight) @ x[-1, :, :, -1].reshape(-1, size).float()

    return Kernel([run], compare, f"scan in {count} chunks of {chunk}, {PLAIN}", 8 + 4 * count)
