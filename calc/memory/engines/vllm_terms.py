"""What vLLM subtracts from the memory it may use: weights as loaded, the activation peak, what lies outside torch, CUDA graphs.

Sources: vllm/v1/worker/gpu_worker.py, vllm/worker/worker.py (V0), vllm/model_executor/layers/rotary_embedding, vllm/lora/layers;
start-up logs of versions 0.6 to 0.27.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from calc.memory import activations, host
from calc.memory.engines.vllm_settings import EARLY, NO_SORT, V1, Settings
from calc.memory.memo import remembered
from calc.memory.term import Parts, Term, gib_term, given
from calc.memory.weights import adapter_bytes, named, sixteen_bit_rest, stage_bytes, stage_weights
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.operators.weight import Weight
from calc.profiles.hardware import HardwareProfile
from calc.profiles.model import LatentAttention, ModelProfile
from calc.units import GIB

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion

#: vLLM pads the vocabulary to a multiple of 64 before splitting it, and mxfp4 experts to 256 on the side of the hidden state.
VOCABULARY_MULTIPLE, MXFP4_MULTIPLE = 64, 256

# Sampler bytes per vocabulary entry and sequence beside the hidden state: with a sort of the vocabulary (most of 22 logs within 1 %);
# without (bf16 logits and their fp32 copy on Ascend; on CUDA at most what a log allows whose peak is the layers').
_WITH_SORT, _WITHOUT_SORT, _ASCEND = (36.5, 38.3, 41.0), (6.0, 9.5, 14.0), (5.5, 6.0, 7.0)
# Loaded weights exceed the tensors counted here by allocator rounding and small buffers, GiB: low, expected, high.
_TEXT_EXTRA_GIB, _TOWER_EXTRA_GIB = (0.0, 0.0, 0.2), (0.0, 0.0, 0.6)
# The same as a share of the weights: low, expected, high.
_ROUNDING = (-0.008, 0.002, 0.01)
# 4-bit checkpoints of bitsandbytes keep some modules in 16 bit (dynamic quantisation): share of the weights, at most.
_DYNAMIC_EXTRA = 0.15
# Positions of the rotary tables over the model's maximum: linear scaling by 8 (Gemma 3), four axes of multimodal positions (Qwen-VL).
_ROTARY_FACTORS = {"gemma3": 8, "qwen2_vl": 4, "qwen2_5_vl": 4, "qwen3_vl": 4, "qwen3_5": 4, "glm4v": 4, "qwen3_omni": 4}
# Visual features of several depths are kept for every token of a step (Qwen3-VL's deepstack buffers).
_DEEPSTACK_LEVELS = {"qwen3_vl": 3}
# Positions of the largest image where towers take any resolution: 12.8 million pixels in patches of 14, and as many later.
_DYNAMIC_POSITIONS = {"qwen2_vl": 65536, "qwen2_5_vl": 65536, "qwen3_vl": 65536, "qwen3_5": 65536}
# Share by which the layers' and the sampler's peak spread in the logs.
_LAYERS_SPREAD, _TOWER_SPREAD = 0.12, 0.45

# Outside torch's allocator, GiB: low, expected, high by GPU memory at tensor parallel size 1.
_OUTSIDE_ONE = ((18, (0.01, 0.03, 0.1)), (36, (0.04, 0.07, 0.36)), (72, (0.05, 0.09, 0.4)), (1 << 20, (0.05, 0.13, 0.4)))
_OUTSIDE_EARLY = (0.1, 0.3, 1.0)
# GeForce and workstation Blackwell: attention kernels with a workspace of their own (one log).
_OUTSIDE_WORKSPACE = (0.05, 0.3, 1.0)
# With several ranks: over PCIe, and over a fabric (NCCL maps its own buffers there).
_OUTSIDE_PCIE, _OUTSIDE_FABRIC = (0.1, 0.25, 0.8), (0.4, 0.55, 1.5)
# Since 2026 the same line also holds compiled kernels' and communication workspaces: 0.3 GiB alone, 1.7 on four ranks.
_OUTSIDE_NEWER_ONE, _OUTSIDE_NEWER_MANY = (0.1, 0.25, 0.6), (0.5, 1.4, 2.4)
# CUDA graphs, GiB: median and usual range of the logs.
_GRAPHS_GIB = (0.05, 0.4, 1.2)


def family_value(table: dict[str, int], model: ModelProfile, default: int) -> int:
    """The entry of the longest prefix of the model's family."""
    hits = [prefix for prefix in table if model.family.startswith(prefix)]
    return table[max(hits, key=len)] if hits else default


