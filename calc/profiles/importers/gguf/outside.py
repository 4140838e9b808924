"""What stands outside the layers of a file: embeddings, head, final norm, side tables, and towers that were packed in."""

from __future__ import annotations

import re
from typing import Literal

from calc.profiles.importers.draft import Draft
from calc.profiles.importers.gguf.stack import Stack
from calc.profiles.importers.gguf.tensor_list import Group
from calc.profiles.importers.gguf.tensor_types import Tensor
from calc.profiles.model import Extra, Tower

#: Looked up row by row rather than multiplied.
_TABLES = ("token_types.weight", "per_layer_token_embd.weight")
_KNOWN = re.compile(
    r"(token_types|token_embd_norm|output_norm|per_layer_\w+|altup_\w+|cls|cls\.\w+|dense_\d|norm|output_norm_enc)(\.weight|\.bias)?"
)
_TOWERS = {"v.": "vision", "mm.": "vision", "a.": "audio"}


def read_outside(stack: Stack, outside: Group, draft: Draft) -> None:
    """Fill in what the tensors outside the layers say; everything is taken."""
    _embedding(stack, outside, draft)
    _head(stack, outside, draft)
    biased = draft.norm.bias
    late = stack.architecture.late_embedding_norm
    draft.embedding_norm = not late and _norm(stack, outside, "token_embd_norm", biased)
    draft.final_norm = _norm(stack, outside, "token_embd_norm" if late else "output_norm", biased)
    _towers(outside, draft)
    for name, tensor in outside.rest():
        if not _KNOWN.fullmatch(name):
            stack.config.warn(f"tensor {name} is not understood: counted as weights that every token reads")
        outside.take(name, "extras")
        draft.extras.append(Extra(name=_label(name), elements=tensor.elements, kind=_kind(name, tensor)))


def _embedding(stack: Stack, outside: Group, draft: Draft) -> None:
    table = outside.need("token_embd.weight", "embedding")
    if table.d_in != stack.hidden_size:
        raise stack.config.fault("embedding_length", f"is {stack.hidden_size:,}; rows of {table.name} have {table.d_in:,} elements")
    draft.vocab_size = table.d_out
    positions = outside.take("position_embd.weight", "embedding")
    draft.position_embeddings = positions.d_out if positions else 0


def _head(stack: Stack, outside: Group, draft: Draft) -> None:
    """A head of its own, or the embedding's matrix; encoders have none."""
    head = outside.take("output.weight", "lm_head")
    draft.has_lm_head = head is not None or stack.architecture.decoder
    draft.tie_word_embeddings = head is None and draft.has_lm_head
    if head is None:
        return
    if head.d_in != stack.hidden_size:
        raise outside.ledger.fault(head, f"has rows of {head.d_in:,} elements; embedding_length is {stack.hidden_size:,}")
    if head.d_out != draft.vocab_size:
        draft.embedding_rows, draft.vocab_size = draft.vocab_size, head.d_out
    draft.lm_head_bias = outside.bias("output", "lm_head", head.d_out)


def _norm(stack: Stack, outside: Group, name: str, biased: bool) -> bool:
    """Take a norm of the model's width and kind; others stay and are counted as extras."""
    gain = outside.peek(f"{name}.weight")
    if gain is None or gain.elements != stack.hidden_size or (f"{name}.bias" in outside) != biased:
        return False
    outside.take(f"{name}.weight", "norm")
    if biased:
        outside.bias(name, "norm", stack.hidden_size)
    return True


def _towers(outside: Group, draft: Draft) -> None:
    """Some converters pack the vision or audio tower into the model's file."""
    found: dict[str, int] = {}
    for name, tensor in outside.rest():
        kind = next((kind for prefix, kind in _TOWERS.items() if name.startswith(prefix)), None)
        if name.startswith("mm.a."):
            kind = "audio"
        if kind:
            outside.take(name, "tower")
            found[kind] = found.get(kind, 0) + tensor.elements
    draft.towers += [Tower(modality=kind, parameters=elements) for kind, elements in found.items()]  # type: ignore[arg-type]


def _label(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "_", name.removesuffix(".weight").lower())


def _kind(name: str, tensor: Tensor) -> Literal["matrix", "vector", "table"]:
    if name in _TABLES:
        return "table"
    return "matrix" if len(tensor.shape) > 1 and tensor.d_out > 1 else "vector"
