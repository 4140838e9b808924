"""llama.cpp: layers dealt out over devices, caches allocated for the whole context at once, one compute buffer a device.

Nothing is profiled: what fits is what the sum of buffers leaves room for. Sources: llama.cpp src/llama-model.cpp (split by layer),
src/llama-context.cpp (compute buffers); start-up logs of the mainline and of ik_llama.cpp, 2025 and 2026.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from calc.errors import UsageError
from calc.memory import capacity as figures
from calc.memory import host
from calc.memory.budget import MemoryQuestion, Term, Warnings, device_memory, given_or, is_unified
from calc.memory.capacity import Capacity, Summary
from calc.memory.engines.llama_cpp_cache import (
    NEWEST_BUILD,
    Buffers,
    Layout,
    SlotPool,
    layer_buffers,
    layer_laws,
    layout_of,
)
from calc.memory.kv_cache import LayerCache, RankCache
from calc.memory.memo import remembered
from calc.memory.rank import Rank
from calc.memory.share import OfTotal
from calc.memory.term import Figure, gib_term
from calc.memory.weights import bytes_by_part, named, stage_weights
from calc.operators.numbers import NumberPlan
from calc.operators.sharding import Sharding
from calc.profiles.model import ModelProfile

NAME = "llama.cpp"
NEWEST_VERSION = f"b{NEWEST_BUILD}"
DEFAULT_UTILIZATION = 1.0
#: Most sequences of a context (LLAMA_MAX_SEQ in llama-cparams.h).
MOST_SLOTS = 256

#: Context of the CUDA, HIP or Vulkan runtime, GiB; unified memory has none to speak of.
_RUNTIME_GIB, _UNIFIED_RUNTIME_GIB = (0.25, 0.45, 0.7), (0.0, 0.1, 0.3)
#: Hidden states alive beside the scores of all heads (phi-2 at 2,048 cells: 162 MiB).
_SCORE_WIDTHS = 6
#: Spread of compute buffers around the model below (15 logs).
_COMPUTE_SPREAD = (0.95, 1.1)


def parse_build(text: str | None) -> tuple[int, bool, Warnings]:
    """(build number, whether it is the fork ik_llama.cpp, warnings) of ``b5192``, ``5192``, ``ik`` or None (the newest)."""
    if text is None or text.lower() in ("newest", "latest", "mainline", "auto"):
        return NEWEST_BUILD, False, ()
    if re.match(r"ik\b|ik_", text.lower()):
        return NEWEST_BUILD, True, ()
    match = re.fullmatch(r"[bv]?(\d{3,6})", text.strip().lower())
    if not match:
        raise UsageError(f"not a build of llama.cpp: {text!r}", f"write it like {NEWEST_VERSION}, or ik for ik_llama.cpp")
    build = int(match[1])
    if build > NEWEST_BUILD:
        return build, False, (("engine_version_unknown", f"llama.cpp {text} is newer than {NEWEST_VERSION}: its law is used"),)
    return build, False, ()


def placement(question: MemoryQuestion) -> list[tuple[int, int]]:
    """Layers [first, last) of each device: those beyond ``gpu_layers`` stay on the host, the rest is dealt out by memory; the output
    layer counts as one. Row split keeps every cache on the first device."""
    layers = len(question.model.layers())
    devices = question.sharding.ranks
    options = question.options
    offloaded = min(layers + 1, layers + 1 if options.gpu_layers is None else options.gpu_layers)
    first = host.layers_on_host(layers, options.gpu_layers)
    if options.pipeline_layers is not None:
        edges = [first]
        for count in options.pipeline_layers:
            edges.append(edges[-1] + count)
        if len(edges) != devices + 1 or edges[-1] != layers:
            raise UsageError(
                f"a split into {options.pipeline_layers} does not deal {layers - first} layers to {devices} devices",
                "one number a device, that sum up to the layers",
            )
        return list(pairwise(edges))
    if options.split_mode == "row":
        return [(first, layers)] + [(layers, layers)] * (devices - 1)
    shares = [question.device(i).memory_capacity_gb for i in range(devices)]
    total, passed, edges = sum(shares), 0.0, [first]
    for share in shares:
        passed += share
        edges.append(min(layers, first + -int(-(offloaded * passed / total) // 1)))
    edges[-1] = layers
    return list(pairwise(edges))


@remembered
def device_caches(model: ModelProfile, latent_cache: str, first: int, last: int) -> list[LayerCache]:
    """Caches of layers [first, last), identical ones counted."""
    counts: dict[LayerCache, int] = {}
    for laws in layer_laws(model, latent_cache)[first:last]:
        for layer in laws:
            counts[layer] = counts.get(layer, 0) + layer.count
    return [replace(layer, count=count) for layer, count in counts.items()]


@remembered
def device_weights(
    model: ModelProfile, numbers: NumberPlan, first: int, last: int, with_output: bool, gpu_experts: int | None
) -> dict[str, int]:
    """Bytes by part of the layers on one device. The table of embeddings stays on the host; the device with the last layer holds the output
    matrix, a copy of the table where the model ties them."""
    names = model.layers()
    whole = Sharding(1, 3)  # host, this device, what follows: the stage in the middle holds neither table nor head
    split = (first, last - first, len(names) - last)
    parts = bytes_by_part(stage_weights(model, whole, 1, layers=split, gpu_experts=gpu_experts), numbers)
    if with_output:
        head = bytes_by_part(stage_weights(model, Sharding(1, 2), 1, layers=(len(names), 0)), numbers)
        parts |= {part: parts.get(part, 0) + size for part, size in head.items()}
    return parts


def compute_bytes(question: MemoryQuestion, layout: Layout, with_output: bool, cells: int) -> int:
    """The compute buffer of one device: logits of a micro-batch with the hidden state on the device that ends the model; the mask and
    the widest layer elsewhere; without flash attention the scores of all heads."""
    from calc.memory.activations import layer_peak_bytes

    model, ubatch = question.model, layout.ubatch
    mask = 4 * ubatch * cells
    layers = layer_peak_bytes(model, Sharding(), replace_compute(question.numbers), ubatch) + mask
    if not layout.flash_attention:
        heads = max((getattr(m, "num_attention_heads", 0) for k in model.layer_kinds.values() for m in k.mixers), default=0)
        layers = max(layers, mask + 4 * ubatch * (heads * cells + _SCORE_WIDTHS * model.hidden_size))
    output = 4 * ubatch * ((model.vocab_size or 0) + model.hidden_size) if with_output else 0
    return max(layers, output)


@remembered
def replace_compute(numbers: NumberPlan) -> NumberPlan:
    """Activations are fp32."""
    return replace(numbers, compute="fp32")


def buffers(question: MemoryQuestion) -> list[Buffers]:
    """Cache buffers of each device for the context asked for, as the log prints them."""
    build, fork, _ = parse_build(question.options.engine_version)
    layout = layout_of(question, build, fork)
    asked = context_size(question, layout)
    shares = (device_caches(question.model, layout.latent_cache, *share) for share in placement(by_layer(question)))
    return [layer_buffers(caches, question.numbers, layout, asked) for caches in shares]


def context_size(question: MemoryQuestion, layout: Layout) -> int:
    """``-c``: as given, else what the slots need for the longest request."""
    given = question.options.context_size
    return given or question.max_model_len * (1 if layout.unified else layout.slots)


def by_layer(question: MemoryQuestion) -> MemoryQuestion:
    """Several devices are stages of layers, not slices of matrices. Raises UsageError for more devices than layers."""
    sharding, layers = question.sharding, len(question.model.layers())
    if sharding.tensor > 1 and sharding.ranks > layers:
        raise UsageError(
            f"tensor parallel size {sharding.tensor} x pipeline parallel size {sharding.pipeline} are more devices than the {layers} "
            "layers that llama.cpp deals to them",
            f"at most {layers} devices",
        )
    return replace(question, sharding=Sharding(1, sharding.ranks, sharding.data)) if sharding.tensor > 1 else question


def capacity(question: MemoryQuestion) -> Capacity:
    """What the buffers of every device leave for caches, and how many slots find room."""
    options, model = question.options, question.model
    question = by_layer(question)
    build, fork, warnings = parse_build(options.engine_version)
    layout = layout_of(question, build, fork)
    share = OfTotal(options.gpu_memory_utilization or DEFAULT_UTILIZATION)
    asked = context_size(question, layout)
    cells = layout.cells(asked)
    if options.max_model_len is None and options.context_size is not None:  # a request has what its slot has
        length = min(cells, model.max_position_embeddings or cells)
        question = replace(question, options=replace(options, max_model_len=length))
    ranks, total = [], Buffers()
    for stage, (first, last) in enumerate(placement(question)):
        memory, said = device_memory(question, framework=False, stage=stage)
        warnings += said
        caches = device_caches(model, layout.latent_cache, first, last) if options.kv_offload else []
        with_output = last == len(model.layers()) and (last > first or stage == 0)
        taken = (
            _weights(question, first, last, with_output),
            _compute(question, layout, with_output, cells),
            _runtime(question, stage),
            given_or(options.graph_bytes, "cuda_graphs", Term("cuda_graphs", 0, "none")),
        )
        kv = given_or(options.kv_cache_bytes, "kv_cache", share.left(memory, taken))
        pool = SlotPool(RankCache(tuple(caches), question.numbers), layout)
        ranks.append(Rank(stage, memory, taken, kv, pool))
        total += layer_buffers(caches, question.numbers, layout, asked)
    printed = _printed(total, layout, asked)
    said_once = tuple(dict.fromkeys(warnings))
    most_slots = options.max_num_seqs or MOST_SLOTS
    summary = Summary(NAME, _shown(build, fork), share, layout.slots, layout.batch, said_once, printed, most_slots)
    found = figures.assemble(question, summary, ranks)
    if options.context_size is None:
        return found
    return replace(found, fits=found.fits and all(_allocated(r, question, layout, asked) <= r.kv.bytes for r in ranks))


def _allocated(rank: Rank, question: MemoryQuestion, layout: Layout, asked: int) -> float:
    return layer_buffers(list(rank.pool.cache.layers), question.numbers, layout, asked).total


def _weights(question: MemoryQuestion, first: int, last: int, with_output: bool) -> Term:
    options, numbers, others = question.options, question.numbers, 0
    if options.split_mode == "row":  # every device holds a slice of every matrix
        first, last = placement(question)[0]
        parts = device_weights(question.model, numbers, first, last, True, options.gpu_experts)
        others = sum(parts.values()) - -(-sum(parts.values()) // question.sharding.ranks)
    else:
        parts = device_weights(question.model, numbers, first, last, with_output, options.gpu_experts)
    exact, tensors = sum(parts.values()) - others, named(parts, numbers)
    if others:
        tensors = (*tensors, ("slices on other devices", -others))
    if any(f.approximate for f in numbers.roles.values()):
        loaded = Term("weights", exact, "average bits of the mix", int(exact * 0.96), int(exact * 1.04), tensors)
    else:
        loaded = Term("weights", exact, "shapes and formats", exact, int(exact * 1.005), tensors)
    return given_or(options.weights_bytes, "weights", loaded)


def _compute(question: MemoryQuestion, layout: Layout, with_output: bool, cells: int) -> Term:
    size = compute_bytes(question, layout, with_output, cells)
    low, high = (int(size * share) for share in _COMPUTE_SPREAD)
    buffer = Term("activation", size, f"compute buffer of {layout.ubatch} tokens", low, high)
    return given_or(question.options.activation_bytes, "activation", buffer)


def _runtime(question: MemoryQuestion, stage: int) -> Term:
    spread = _UNIFIED_RUNTIME_GIB if is_unified(question.device(stage)) else _RUNTIME_GIB
    return given_or(question.options.runtime_bytes, "runtime", gib_term("runtime", spread, "start-up logs"))


def _printed(total: Buffers, layout: Layout, asked: int) -> tuple[Figure, ...]:
    found = [
        Figure("kv_keys", total.keys),
        Figure("kv_values", total.values),
        Figure("kv_buffer", total.attention),
        Figure("context_cells", layout.cells(asked), "cells"),
    ]
    if total.window:
        found += [
            Figure("window_cells", total.window_cells, "cells"),
            Figure("window_buffer", total.window),
            Figure("base_buffer", total.attention - total.window),
        ]
    if total.state or total.convolution:
        found += [
            Figure("state_convolution", total.convolution),
            Figure("state_matrix", total.state),
            Figure("state_buffer", total.convolution + total.state),
        ]
    return tuple(found)


def _shown(build: int, fork: bool) -> str:
    return "ik_llama.cpp" if fork else f"b{build}"


def sequences(question: MemoryQuestion, capacity: Capacity, context: int) -> int:
    """How many requests of ``context`` tokens find room at once. More slots are a matter of ``-np``, so the present number does not
    limit them unless it was given."""
    free = figures.concurrency(capacity, context, question.options.cached_tokens)
    return int(min(free, capacity.most_slots or MOST_SLOTS))
