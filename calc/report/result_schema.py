"""The JSON Schema of answers: every key with its definition. Metrics are defined here once; the reference page is made from it."""

from __future__ import annotations

from typing import Any

from calc.report.capacity_schema import ASKED, CAPACITY, MEMORY
from calc.report.plan.schema import plan_schema
from calc.report.schema_parts import boolean, integer, nullable, number, record, text
from calc.report.table_schema import compared, model_shown, reconciled

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


_TRAFFIC = {
    "flops": number("Tensor FLOP; one multiply-add is 2."),
    "vector_flops": number("FLOP on the vector units: norms, rotary embedding, softmax, activations."),
    "weight_bytes": number("Weights with their scales that the step reads; experts by the expected number of distinct ones."),
    "activation_bytes": number("Activations through memory under the fusion policy."),
    "kv_read_bytes": number("KV cache read."),
    "kv_write_bytes": number("KV cache appended."),
    "state_bytes": number("Recurrent state read and written back."),
    "network_bytes": number("Bytes that ranks send to each other."),
}
_STEP = {
    "tokens": number("Prompt tokens in prefill, output tokens in decode."),
    **_TRAFFIC,
    "bytes": number("Weights + activations + KV read + KV write + state, without network."),
    "fusion_policy": text("Which small operators are kernels of their own: `separate` or `fused`."),
    "arithmetic_intensity": number("flops / bytes under the named fusion policy."),
    "arithmetic_intensity_weights_only": number("FLOP of the operators that hold weights / weight_bytes."),
    "arithmetic_intensity_weights_and_kv": number("flops / (weight_bytes + kv_read_bytes)."),
    "ridge_point": number("Dense peak of the main compute type / memory bandwidth, FLOP per byte."),
    "bound": text("The resource with the largest share of the floor: compute, memory, network or overhead."),
    "time_s": _TIME_RANGE,
    "floor_overlapped_s": number("Largest of total compute, memory and network time: perfect overlap between operators."),
    "tokens_per_s": _RATE_RANGE,
    "compute_utilization": number("Share of the dense peak in use at the expected time."),
    "bandwidth_utilization": number("Share of the memory bandwidth in use at the expected time."),
    "per_rank": {"type": "object", "description": "The same sums divided by the ranks of a replica."},
    "flow": {
        "type": "object",
        "description": "How the step is cut, where a replica has pipeline stages or data-parallel ranks or messages are hidden.",
        "properties": {
            "micro_batches": number("Parts of a decoding batch that are on different pipeline stages at once."),
            "stages_at_once": number("Pipeline stages that work at once on average while a prompt passes them in micro-batches."),
            "idle_share": number("Share of the stages' time that is waited for other stages."),
            "tokens_of_fullest_rank": number("New tokens of the data-parallel rank that has most; all wait for it."),
            "requests_of_fullest_rank": number("Its requests in one micro-batch."),
            "hidden_s": {"type": "object", "description": "Seconds of messages behind compute, by end of the range."},
        },
    },
}
_OPERATOR = {
    "name": text("Operator, in vLLM's names where one exists."),
    "class": text("Operators that share kernels: gemm, experts, attention, recurrent, norm, elementwise, embedding, collective."),
    "layers": text("Kind of layer it belongs to."),
    "compute_dtype": text("The type it multiplies in."),
    "weight_format": text("The format of its weights; null without any."),
    "count": integer("Calls in the step; step = sum of value x count."),
    "shape": {"type": "object", "description": "Sizes of one rank (the mean one): m x n x k of a product; pairs, keys and heads."},
    **_TRAFFIC,
    "arithmetic_intensity": number("flops / bytes of one call."),
    "bound": text("Resource that rules the operator's floor."),
    "time_s": _TIME_RANGE,
    "share": number("Share of the step's expected time of all calls."),
    "detail": {"type": "object", "description": "What else is particular to the operator, where there is any."},
}
_CRITICAL = {
    "batch": number("Tokens in a step from which the weight-bearing operators are compute-bound, weights alone counted."),
    "context_kv_equals_weights": number("Sum of contexts over the batch at which KV read equals weights read."),
    "context_never_compute_bound": number("Mean context beyond which decode is memory-bound at every batch."),
}
_SPECULATION = {
    "draft": text("What proposes tokens: next-token layers, a draft model, or ngram."),
    "speculative_tokens": integer("Drafts a round."),
    "acceptance": {
        "type": "array",
        "items": {"type": "number"},
        "description": "Share of drafts kept if all before were, by position; the last one stands for all further positions.",
    },
    "tokens_per_round": number("Expected tokens of a round: the drafts that are kept and the model's own next token."),
    "draft_s": _TIME_RANGE,
    "verify_s": _TIME_RANGE,
    "round_s": _TIME_RANGE | {"description": "All draft steps and the step that verifies them."},
    "tpot_s": _TIME_RANGE | {"description": "Time per output token: round_s / tokens_per_round."},
    "e2e_s": _TIME_RANGE | {"description": "TTFT + (output - 1) x this TPOT."},
    "draft_cost": number("One draft step in plain decode steps."),
    "verify_cost": number("The step that verifies in plain decode steps."),
    "speedup": number("Plain TPOT / this TPOT, at the expected times."),
    "best_speculative_tokens": integer("Drafts a round that are fastest, of 0 to 32 and those asked for."),
    "best_speedup": number("Speed-up with that many."),
}
_CHANGE = {
    "change": text("What is twice as good: bandwidth, compute, link, launch (half its time), kv_cache_format (half its bytes)."),
    "time_s": _TIME_RANGE,
    "saved": number("Share of the step's expected time that goes away."),
}
_CHUNKED = {
    "running_decodes": integer("Requests that decode in the same steps: the rest of the batch."),
    "max_num_batched_tokens": integer("Most tokens of a step, decodes included."),
    "ttft_s": _TIME_RANGE | {"description": "Sum of the steps that carry the prompt."},
    "whole_prompt_s": _TIME_RANGE | {"description": "The same prompt in a step of its own."},
    "decode_itl_s": _TIME_RANGE | {"description": "Time between tokens of the decodes without the prompt."},
    "mixed_itl_s": _TIME_RANGE | {"description": "Time between their tokens in the longest step with it."},
    "chunks": {"type": "array", "items": {"type": "object"}},
}
_APART = {
    "prefill_per_decode": number("Prefill replicas per decode replica at which both are busy all the time; null without decode."),
    "requests_per_s": number("Requests per second that one decode replica then finishes; null without decode."),
    "kv_transfer": {
        "type": ["object", "null"],
        "description": "The prompt's cache over the network of each device; null where no network is known.",
        "properties": {
            "bytes_per_rank": number("Cache of the rank that holds most."),
            "bandwidth_bytes_per_s": number("Network of one device, one direction."),
            "time_s": number("All of it."),
            "exposed_s": number("What the first token waits for when each layer is sent as soon as it is made."),
        },
    },
}
_KV_OFFLOAD = {
    "tokens": integer("Length of the prompt whose cache the host keeps."),
    "bytes_per_rank": number("Cache of the rank that holds most."),
    "bandwidth_bytes_per_s": number("Link between a device and its host, one direction."),
    "restore_s": _TIME_RANGE | {"description": "The cache over that link: its rate at best, what copies reach of it otherwise."},
    "recompute_s": _TIME_RANGE | {"description": "Prefill of the same prompt."},
    "break_even_bytes_per_s": number("At the expected times restoring wins on any faster link."),
}
_REQUEST = {
    "ttft_s": _TIME_RANGE | {"description": "Time to first token: prefill of the whole prompt, ending with the first token."},
    "tpot_s": _TIME_RANGE | {"description": "Time per output token: the mean decode step of the request."},
    "e2e_s": _TIME_RANGE | {"description": "End to end: TTFT + (output - 1) x TPOT."},
    "decode_share": number("(output - 1) x TPOT / E2E, at the expected times."),
    "output_tokens_per_s": _RATE_RANGE | {"description": "Output tokens of the whole batch per second, end to end."},
}
_EACH = {"type": "array", "items": {"type": "number"}}
_LIFE = {
    "flops": number("FLOP of the whole life of the batch."),
    "kv_cache_bytes": number("Cache of the batch at its end, on all ranks."),
    "tokens": {
        "type": ["object", "null"],
        "description": "Token by token, by position; long outputs are sampled evenly.",
        "properties": {
            "token": _EACH | {"description": "Number of the output token; the first is prefill's."},
            "context_len": _EACH | {"description": "Keys that its step sees."},
            "latency_s": _EACH | {"description": "Expected seconds."},
            **{f"latency_{part}_s": _EACH for part in ("floor", "low", "high")},
        },
    },
    "without_cache": {
        "type": ["object", "null"],
        "description": "The same tokens when every past token is computed again.",
        "properties": {
            "e2e_s": number("End to end, expected."),
            "flops": number("FLOP."),
            "speedup": number("Its time over that with a cache."),
            "pays_from_token": integer("First output token from which the life with a cache is ahead; null: never."),
            "latency_s": _EACH | {"description": "Expected seconds, token by token."},
        },
    },
}
_LOAD = {
    "request_rate": number("Requests per second: as asked, or what the users make of it."),
    "concurrency": integer("Users at once, where they were stated."),
    "carried": boolean("Whether the deployment carries the load; null where no times are answered."),
    "replicas": integer("Data-parallel replicas that share it evenly."),
    "ttft_s": _TIME_RANGE | {"description": "Time to first token: mean wait, then the prompt's own steps."},
    "tpot_s": _TIME_RANGE | {"description": "Mean step of the steady state, prompts of other requests included."},
    "e2e_s": _TIME_RANGE | {"description": "TTFT + (output - 1) x TPOT."},
    "longest_step_s": number("A step with a chunk of prompt: the largest gap between two tokens."),
    "in_flight_per_replica": number("Requests in flight, of a number of users on the busiest replica."),
    "sustainable_request_rate": number("Most requests per second of all replicas."),
    "output_tokens_per_s": number("Output tokens of all replicas under the load."),
    "limited_by": {"type": ["object", "null"], "description": "What fails at the next larger load."},
    "fails": {"type": "array", "items": {"type": "object"}, "description": "Why the load is not carried, worst first."},
}


