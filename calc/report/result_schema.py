"""The JSON Schema of answers: every key with its definition. Metrics are defined here once; the reference page is made from it."""

from __future__ import annotations

from typing import Any

from calc.report.plan_schema import plan_schema

_TIME_RANGE = {
    "type": "object",
    "description": "A time in seconds. Nothing beats `floor`; `low`, `expected` and `high` carry `evidence`. All null where no speed is "
    "answered.",
    "properties": {
        "floor": {
            "type": ["number", "null"],
            "description": "Sum over operators of the roofline time of the bytes that must move.",
        },
        "low": {"type": ["number", "null"], "description": "Fast end of the range; never below `floor`."},
        "expected": {"type": ["number", "null"], "description": "What to plan with."},
        "high": {"type": ["number", "null"], "description": "Slow end of the range."},
        "evidence": {"type": ["string", "null"], "description": "What the range rests on: default, fitted n=..., measured here."},
    },
    "required": ["floor", "low", "expected", "high", "evidence"],
}
_RATE_RANGE = {
    "type": "object",
    "description": "A rate per second; `ceiling` is what nothing exceeds.",
    "properties": {
        "ceiling": {"type": ["number", "null"]},
        **{k: {"type": ["number", "null"]} for k in ("low", "expected", "high")},
        "evidence": {"type": ["string", "null"]},
    },
    "required": ["ceiling", "low", "expected", "high", "evidence"],
}


def _number(text: str) -> dict[str, Any]:
    return {"type": ["number", "null"], "description": text}


def _integer(text: str) -> dict[str, Any]:
    return {"type": ["integer", "null"], "description": text}


def _text(text: str) -> dict[str, Any]:
    return {"type": ["string", "null"], "description": text}


