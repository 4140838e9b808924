"""Matrix states with decay in plain torch, token by token or in chunks: with the delta rule (Gated DeltaNet, arXiv 2412.06464; Kimi
delta attention, arXiv 2510.26692) and without it (lightning attention, arXiv 2501.08313; RWKV-5 and 6, arXiv 2404.05892).

torch has no fused kernel for them: engines are faster, and these times do not stand for theirs. The state is kept in fp32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import PLAIN, Call, Kernel
from calc.measure.kernels.workspace import Workspace

_DECAY = 0.98  # by token: what 256 of them leave, and its inverse, are still plain numbers in 16 bit
_RATE = 0.5  # at which the delta rule replaces what the state holds for a key


@dataclass
class Inputs:
    """Queries, keys and values [batch, heads, tokens, size], decays as logarithms [.., tokens, key size or 1]. ``bonus`` weighs the
    newest token where it is not in the state that is read (RWKV)."""

    query: Any
    key: Any
    value: Any
    decay: Any
    bonus: Any | None
    delta: bool


def _inputs(case: Case, space: Workspace, length: int) -> Inputs:
    shape, own = case.shape, case.parameters
    b, heads, keys, values = (shape[x] for x in ("sequences", "heads", "key_head_dim", "value_head_dim"))
    key_heads = shape.get("key_heads", heads)
    unit = 1 / math.sqrt(keys)  # keys of length one: the delta rule replaces, it does not amplify
    query, key = (space.normal(b, key_heads, length, keys, deviation=unit) for _ in range(2))
    decay = space.full(b, heads, length, keys if own["decay"] == "channel" else 1, deviation=0.0) + math.log(_DECAY)
    bonus = space.normal(heads, 1, keys) if own["bonus"] else None
    return Inputs(query, key, space.normal(b, heads, length, values, deviation=space.deviation), decay, bonus, own["delta"])


def step(case: Case, space: Workspace) -> Kernel:
    """Token by token: the state forgets, takes the new token in, and is read."""
    torch, shape = space.torch, case.shape
    length = shape["tokens"] // shape["sequences"]
    b, heads, keys, values = (shape[x] for x in ("sequences", "heads", "key_head_dim", "value_head_dim"))
    states, given = space.states(b, heads, keys, values), _inputs(case, space, length)
    repeat = heads // given.key.shape[1]

    def run(held: Any) -> Any:
        query, key = (t.float().repeat_interleave(repeat, 1) for t in (given.query, given.key))
        value, decay, out = given.value.float(), given.decay.exp(), None
        for at in range(length):
            q, k, new = query[:, :, at, None], key[:, :, at, None], value[:, :, at, None]
            if given.bonus is not None:
                out = torch.matmul(q, held) + (q * given.bonus * k).sum(-1, keepdim=True) * new
            held.mul_(decay[:, :, at, :, None])
            if given.delta:
                new = (new - torch.matmul(k, held)) * _RATE
            held.add_(torch.matmul(k.transpose(-1, -2), new))
            if given.bonus is None:
                out = torch.matmul(q, held)
        return out

    def compare() -> tuple[Any, Any]:
        wanted = _in_turn(given, states[0][-1, -1].clone())
        return run(states[0])[-1, -1, 0], wanted

    calls: list[Call] = [partial(run, s) for s in states]
    words = f"{_rule(given)}, {length} tokens in turn, {PLAIN}"
    return Kernel(calls, compare, words, 4 + 7 * length, b * heads * keys * values * 4)


def chunks(case: Case, space: Workspace) -> Kernel:
    """Products inside chunks of tokens, all at once, and a recurrence from chunk to chunk.

    Inside a chunk the delta rule is a unit lower triangular system (the UT transform of the papers), solved for its effect on values
    and on the state that the chunk begins with.
    """
    torch, shape = space.torch, case.shape
    b, heads, keys, values, size = (shape[x] for x in ("sequences", "heads", "key_head_dim", "value_head_dim", "chunk"))
    count = -(-shape["tokens"] // b // size)
    given = _inputs(case, space, count * size)
    repeat = heads // given.key.shape[1]
    ones = torch.ones(size, size, dtype=torch.bool, device=space.facts.torch_name)
    seen, earlier = ones.tril(-1 if given.bonus is not None else 0), ones.tril(-1)
    unit = torch.eye(size, device=space.facts.torch_name)
    space.charge((b, heads, count, size, 3 * size + 4 * keys + 3 * values), 4)  # pairs, scaled keys and queries, new values

    def run() -> Any:
        query, key = (t.repeat_interleave(repeat, 1).unflatten(2, (count, size)).float() for t in (given.query, given.key))
        value = given.value.unflatten(2, (count, size)).float()
        decay = given.decay.unflatten(2, (count, size))
        summed = decay.cumsum(-2)
        end = summed[..., -1:, :]
        reading = query * ((summed - decay) if given.bonus is not None else summed).exp()
        writing, ending = (key * (-summed).exp()), key * (end - summed).exp()
        inside = _product(space, reading, writing.transpose(-1, -2)).masked_fill(~seen, 0)
        if given.bonus is not None:
            inside = inside + torch.diag_embed((query * given.bonus[:, None] * key).sum(-1))
        removed = None
        if given.delta:
            entering = key * summed.exp() * _RATE
            system = unit + _product(space, entering, writing.transpose(-1, -2)).masked_fill(~earlier, 0)
            sides = torch.cat((value * _RATE, entering), -1)
            solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
            value, removed = solved[..., :values], solved[..., values:]
        held = torch.zeros(b, heads, keys, values, device=value.device)
        out = []
        for i in range(count):
            new = value[:, :, i] if removed is None else value[:, :, i] - _product(space, removed[:, :, i], held)
            out.append(_product(space, reading[:, :, i], held) + _product(space, inside[:, :, i], new))
            held = held * end[:, :, i].exp().transpose(-1, -2) + _product(space, ending[:, :, i].transpose(-1, -2), new)
        return torch.stack(out, 2).to(space.torch_dtype)

    def compare() -> tuple[Any, Any]:
        start = torch.zeros(keys, values, device=space.facts.torch_name)
        return run()[-1, -1, -1, -1], _in_turn(given, start)

    words = f"{_rule(given)} in {count} chunks of {size}, {PLAIN}"
    return Kernel([run], compare, words, 20 + 8 * count)


def _product(space: Workspace, one: Any, two: Any) -> Any:
    """A matrix product in the run's type: the matrix units are for this."""
    return space.torch.matmul(one.to(space.torch_dtype), two.to(space.torch_dtype)).float()


def _in_turn(given: Inputs, held: Any) -> Any:
    """The last output of the last head from the definition, in fp32."""
    query, key, value, decay = (t[-1, -1].float() for t in (given.query, given.key, given.value, given.decay.exp()))
    out = None
    for q, k, v, d in zip(query, key, value, decay, strict=True):
        if given.bonus is not None:
            out = q @ held + (q * given.bonus[-1, 0].float() * k).sum() * v
        held = held * d[:, None]
        held = held + k[:, None] * ((v - k @ held) * _RATE if given.delta else v)
        if given.bonus is None:
            out = q @ held
    return out


def _rule(given: Inputs) -> str:
    return "delta rule" if given.delta else "linear attention with decay"
