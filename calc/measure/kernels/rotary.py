"""Query-key norms and rotary embedding in plain torch (engines run one fused kernel; the words of the case say what ran here)."""

from __future__ import annotations

from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels.kernel import Call, Kernel
from calc.measure.kernels.workspace import Workspace

_ROWS = 8


def build(case: Case, space: Workspace) -> Kernel:
    """Kernel of ``rope``, ``qk_norm`` or ``qk_norm_rope`` on queries and keys side by side, [tokens, heads, head size]."""
    torch, functional = space.torch, space.torch.nn.functional
    m, width = case.shape["m"], case.shape["n"]
    head, rotary = case.parameters["head_dim"], case.parameters["rotary_dim"]
    turned = rotary // 2
    heads = width // head
    source, out = space.normal(m, heads, head), space.empty(m, heads, head)
    gain = space.normal(head)
    angle = torch.rand((m, 1, turned), generator=space.generator, device=space.facts.torch_name) * 6.283
    cos, sin = angle.cos().to(space.torch_dtype), angle.sin().to(space.torch_dtype)
    norms, rotates = "norm" in case.kernel, "rope" in case.kernel

    def rotate(x: Any) -> Any:
        one, two = x[..., :turned], x[..., turned : 2 * turned]
        first, second = out[..., :turned], out[..., turned : 2 * turned]
        torch.mul(one, cos, out=first).addcmul_(two, sin, value=-1)
        torch.mul(two, cos, out=second).addcmul_(one, sin)
        if 2 * turned < head:
            out[..., 2 * turned :].copy_(x[..., 2 * turned :])
        return out

    def run() -> Any:
        x = functional.rms_norm(source, (head,), gain, 1e-6) if norms else source
        return rotate(x) if rotates else x

    def compare() -> tuple[Any, Any]:
        x = source[-_ROWS:].float()
        if norms:
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain.float()
        if rotates:
            c, s = cos[-_ROWS:].float(), sin[-_ROWS:].float()
            one, two, rest = x[..., :turned], x[..., turned : 2 * turned], x[..., 2 * turned :]
            x = torch.cat((one * c - two * s, two * c + one * s, rest), -1)
        return run()[-_ROWS:], x

    words = ", ".join(["functional.rms_norm"] * norms + ["torch.mul and addcmul_ on halves"] * rotates)
    launches = norms + rotates * (4 if 2 * turned == head else 5)
    call: Call = partial(run)
    return Kernel([call], compare, words, launches)