_TRAFFIC = {
    "flops": _number("Tensor FLOP; one multiply-add is 2."),
    "vector_flops": _number("FLOP on the vector units: norms, rotary embedding, softmax, activations."),
    "weight_bytes": _number("Weights with their scales that the step reads; experts by the expected number of distinct ones."),
    "activation_bytes": _number("Activations through memory under the fusion policy."),
    "kv_read_bytes": _number("KV cache read."),
    "kv_write_bytes": _number("KV cache appended."),
    "state_bytes": _number("Recurrent state read and written back."),
    "network_bytes": _number("Bytes that ranks send to each other."),
}
_STEP = {
    "tokens": _number("Prompt tokens in prefill, output tokens in decode."),
    **_TRAFFIC,
    "bytes": _number("Weights + activations + KV read + KV write + state, without network."),
    "fusion_policy": _text("Which small operators are kernels of their own: `separate` or `fused`."),
    "arithmetic_intensity": _number("flops / bytes under the named fusion policy."),
    "arithmetic_intensity_weights_only": _number("FLOP of the operators that hold weights / weight_bytes."),
    "arithmetic_intensity_weights_and_kv": _number("flops / (weight_bytes + kv_read_bytes)."),
    "ridge_point": _number("Dense peak of the main compute type / memory bandwidth, FLOP per byte."),
    "bound": _text("The resource with the largest share of the floor: compute, memory, network or overhead."),
    "time_s": _TIME_RANGE,
    "floor_overlapped_s": _number("Largest of total compute, memory and network time: perfect overlap between operators."),
    "tokens_per_s": _RATE_RANGE,
    "compute_utilization": _number("Share of the dense peak in use at the expected time."),
    "bandwidth_utilization": _number("Share of the memory bandwidth in use at the expected time."),
    "per_rank": {"type": "object", "description": "The same sums divided by the ranks of a replica."},
    "flow": {
        "type": "object",
        "description": "How the step is cut, where a replica has pipeline stages or data-parallel ranks or messages are hidden.",
        "properties": {
            "micro_batches": _number("Parts of a decoding batch that are on different pipeline stages at once."),
            "stages_at_once": _number("Pipeline stages that work at once on average while a prompt passes them in micro-batches."),
            "idle_share": _number("Share of the stages' time that is waited for other stages."),
            "tokens_of_fullest_rank": _number("New tokens of the data-parallel rank that has most; all wait for it."),
            "requests_of_fullest_rank": _number("Its requests in one micro-batch."),
            "hidden_s": {"type": "object", "description": "Seconds of messages behind compute, by end of the range."},
        },
    },
}
_OPERATOR = {
    "name": _text("Operator, in vLLM's names where one exists."),
    "class": _text("Operators that share kernels: gemm, experts, attention, recurrent, norm, elementwise, embedding, collective."),
    "layers": _text("Kind of layer it belongs to."),
    "count": _integer("Calls in the step; step = sum of value x count."),
    "shape": {"type": "object", "description": "Sizes of one rank (the mean one): m x n x k of a product; pairs, keys and heads."},
    **_TRAFFIC,
    "arithmetic_intensity": _number("flops / bytes of one call."),
    "bound": _text("Resource that rules the operator's floor."),
    "time_s": _TIME_RANGE,
    "share": _number("Share of the step's expected time of all calls."),
}
_CAPACITY = {
    "engine": _text("Engine whose memory law was used."),
    "engine_version": _text("Its version; the newest known one where none was given."),
    "max_model_len": _integer("Longest sequence the figures are about."),
    "gpu_memory_utilization": _number("Share of memory the engine may use, in the engine's own sense."),
    "max_num_seqs": _integer("Most sequences at once, where the engine limits them; of each data-parallel rank of a replica."),
    "max_num_batched_tokens": _integer("Most tokens in a step, where the engine limits them."),
    "capacity_bytes_per_gpu": _integer("Total memory of a GPU as the engine sees it."),
    "fits": {"type": "boolean", "description": "Weights and one sequence of max_model_len fit."},
    "weights_bytes_per_gpu": _integer("Weights of the rank that holds most, as loaded."),
    "activation_bytes_per_gpu": _integer("Peak of activations or of the sampler, whichever is larger."),
    "runtime_bytes_per_gpu": _integer("Memory outside the framework's allocator: context, NCCL."),
    "graph_bytes_per_gpu": _integer("CUDA graphs, where the engine subtracts them."),
    "kv_cache_bytes_per_gpu": _integer("What is left for the cache."),
    "kv_bytes_per_token_per_gpu": _number("Slope at large context: layers whose cache grows without bound."),
    "state_bytes_per_sequence_per_gpu": _integer("Recurrent state, constant in the context."),
    "block_tokens": _integer("Tokens per block."),
    "blocks": _integer("Blocks in the pool."),
    "kv_tokens": _integer("Tokens of KV cache as the engine prints them: of one data-parallel rank."),
    "max_concurrency": _number("Sequences of max_model_len tokens at once on all ranks of a replica."),
    "max_concurrency_low": _number("The same where every uncertain term is at its worst."),
    "max_concurrency_high": _number("The same where every uncertain term is at its best."),
    "max_context_tokens": _integer("Longest single sequence; null where memory does not limit it."),
    "kv_bytes_per_sequence": {
        "type": "object",
        "description": "Bytes of a sequence of max_model_len tokens over all ranks of a replica: ideal, reserved in blocks, read by one "
        "decode step. Three numbers that are never merged.",
        "properties": {k: _number(k) for k in ("ideal", "reserved", "read_per_step")},
    },
    "terms": {"type": "array", "description": "Every term of the budget with its evidence.", "items": {"type": "object"}},
}
_CRITICAL = {
    "batch": _number("Tokens in a step from which the weight-bearing operators are compute-bound, weights alone counted."),
    "context_kv_equals_weights": _number("Sum of contexts over the batch at which KV read equals weights read."),
    "context_never_compute_bound": _number("Mean context beyond which decode is memory-bound at every batch."),
}
_SPECULATION = {
    "draft": _text("What proposes tokens: next-token layers, a draft model, or ngram."),
    "speculative_tokens": _integer("Drafts a round."),
    "acceptance": {
        "type": "array",
        "items": {"type": "number"},
        "description": "Share of drafts kept if all before were, by position; the last one stands for all further positions.",
    },
    "tokens_per_round": _number("Expected tokens of a round: the drafts that are kept and the model's own next token."),
    "draft_s": _TIME_RANGE,
    "verify_s": _TIME_RANGE,
    "round_s": _TIME_RANGE | {"description": "All draft steps and the step that verifies them."},
    "tpot_s": _TIME_RANGE | {"description": "Time per output token: round_s / tokens_per_round."},
    "e2e_s": _TIME_RANGE | {"description": "TTFT + (output - 1) x this TPOT."},
    "draft_cost": _number("One draft step in plain decode steps."),
    "verify_cost": _number("The step that verifies in plain decode steps."),
    "speedup": _number("Plain TPOT / this TPOT, at the expected times."),
    "best_speculative_tokens": _integer("Drafts a round that are fastest, of 0 to 32 and those asked for."),
    "best_speedup": _number("Speed-up with that many."),
}
_CHANGE = {
    "change": _text("What is twice as good: bandwidth, compute, link, launch (half its time), kv_cache_format (half its bytes)."),
    "time_s": _TIME_RANGE,
    "saved": _number("Share of the step's expected time that goes away."),
}
_CHUNKED = {
    "running_decodes": _integer("Requests that decode in the same steps: the rest of the batch."),
    "max_num_batched_tokens": _integer("Most tokens of a step, decodes included."),
    "ttft_s": _TIME_RANGE | {"description": "Sum of the steps that carry the prompt."},
    "whole_prompt_s": _TIME_RANGE | {"description": "The same prompt in a step of its own."},
    "decode_itl_s": _TIME_RANGE | {"description": "Time between tokens of the decodes without the prompt."},
    "mixed_itl_s": _TIME_RANGE | {"description": "Time between their tokens in the longest step with it."},
    "chunks": {"type": "array", "items": {"type": "object"}},
}
_APART = {
    "prefill_per_decode": _number("Prefill replicas per decode replica at which both are busy all the time."),
    "requests_per_s": _number("Requests per second that one decode replica then finishes."),
    "kv_transfer": {
        "type": ["object", "null"],
        "description": "The prompt's cache over the network of each device; null where no network is known.",
        "properties": {
            "bytes_per_rank": _number("Cache of the rank that holds most."),
            "bandwidth_bytes_per_s": _number("Network of one device, one direction."),
            "time_s": _number("All of it."),
            "exposed_s": _number("What the first token waits for when each layer is sent as soon as it is made."),
        },
    },
}
_KV_OFFLOAD = {
    "tokens": _integer("Length of the prompt whose cache the host keeps."),
    "bytes_per_rank": _number("Cache of the rank that holds most."),
    "bandwidth_bytes_per_s": _number("Link between a device and its host, one direction."),
    "restore_s": _number("The cache over that link."),
    "recompute_s": _TIME_RANGE | {"description": "Prefill of the same prompt."},
    "break_even_bytes_per_s": _number("Restoring wins on any faster link."),
}
_REQUEST = {
    "ttft_s": _TIME_RANGE | {"description": "Time to first token: prefill of the whole prompt, ending with the first token."},
    "tpot_s": _TIME_RANGE | {"description": "Time per output token: the mean decode step of the request."},
    "e2e_s": _TIME_RANGE | {"description": "End to end: TTFT + (output - 1) x TPOT."},
    "decode_share": _number("(output - 1) x TPOT / E2E, at the expected times."),
    "output_tokens_per_s": _RATE_RANGE | {"description": "Output tokens of the whole batch per second, end to end."},
}
_LOAD = {
    "request_rate": _number("Requests per second: as asked, or what the users make of it."),
    "concurrency": _integer("Users at once, where they were stated."),
    "carried": {"type": "boolean", "description": "Whether the deployment carries the load."},
    "replicas": _integer("Data-parallel replicas that share it evenly."),
    "ttft_s": _TIME_RANGE | {"description": "Time to first token: mean wait, then the prompt's own steps."},
    "tpot_s": _TIME_RANGE | {"description": "Mean step of the steady state, prompts of other requests included."},
    "e2e_s": _TIME_RANGE | {"description": "TTFT + (output - 1) x TPOT."},
    "longest_step_s": _number("A step with a chunk of prompt: the largest gap between two tokens."),
    "in_flight_per_replica": _number("Requests in flight."),
    "sustainable_request_rate": _number("Most requests per second of all replicas."),
    "output_tokens_per_s": _number("Output tokens of all replicas under the load."),
    "limited_by": {"type": ["object", "null"], "description": "What fails at the next larger load."},
    "fails": {"type": "array", "items": {"type": "object"}, "description": "Why the load is not carried, worst first."},
}
_MEMORY = {
    "fits": {"type": "boolean", "description": "The workload's requests at their final length fit by the engine's law."},
    "capacity_bytes_per_gpu": _integer("Total memory of a GPU as the engine sees it."),
    "used_bytes_per_gpu": _integer("Weights, activations, runtime, graphs and the ideal cache of the workload."),
    "terms": {"type": "array", "items": {"type": "object"}},
    "too_large": _text("The term that does not fit (only when it does not)."),
    "largest_batch": _integer("Largest batch at this length that fits (only when it does not)."),
    "largest_context": _integer("Longest context at this batch that fits (only when it does not)."),
    "missing_bytes_per_gpu": _integer("Bytes beyond the usable memory (only when it does not fit)."),
    "host_stream_s": _number("Those bytes over the host link: what a step would wait at least if weights stayed in host memory."),
    "host_hidden_tokens": _number("Tokens in a step from which products hide that; null for mixtures of experts."),
}


