"""One layer from its tensors: mixers, feed-forward parts, norms, and whatever is left over."""

from __future__ import annotations

import re
from dataclasses import dataclass

from calc.profiles.importers.gguf.attention import attention, has_attention
from calc.profiles.importers.gguf.feed_forward import feed_forwards
from calc.profiles.importers.gguf.recurrent import recurrent
from calc.profiles.importers.gguf.stack import Stack
from calc.profiles.importers.gguf.tensor_list import Group
from calc.profiles.model import Extra, LayerKind, Mixer

#: Norms as wide as the model.
_NORMS = (
    "attn_norm", "attn_norm_2", "attn_output_norm", "post_attention_norm", "ffn_norm", "ffn_norm_exps", "pre_ffw_norm_2", "post_ffw_norm",
    "post_ffw_norm_1", "post_ffw_norm_2", "layer_output_norm",
)  # fmt: skip
#: Weights without a part of their own whose work is that of their shape: side paths of Gemma 3n and 4, norms of other widths, the linear
#: map that stands in for attention in some layers of Nemotron-NAS.
_KNOWN = re.compile(
    r"(attn_output|inp_gate|proj|post_norm|altup_\w+|laurel_\w+|layer_output_scale|ffn_gate_inp|ffn_down_exps|attn_sub_norm|ffn_sub_norm|ffn_act|ffn)"
    r"(\.weight|\.bias|\.scale|\.scales)?"
)
_COEFFICIENTS = re.compile(r"altup_\w+_coef\.weight")
_NEXT_TOKEN = re.compile(r"nextn\.\w+\.weight")


@dataclass(frozen=True)
class Layer:
    """A layer as read: its kind, and what makes it a module that predicts a further token."""

    kind: LayerKind
    joining: list[Extra]


def read_layer(stack: Stack, layer: Group, index: int, *, norm_bias: bool) -> Layer:
    """Read one layer; everything in it is taken. What no law knows is counted as weights, with a warning."""
    joining = [_extra(layer, name) for name in [n for n in layer.left if _NEXT_TOKEN.fullmatch(n)]]
    mixers: list[Mixer] = []
    state = recurrent(stack, layer, index)
    if has_attention(layer):
        mixers.append(attention(stack, layer, index))
    if state:
        mixers.append(state)
    parts, extras = feed_forwards(stack, layer)
    norms = _count_norms(stack, layer, extras, norm_bias)
    for name in list(layer.left):
        if not _KNOWN.fullmatch(name):
            stack.config.warn(
                f"tensor blk.{index}.{name} and its like are not understood: counted as weights that every token reads"
            )
        extras.append(_extra(layer, name))
    parallel = stack.architecture.parallel or stack.config.flag("use_parallel_residual")
    kind = LayerKind(
        mixers=mixers,
        feed_forwards=parts,
        norms=norms,
        parallel=parallel and bool(mixers) and bool(parts),
        extras=extras,
    )
    return Layer(kind, joining)


def _extra(layer: Group, name: str) -> Extra:
    tensor = layer.need(name, "extras")
    label = re.sub(r"[^a-z0-9_]+", "_", name.removesuffix(".weight").lower())
    if name == "nextn.embed_tokens.weight":
        return Extra(name=label, elements=tensor.elements, kind="table")
    is_matrix = len(tensor.shape) > 1 and tensor.d_out > 1 and not _COEFFICIENTS.fullmatch(name)
    return Extra(name=label, elements=tensor.elements, kind="matrix" if is_matrix else "vector")


def _count_norms(stack: Stack, layer: Group, extras: list[Extra], norm_bias: bool) -> int:
    """Norms of the model's width. Where the model's norms have a bias, one without is no norm of the model's kind, and the reverse."""
    count = 0
    for name in _NORMS:
        gain = layer.peek(f"{name}.weight")
        if gain is None or gain.elements != stack.hidden_size or (f"{name}.bias" in layer) != norm_bias:
            extras += [_extra(layer, f"{name}.{part}") for part in ("weight", "bias") if f"{name}.{part}" in layer]
            continue
        layer.take(f"{name}.weight", "norm")
        if norm_bias:
            layer.bias(name, "norm", stack.hidden_size)
        count += 1
    return count
