"""Weight bytes of one rank, stage by stage: sharded, replicated, padded, by part; what an engine loads beside the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.errors import UsageError
from calc.memory.memo import remembered
from calc.memory.term import Parts
from calc.operators import embedding, parameters
from calc.operators.numbers import NumberPlan
from calc.operators.parameters import Held
from calc.operators.sharding import Sharding, stage_layers
from calc.operators.weight import Weight
from calc.profiles.model import ModelProfile


@remembered
def stages(model: ModelProfile, sharding: Sharding, layers: tuple[int, ...] | None = None) -> list[list[str]]:
    """Names of the layer kinds of each pipeline stage; ``layers`` says how many layers each stage has, else the engine's own split."""
    names = model.layers()
    counts = list(layers) if layers is not None else stage_layers(len(names), sharding.pipeline)
    if sum(counts) != len(names) or len(counts) != sharding.pipeline:
        raise UsageError(
            f"a split into {', '.join(map(str, counts))} layers does not match {len(names)} layers on {sharding.pipeline} stages",
            "one number a stage, that sum up to the layers",
        )
    result, start = [], 0
    for count in counts:
        result.append(names[start : start + count])
        start += count
    return result


def stage_weights(
    model: ModelProfile,
    sharding: Sharding,
    stage: int,
    *,
    vocabulary_multiple: int = 1,
    drafting: bool = False,
    layers: tuple[int, ...] | None = None,
    gpu_experts: int | None = None,
) -> list[Held]:
    """Tensors that one rank of a pipeline stage holds. Engines pad the vocabulary to ``vocabulary_multiple`` before splitting it;
    next-token layers are loaded only when ``drafting``; of the routed experts at most ``gpu_experts`` a layer. A tied head is a copy of
    its own where the stages differ."""
    import msgspec

    if model.vocab_size and vocabulary_multiple > 1:
        padded = -(-model.vocab_size // vocabulary_multiple) * vocabulary_multiple
        rows = model.embedding_rows and -(-model.embedding_rows // vocabulary_multiple) * vocabulary_multiple
        model = msgspec.structs.replace(model, vocab_size=padded, embedding_rows=rows)
    tensor, last = sharding.tensor, sharding.pipeline - 1
    names = stages(model, sharding, layers)[stage]
    held = list(parameters.layer_weights(model, names, tensor, sharding.expert_ranks))
    if stage == 0:
        held += [Held("embedding", w, 1) for w in embedding.embedding_weights(model, tensor)]
        held += [_tower(h, tensor) for h in parameters.model_extras(model, tensor)]
    if stage == last:
        held += [Held(w.role, w, 1) for w in embedding.head_weights(model, tensor) if w.is_held or sharding.pipeline > 1]
        if drafting:
            held += list(parameters.next_token_weights(model, tensor, sharding.expert_ranks))
    return held if gpu_experts is None else [_kept(h, gpu_experts) for h in held]


def _kept(held: Held, experts: int) -> Held:
    """The part of the routed experts that is not left in host memory."""
    if held.weight.role != "experts":
        return held
    return replace(held, weight=replace(held.weight, copies=min(held.weight.copies, experts)))


def _tower(held: Held, tensor: int) -> Held:
    """A vision or audio tower is split over the ranks like the model; what else stands outside the layers is replicated."""
    if held.part != "towers" or tensor == 1:
        return held
    return replace(held, weight=replace(held.weight, d_out=-(-held.weight.d_out // tensor)))


def bytes_by_part(held: list[Held], numbers: NumberPlan) -> dict[str, int]:
    """Bytes of tensors by part of the model."""
    parts: dict[str, list[Held]] = {}
    for item in held:
        parts.setdefault(item.part, []).append(item)
    return {part: parameters.held_bytes(tensors, numbers) for part, tensors in parts.items()}


def named(parts: dict[str, int], numbers: NumberPlan) -> Parts:
    """The same with the format of each part in its name."""
    return tuple((f"{part.replace('_', ' ')}, {numbers.weight(part).name}", size) for part, size in parts.items())


@remembered
def stage_bytes(
    model: ModelProfile,
    sharding: Sharding,
    numbers: NumberPlan,
    stage: int,
    *,
    vocabulary_multiple: int = 1,
    drafting: bool = False,
    layers: tuple[int, ...] | None = None,
    gpu_experts: int | None = None,
) -> dict[str, int]:
    """Bytes by part that one rank of a stage holds."""
    held = stage_weights(
        model,
        sharding,
        stage,
        vocabulary_multiple=vocabulary_multiple,
        drafting=drafting,
        layers=layers,
        gpu_experts=gpu_experts,
    )
    return bytes_by_part(held, numbers)


#: Matrices that several adapters are stacked for: how many of them one fused matrix stands for.
_FUSED = {"qkv_proj": 3, "kv_proj": 2, "gate_up_proj": 2, "shared_gate_up_proj": 2}
_ADAPTED = ("attention", "feed_forward", "embedding", "lm_head")


def adapter_bytes(held: list[Held], slots: int, rank: int) -> int:
    """Memory that ``slots`` LoRA slots of ``rank`` reserve: two thin matrices in 16 bit beside every dense matrix.

    Tables and heads get theirs too; routed experts do not.
    """
    elements = 0
    for item in held:
        weight: Weight = item.weight
        if weight.role in _ADAPTED and not weight.vector:
            width = weight.d_out
            if weight.role not in ("embedding", "lm_head"):
                width += _FUSED.get(weight.name, 1) * weight.d_in
            elements += item.count * weight.copies * width
    return 2 * slots * rank * elements


@dataclass(frozen=True)
class SixteenBitRest:
    """Formats with everything but experts and feed-forward networks in 16 bit; ``likely`` where checkpoints usually are so."""

    numbers: NumberPlan
    likely: bool


_OFTEN_KEPT = ("attention", "linear_attention", "shared_experts")


@remembered
def sixteen_bit_rest(model: ModelProfile, numbers: NumberPlan) -> SixteenBitRest | None:
    """What a 4-bit quantisation that no checkpoint states may leave in 16 bit: mixtures of experts and hybrids are often quantised in
    their experts or feed-forward networks alone (Qwen3.5-122B-A10B in nvfp4: 75.2 GiB as loaded, 68.4 if all were)."""
    asked = {role: f.name for role, f in numbers.roles.items()}
    hybrid = any(hasattr(m, "conv_kernel") for kind in model.layer_kinds.values() for m in kind.mixers)
    four_bit = any(f.element_bits == 4 for f in numbers.roles.values())
    if asked == dict(model.storage.roles) or not four_bit or not (model.has_experts or hybrid):
        return None
    kept = {role: f for role, f in numbers.roles.items() if role not in _OFTEN_KEPT}
    block_scaled = any(f.name in ("nvfp4", "mxfp4") for f in numbers.roles.values())
    return SixteenBitRest(replace(numbers, roles=kept), model.has_experts and block_scaled)