def _object(properties: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"description": text} if text else {})}


def _round(draft: dict[str, Any], verify: dict[str, Any]) -> dict[str, Any]:
    """Keys where --speculative-tokens is given."""
    return {
        "draft": draft
        | {"description": "One draft step, of which a round takes --speculative-tokens; null: no layers of the model draft."},
        "verify": verify | {"description": "The step that checks all drafts of a round."},
        "round_s": _TIME_RANGE | {"description": "All draft steps and the step that verifies them, at the shown context."},
    }


def result_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the answers of estimate, roofline and capacity: the envelope, and ``$defs`` by command."""
    step = _object(_STEP, "One step, summed over the ranks of one replica.")
    operators = {"type": "array", "items": _object(_OPERATOR, "Figures of one call summed over the ranks of a replica.")}
    listed = _object(_STEP | {"operators": operators}, "One step with its operators.")
    changes = {"type": "array", "items": _object(_CHANGE)}
    nullable_step = {"anyOf": [step, {"type": "null"}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "roofcast answer",
        "type": "object",
        "required": ["schema", "version", "inputs", "profiles", "results", "warnings"],
        "properties": {
            "schema": {"type": "string", "pattern": r"^roofcast\.[a-z-]+/[0-9]+$", "description": "roofcast.<command>/<version>."},
            "version": {"type": "string"},
            "inputs": {"type": "object", "description": "Every input as resolved, defaults included."},
            "profiles": {
                "type": "array",
                "items": _object({"kind": {"type": "string"}, "name": {"type": "string"}, "sha256": {"type": "string"}}),
            },
            "results": {"type": "object"},
            "warnings": {"type": "array", "items": _object({"code": {"type": "string"}, "message": {"type": "string"}})},
        },
        "$defs": {
            "estimate": _object(
                {
                    "prefill": step,
                    "decode": nullable_step,
                    **_round(nullable_step, step),
                    "request": _object(_REQUEST | {"speculation": _object(_SPECULATION, "Where --acceptance is given.")}),
                    "load": _object(
                        _LOAD, "Where --request-rate or --concurrency is given: the steady state of continuous batching."
                    ),
                    "memory": _object(_MEMORY),
                    "capacity": _object(_CAPACITY),
                }
            ),
            "roofline": _object(
                {
                    "prefill": listed,
                    "decode": listed,
                    **_round({"anyOf": [listed, {"type": "null"}]}, listed),
                    "critical": _object(_CRITICAL),
                    "sensitivity": _object({"prefill": changes, "decode": changes}, "What would help, the most helpful first."),
                    "memory": _object(_MEMORY),
                }
            ),
            "request": _object(
                _REQUEST
                | {
                    "speculation": _object(_SPECULATION, "Where --acceptance is given."),
                    "chunked_prefill": _object(_CHUNKED, "Where --chunked is given."),
                    "disaggregation": _object(_APART, "Prefill and decode on machines of their own, at the expected times."),
                    "kv_offload": _object(_KV_OFFLOAD, "Null where the host link is not known."),
                    "memory": _object(_MEMORY),
                }
            ),
            "capacity": _object(_CAPACITY),
            "plan": plan_schema(_TIME_RANGE),
        },
    }