@remembered
def rotary_bytes(model: ModelProfile, numbers: NumberPlan) -> int:
    """Cosine and sine tables: one per distinct width and mask, in the model's 16-bit type."""
    widths: dict[tuple[str, int], None] = {}
    for name in model.layer_counts():
        for mixer in model.layer_kinds[name].mixers:
            if isinstance(mixer, LatentAttention):
                widths[("latent", mixer.qk_rope_head_dim)] = None
            elif getattr(mixer, "positions", None) == "rotary":
                width = getattr(mixer, "rotary_dim", None) or getattr(mixer, "head_dim", None) or 0
                widths[(str(mixer.__struct_config__.tag or ""), int(width))] = None
    positions = model.max_position_embeddings or 4096
    factor = family_value(_ROTARY_FACTORS, model, 1)
    rows = {key: positions * (1 if key[0] == "sliding" else factor) for key in widths}
    return sum(count * width * numbers.activation_bytes for (_, width), count in rows.items())


@remembered
def padded_expert_bytes(
    model: ModelProfile, sharding: Sharding, numbers: NumberPlan, stage: int, layers: tuple[int, ...] | None
) -> int:
    """Bytes that mxfp4 experts take beyond their own: their hidden side is padded to whole tiles."""
    if numbers.weight("experts").name != "mxfp4":
        return 0
    extra = 0
    number_format = numbers.weight("experts")
    for held in stage_weights(model, sharding, stage, layers=layers):
        weight: Weight = held.weight
        if weight.role == "experts" and not weight.vector:
            side = "d_out" if "down" in weight.name else "d_in"
            whole = -(-getattr(weight, side) // MXFP4_MULTIPLE) * MXFP4_MULTIPLE
            extra += held.count * (replace(weight, **{side: whole}).bytes(number_format) - weight.bytes(number_format))
    return extra


def weights(question: MemoryQuestion, chosen: Settings, stage: int) -> Term:
    """Weights as loaded: tensors with their scales and padding, rotary tables, LoRA slots, buffers of multimodal models."""
    options, model = question.options, question.model
    if options.weights_bytes is not None:
        return given("weights", options.weights_bytes)
    split = options.pipeline_layers
    parts = stage_bytes(
        model,
        question.sharding,
        question.numbers,
        stage,
        vocabulary_multiple=VOCABULARY_MULTIPLE,
        drafting=question.drafting,
        layers=split,
        gpu_experts=options.gpu_experts,
    )
    deep = family_value(_DEEPSTACK_LEVELS, model, 0) * chosen.max_num_batched_tokens * model.hidden_size
    beside: Parts = (
        ("padding of experts to whole tiles", padded_expert_bytes(model, question.sharding, question.numbers, stage, split)),
        ("rotary tables", rotary_bytes(model, question.numbers)),
        ("visual features of several depths", deep * question.numbers.activation_bytes),
    )
    exact = sum(parts.values()) + sum(size for _, size in beside)
    low, expected, high = (int(x * GIB) for x in (_TOWER_EXTRA_GIB if model.towers else _TEXT_EXTRA_GIB))
    usual, most = int(exact * (1 + _ROUNDING[1])), int(exact * (1 + _ROUNDING[2]))
    rounding, kept = usual - exact + expected, 0
    spread = sixteen_bit_rest(model, question.numbers)
    if spread is not None:
        rest = stage_bytes(model, question.sharding, spread.numbers, stage, vocabulary_multiple=VOCABULARY_MULTIPLE, layers=split)
        whole = sum(rest.values()) - sum(v for k, v in parts.items() if k != "next_token_layers")
        kept, most = whole // 2 if spread.likely else 0, exact + whole
    elif any(f.name == "nf4-double" for f in question.numbers.roles.values()):
        most = int(exact * (1 + _DYNAMIC_EXTRA))
    least_extra, usual_extra, most_extra = _adapters(question, stage) if chosen.version >= V1 else (0, 0, 0)
    beside += (("rounding of the allocator", rounding), ("modules likely kept in 16 bit", kept), ("LoRA slots", usual_extra))
    loaded = Term(
        "weights",
        usual + expected + kept + usual_extra,
        "shapes and formats as loaded",
        int(exact * (1 + _ROUNDING[0])) + low + least_extra,
        most + high + most_extra,
        named(parts, question.numbers) + tuple((name, size) for name, size in beside if size),
    )
    return host.less(question, loaded, parts)


#: LoRA ranks in use where a log does not say: low, expected, high.
_LORA_RANKS = (8, 32, 64)


def _adapters(question: MemoryQuestion, stage: int) -> tuple[int, int, int]:
    slots, rank = question.options.lora_slots, question.options.lora_rank
    if not slots:
        return 0, 0, 0
    held = stage_weights(question.model, question.sharding, stage, layers=question.options.pipeline_layers)
    ranks = (rank, rank, rank) if rank else _LORA_RANKS
    low, expected, high = (adapter_bytes(held, slots, r) for r in ranks)
    return low, expected, high


def activation(question: MemoryQuestion, chosen: Settings, stage: int) -> Term:
    """The larger of the layers', the sampler's and a vision tower's peak, never their sum. The last stage samples; in V0 only one of
    its ranks does, and the rank that has least left rules."""
    if question.options.activation_bytes is not None:
        return given("activation", question.options.activation_bytes)
    model, numbers, tokens = question.model, question.numbers, chosen.max_num_batched_tokens
    layers = activations.layer_peak_bytes(model, question.sharding, numbers, tokens)
    tower = _tower_peak(question) if stage == 0 else 0
    low, sampler, high = _sampler(question, chosen) if stage == question.sharding.pipeline - 1 else (0, 0, 0)
    if sampler >= max(layers, tower):
        return Term("activation", sampler, f"sampler: {min(chosen.max_num_seqs, tokens)} sequences", max(low, layers), high)
    if tower > layers:
        spread = int(tower * _TOWER_SPREAD)
        return Term("activation", tower, "vision tower", max(sampler, layers, tower - spread), tower + spread)
    spread = int(layers * _LAYERS_SPREAD)
    most = layers + spread if sampler < 0.8 * layers else max(layers + spread, high)
    return Term("activation", layers, f"layers: {tokens} tokens", layers - spread, most)


def _sampler(question: MemoryQuestion, chosen: Settings) -> tuple[int, int, int]:
    """(low, expected, high) of logits, their copies and the hidden state that they are made from."""
    model = question.model
    hidden = activations.hidden_bytes(model, question.numbers, chosen.max_num_batched_tokens)
    rows = min(chosen.max_num_seqs, chosen.max_num_batched_tokens)
    spread = _WITH_SORT if chosen.sorts_vocabulary else _WITHOUT_SORT
    if _is_ascend(question.hardware) and not chosen.sorts_vocabulary:
        spread = _ASCEND
    low, expected, high = (hidden + activations.sampler_peak_bytes(model, rows, per_entry) for per_entry in spread)
    return low, expected, high


def _tower_peak(question: MemoryQuestion) -> int:
    """Encoding the largest item; kernels without flash attention keep more copies."""
    model = question.model
    largest = family_value(_DYNAMIC_POSITIONS, model, 0)
    flash = float(question.hardware.compute_capability or 9) >= 8.0
    widths = activations.TOWER_WIDTHS if flash else activations.TOWER_WIDTHS_WITHOUT_FLASH
    return activations.tower_peak_bytes(model.towers, question.numbers, largest, widths)


#: Buffers of DeepEP's kernels take 1 to 2 GiB (its README); exchanges by NCCL collectives need none.
_EXCHANGE_BUFFERS = (0.0, 1.0, 2.0)


def outside_torch(question: MemoryQuestion, chosen: Settings, stage: int) -> Term:
    """Context, NCCL and kernel workspaces that torch's allocator does not see."""
    if question.options.runtime_bytes is not None:
        return given("runtime", question.options.runtime_bytes)
    device, sharding = question.device(stage), question.sharding
    newer = chosen.version >= NO_SORT and not _is_ascend(device)
    if chosen.version < EARLY:
        spread = _OUTSIDE_EARLY
    elif question.sharding.ranks == 1:
        blackwell = float(device.compute_capability or 0) >= 12
        spread = _OUTSIDE_NEWER_ONE if newer else _OUTSIDE_WORKSPACE if blackwell else _outside_one(device)
    elif newer and sharding.stage_ranks >= 4:
        spread = _OUTSIDE_NEWER_MANY
    else:
        spread = _OUTSIDE_FABRIC if _has_fabric(device) else _OUTSIDE_PCIE
    if sharding.is_wide:
        low, usual, high = (a + b for a, b in zip(spread, _EXCHANGE_BUFFERS, strict=True))
        return gib_term("runtime", (low, usual, high), "start-up logs, and buffers of the exchange with experts")
    return gib_term("runtime", spread, "start-up logs")


def _outside_one(device: HardwareProfile) -> tuple[float, float, float]:
    return next(s for most, s in _OUTSIDE_ONE if device.memory_capacity_gb < most)


def _is_ascend(device: HardwareProfile) -> bool:
    return device.id.startswith("ascend")


def _has_fabric(device: HardwareProfile) -> bool:
    return (device.interconnect.scale_up_domain_size or 1) > 2


def graphs(question: MemoryQuestion, chosen: Settings) -> Term:
    """CUDA graphs: estimated and subtracted since 0.21; before, they live in what the utilisation leaves free."""
    if question.options.graph_bytes is not None:
        return given("cuda_graphs", question.options.graph_bytes)
    if question.options.enforce_eager or not chosen.counts_graphs or _is_ascend(question.hardware):
        return Term("cuda_graphs", 0, "none" if question.options.enforce_eager else "outside the budget in this version")
    return gib_term("cuda_graphs", _GRAPHS_GIB, "start-up logs")
