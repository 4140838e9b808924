"""T5 in GGUF: blocks of an encoder (``enc.blk``) and of a decoder (``dec.blk``), or those of the encoder alone (``t5encoder``).

Tensor names: llama.cpp gguf-py/gguf/constants.py (MODEL_ARCH.T5, T5ENCODER). Norms are RMS norms, positions come from a small table in
the first block of each stack (in UMT5 in every block).
"""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from calc.errors import ProfileError
from calc.profiles.importers.config import Config
from calc.profiles.importers.draft import Draft, EncoderDraft
from calc.profiles.importers.gguf.architectures import Architecture
from calc.profiles.importers.gguf.attention import grouped
from calc.profiles.importers.gguf.header import Header
from calc.profiles.importers.gguf.layers import read_layer
from calc.profiles.importers.gguf.outside import read_outside
from calc.profiles.importers.gguf.stack import Stack, read_stack
from calc.profiles.importers.gguf.tensor_list import Group, Ledger
from calc.profiles.model import CrossAttention, Extra, LayerKind, Norm

_BLOCK = re.compile(r"(enc|dec)\.blk\.(\d{1,6})\.(.+)")
#: Positions of an input where the file names no context length: T5's own.
_USUAL_TOKENS = 512


def is_encoder_decoder(architecture: Architecture) -> bool:
    """Whether a file of the architecture has blocks of two stacks."""
    return architecture.family == "t5"


def read(header: Header, c: Config, architecture: Architecture) -> tuple[Draft, Ledger]:
    """The model of a file and the ledger of its tensors; everything is taken."""
    c.ignore("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "feed_forward_length")
    encoder = replace(read_stack(c, architecture), causal=False)
    decoder = _decoder_stack(c, encoder) if architecture.decoder else None
    ledger, outside, blocks = _sort(header, {"enc": encoder.layers, "dec": decoder.layers if decoder else 0})
    kinds, once = _layers(encoder, blocks["enc"])
    tokens = c.integer("context_length", default=_USUAL_TOKENS)
    draft = Draft(hidden_size=encoder.hidden_size, vocab_size=None, layers=kinds, norm=Norm(), max_position_embeddings=tokens)
    if decoder is None:
        draft.extras = once
        _rename(outside, "enc.output_norm", "output_norm")
    else:
        final = outside.take("enc.output_norm.weight", "norm") is not None
        draft.encoder = EncoderDraft(kinds, tokens, final_norm=final, extras=once)
        draft.layers, draft.extras = _layers(decoder, blocks["dec"], source_tokens=tokens)
        _rename(outside, "dec.output_norm", "output_norm")
    read_outside(encoder, outside, draft)
    return draft, ledger


def _decoder_stack(c: Config, encoder: Stack) -> Stack:
    """The decoder's layers: as many as the encoder's unless the file says otherwise, with the same heads."""
    layers = c.integer("decoder_block_count", default=encoder.layers, maximum=20_000)
    heads, kv_heads = [encoder.heads[0]] * layers, [encoder.kv_heads[0]] * layers
    return replace(encoder, layers=layers, heads=heads, kv_heads=kv_heads, windows=[None] * layers, shared_from=layers, causal=True)


def _sort(header: Header, layers: dict[str, int]) -> tuple[Ledger, Group, dict[str, list[Group]]]:
    """(ledger, tensors outside the layers, those of each layer by stack)."""
    ledger = Ledger(header.name)
    outside, blocks = Group(ledger), {stack: [Group(ledger) for _ in range(count)] for stack, count in layers.items()}
    for tensor in header.tensors:
        found = _BLOCK.fullmatch(tensor.name)
        if found is None:
            outside.left[tensor.name] = tensor
        elif int(found[2]) >= layers[found[1]]:
            raise ledger.fault(tensor, f"belongs to layer {int(found[2]):,}; there are {layers[found[1]]:,}")
        else:
            blocks[found[1]][int(found[2])].left[found[3]] = tensor
    for stack, groups in blocks.items():
        for index, group in enumerate(groups):
            if not group.left:
                raise ProfileError(f"{header.name}: layer {index} of {stack}.blk has no tensors", "is the tensor list complete?")
    return ledger, outside, blocks


def _layers(stack: Stack, blocks: list[Group], source_tokens: int | None = None) -> tuple[list[LayerKind], list[Extra]]:
    """(layer kinds, the table of positions where only the first block holds one)."""
    tables = [_positions(stack, block) for block in blocks]
    everywhere = all(tables) and len(tables) > 1
    kinds = []
    for index, block in enumerate(blocks):
        cross = None if source_tokens is None else _cross(stack, block, index, source_tokens)
        _rename(block, "attn_o", "attn_output")
        kind = read_layer(stack, block, index, norm_bias=False).kind
        extras = [*kind.extras, *(tables[index] if everywhere else [])]
        mixers = kind.mixers if cross is None else [*kind.mixers, cross]
        kinds.append(msgspec.structs.replace(kind, mixers=mixers, extras=extras, norms=kind.norms + (0 if cross is None else 1)))
    return kinds, [] if everywhere else [table for found in tables for table in found]


def _positions(stack: Stack, block: Group) -> list[Extra]:
    """The table of relative positions of a block, one value per bucket and head."""
    table = block.take("attn_rel_b.weight", "extras")
    if table is None:
        return []
    buckets = stack.config.optional("attention.relative_buckets_count")
    if buckets is not None and table.elements != buckets * stack.heads[0]:
        raise block.ledger.fault(
            table, f"has {table.elements:,} elements; {buckets:,} buckets of {stack.heads[0]:,} heads are expected"
        )
    return [Extra(name="relative_positions", elements=table.elements, kind="vector")]


def _cross(stack: Stack, block: Group, index: int, source_tokens: int) -> CrossAttention:
    """The second attention of a decoder layer, which sees the encoder's output, with the norm before it."""
    norm = block.need("cross_attn_norm.weight", "norm")
    if norm.elements != stack.hidden_size:
        raise block.ledger.fault(norm, f"has {norm.elements:,} elements; {stack.hidden_size:,} are expected")
    own = Group(block.ledger)
    for name in [n for n in block.left if n.startswith("cross_attn_")]:
        own.left[name.removeprefix("cross_")] = block.left.pop(name)
    _rename(own, "attn_o", "attn_output")
    fields = msgspec.structs.asdict(grouped(stack, own, index)) | {"positions": "none", "rotary_dim": None}
    block.left |= {f"cross_{name}": tensor for name, tensor in own.left.items()}
    return CrossAttention(**fields, source_tokens=source_tokens)


def _rename(group: Group, old: str, new: str) -> None:
    """A tensor under the name that it has in models of one stack."""
    for part in (".weight", ".bias"):
        if old + part in group:
            group.left[new + part] = group.left.pop(old + part)