def _round(draft: dict[str, Any], verify: dict[str, Any]) -> dict[str, Any]:
    """Keys where --speculative-tokens is given."""
    return {
        "draft": draft
        | {"description": "One draft step, of which a round takes --speculative-tokens; null: no layers of the model draft."},
        "verify": verify | {"description": "The step that checks all drafts of a round."},
        "round_s": _TIME_RANGE | {"description": "All draft steps and the step that verifies them, at the shown context."},
    }


def result_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of answers: the envelope, and in ``$defs`` the results by command."""
    step = record(_STEP, "One step, summed over the ranks of one replica.")
    operators = {"type": "array", "items": record(_OPERATOR, "Figures of one call summed over the ranks of a replica.")}
    detailed = record(_STEP | {"operators": operators}, "One step with its operators.")
    changes = {"type": "array", "items": record(_CHANGE)}
    nullable_step = nullable(step)
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
                "items": record({"kind": {"type": "string"}, "name": {"type": "string"}, "sha256": {"type": "string"}}),
            },
            "results": {"type": "object"},
            "warnings": {"type": "array", "items": record({"code": {"type": "string"}, "message": {"type": "string"}})},
        },
        "$defs": {
            "estimate": record(
                {
                    "prefill": step,
                    "decode": nullable_step,
                    **_round(nullable_step, step),
                    "request": record(_REQUEST | {"speculation": record(_SPECULATION, "Where --acceptance is given.")}),
                    "load": record(
                        _LOAD, "Where --request-rate or --concurrency is given: the steady state of continuous batching."
                    ),
                    "memory": record(MEMORY),
                    "capacity": record(CAPACITY),
                }
            ),
            "roofline": record(
                {
                    "prefill": detailed,
                    "decode": detailed,
                    **_round(nullable(detailed), detailed),
                    "critical": record(_CRITICAL),
                    "sensitivity": record({"prefill": changes, "decode": changes}, "What would help, the most helpful first."),
                    "memory": record(MEMORY),
                }
            ),
            "request": record(
                _REQUEST
                | {
                    "speculation": record(_SPECULATION, "Where --acceptance is given."),
                    **_LIFE,
                    "chunked_prefill": record(_CHUNKED, "Where --chunked is given."),
                    "disaggregation": nullable(
                        record(_APART, "Prefill and decode on machines of their own, at the expected times. Null without times.")
                    ),
                    "kv_offload": nullable(record(_KV_OFFLOAD, "Null where the host link is not known, and without times.")),
                    "memory": record(MEMORY),
                }
            ),
            "capacity": record(CAPACITY | ASKED),
            "plan": plan_schema(_TIME_RANGE),
            "compare": compared(),
            "reconcile": reconciled(),
            "models-show": model_shown(),
        },
    }
