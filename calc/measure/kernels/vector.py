"""Norms and non-linearities in plain torch: engines fuse each into one kernel, the words of the case say what ran here."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import SLICE, Call, Kernel
from calc.measure.kernels.workspace import Workspace

_EPSILON = 1e-6


def norm(case: Case, space: Workspace) -> Kernel:
    """Residual addition and normalisation; engines fuse the two, torch runs them one after the other."""
    torch, functional = space.torch, space.torch.nn.functional
    m, width = case.shape["m"], case.shape["n"] // 2  # the operator's n counts input and residual
    gains = space.operands(2, width)
    hidden, residual, total = space.normal(m, width), space.normal(m, width), space.empty(m, width)
    layer = case.kernel == "layer_norm"
    if layer:
        bias = case.parameters.get("bias")
        finish = [partial(functional.layer_norm, total, (width,), g[0], g[1] if bias else None, _EPSILON) for g in gains]
    else:
        finish = [partial(functional.rms_norm, total, (width,), g[0], _EPSILON) for g in gains]

    def run(normalise: Call) -> Any:
        torch.add(hidden, residual, out=total)
        return normalise()

    def compare() -> tuple[Any, Any]:
        got = calls[0]()[-SLICE:]
        x, g = total[-SLICE:].float(), gains[0].float()
        if layer:
            x = x - x.mean(-1, keepdim=True)
        wanted = _rms(x) * g[0]
        return got, wanted + g[1] if layer and case.parameters.get("bias") else wanted

    calls: list[Call] = [partial(run, f) for f in finish]
    name = "layer_norm" if layer else "rms_norm"
    return Kernel(calls, compare, f"torch.add, functional.{name}", 2, 2 * width * space.element_bytes)


def part_norms(case: Case, space: Workspace) -> Kernel:
    """Neighbouring parts of each row, normalised each on its own (the latents of queries and keys; dt, B and C of a state space)."""
    m, parts = case.shape["m"], case.parameters["parts"]
    ends = list(accumulate(parts))
    gains = space.operands(ends[-1])
    sources = [space.normal(m, part) for part in parts]

    def run(gain: Any) -> list[Any]:
        cuts = [gain[end - part : end] for part, end in zip(parts, ends, strict=True)]
        return [space.torch.nn.functional.rms_norm(x, (g.shape[0],), g, _EPSILON) for x, g in zip(sources, cuts, strict=True)]

    def compare() -> tuple[Any, Any]:
        got = run(gains[0])[-1][-SLICE:]
        return got, _rms(sources[-1][-SLICE:].float()) * gains[0][-parts[-1] :].float()

    calls: list[Call] = [partial(run, gain) for gain in gains]
    return Kernel(calls, compare, f"functional.rms_norm of {len(parts)} parts", len(parts), ends[-1] * space.element_bytes)


def gated_norm(case: Case, space: Workspace) -> Kernel:
    """Normalisation by groups of channels, times the SiLU of a gate. Group norms subtract the mean and add a bias (RWKV)."""
    torch, functional = space.torch, space.torch.nn.functional
    m, width, group = case.shape["m"], case.shape["n"] // 2, case.parameters["group"]
    centred = case.parameters["norm"] == "group"
    x, gate = space.normal(m, width), space.normal(m, width)
    gain, bias = space.normal(width if centred else group), space.normal(width)

    def run() -> Any:
        if centred:
            normed = functional.group_norm(x, width // group, gain, bias, _EPSILON)
        else:
            normed = functional.rms_norm(x.view(m, width // group, group), (group,), gain, _EPSILON).view(m, width)
        return torch.mul(normed, functional.silu(gate))

    def compare() -> tuple[Any, Any]:
        rows = x[-SLICE:].float().unflatten(1, (-1, group))
        if centred:
            rows = rows - rows.mean(-1, keepdim=True)
            normed = _rms(rows).flatten(1) * gain.float() + bias.float()
        else:
            normed = (_rms(rows) * gain.float()).flatten(1)
        return run()[-SLICE:], normed * functional.silu(gate[-SLICE:].float())

    space.charge((3, m, width), space.element_bytes)  # what the three calls allocate
    name = "group_norm" if centred else "rms_norm"
    return Kernel([run], compare, f"functional.{name} over {group}, functional.silu, torch.mul", 3)


def activation(case: Case, space: Workspace) -> Kernel:
    """A non-linearity without a gate."""
    functional = space.torch.nn.functional
    hidden = space.normal(case.shape["m"], case.shape["n"])
    call: Call = partial(functional.gelu, hidden)
    return Kernel([call], lambda: (call()[-SLICE:], functional.gelu(hidden[-SLICE:].float())), "functional.gelu")


def gated_activation(case: Case, space: Workspace) -> Kernel:
    """A non-linearity of the gate times the other channels; ``gate`` is its width where one value serves a head."""
    torch, functional = space.torch, space.torch.nn.functional
    m, n = case.shape["m"], case.shape["n"]
    name = case.parameters.get("function", "silu")
    function = {"silu": functional.silu, "gelu": functional.gelu, "sigmoid": torch.sigmoid}[name]
    heads = case.parameters.get("gate", n // 2)
    width = n - heads
    hidden, out = space.normal(m, n), space.empty(m, heads, width // heads)
    gate, up = hidden[:, :heads, None], hidden[:, heads:].view(m, heads, width // heads)

    def run() -> Any:
        return torch.mul(function(gate), up, out=out)

    def compare() -> tuple[Any, Any]:
        return run()[-SLICE:], function(gate[-SLICE:].float()) * up[-SLICE:].float()

    return Kernel([run], compare, f"{name}, torch.mul", 2)


def _rms(x: Any) -> Any:
    """x over its root mean square."""
    return x * (x.pow(2).mean(-1, keepdim=True) + _EPSILON).rsqrt()
