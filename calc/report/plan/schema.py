"""The JSON Schema of a plan's answer: every key with its definition."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _number(text: str) -> Schema:
    return {"type": ["number", "null"], "description": text}


def _text(text: str) -> Schema:
    return {"type": ["string", "null"], "description": text}


def _list(properties: Schema, text: str) -> Schema:
    return {"type": "array", "description": text, "items": {"type": "object", "properties": properties}}


_SPLIT = {
    "hardware": _text("Profile of the device."),
    "replicas": {"type": "integer", "description": "Independent copies of the deployment."},
    "gpus": {"type": "integer", "description": "GPUs of all replicas."},
    "tensor_parallel_size": {"type": "integer", "description": "Of one replica, like the following keys."},
    "pipeline_parallel_size": {"type": "integer"},
    "data_parallel_size": {
        "type": "integer",
        "description": "Groups of ranks of a replica that attend to requests of their own and share its experts; 1: none.",
    },
    "enable_expert_parallel": {"type": "boolean"},
    "dtype": _text("Compute type."),
    "quantization": _text("Weight format; as stored where none was asked for."),
    "kv_cache_dtype": _text("Cache format."),
    "engine": _text("Engine."),
    "engine_version": _text("Its version."),
    "decode_context_parallel_size": {"type": "integer"},
    "max_num_batched_tokens": {
        "type": ["integer", "null"],
        "description": "Tokens in a step, where asked for; null: the engine's own.",
    },
    "asked_max_num_seqs": {
        "type": ["integer", "null"],
        "description": "Limit of sequences at once, where asked for; null: the engine's own.",
    },
    "speculative_tokens": {"type": "integer", "description": "Draft tokens a round; 0: plain decode."},
}
_SHORTFALL = {
    "what": _text("weights, kv_cache, batch_limit, prefill, ttft_s, tpot_s, e2e_s or request_rate."),
    "found": _number("What was found: bytes per GPU, seconds, requests per second or requests."),
    "limit": _number("What it is held to."),
    "because": _text("What keeps a rate so low; any load where not even an idle replica is fast enough."),
}


def plan_schema(time_range: Schema) -> Schema:
    """``results`` of ``plan``."""
    answer = _SPLIT | {
        "usd_per_hour": _number("All GPUs that are paid for, in use or not; null where no price is known."),
        "price": {
            "type": ["object", "null"],
            "description": "USD per GPU in use and hour, idle ones of whole instances included, and where it comes from.",
        },
        "paid_gpus": {"type": "integer", "description": "GPUs that the bill counts: those of whole instances."},
        "instance": {
            "type": ["object", "null"],
            "description": "What the GPUs are sold as: its name, its GPUs and how many; null where the price is of single GPUs.",
        },
        "usd_per_million_output_tokens": _number("The whole bill over the output tokens of this load, idle time included."),
        "usd_per_million_tokens_split": {
            "type": ["object", "null"],
            "description": "The bill split by time: what prompts add to the steps is charged to prompt tokens (`input`), the rest to "
            "output tokens (`output`).",
        },
        "joules_per_output_token_at_most": _number("Upper bound: every GPU at its TDP all the time."),
        "ttft_s": time_range | {"description": "Time to first token of the judged request: mean wait, then its own prefill."},
        "tpot_s": time_range | {"description": "Mean step of the steady state, prompts of other requests included."},
        "e2e_s": time_range | {"description": "End to end of the judged request: TTFT + (output - 1) x TPOT."},
        "longest_step_s": _number("The largest gap between two tokens: a step with a chunk of another's prompt."),
        "in_flight_per_replica": _number("Requests whose prompt or decode steps run under the load; of users all of the busiest replica."),
        "max_num_seqs": {"type": "integer", "description": "Most requests at once at which the objectives hold."},
        "request_rate": _number("Requests per second: the load asked for, or what the users make of it."),
        "sustainable_request_rate": _number("Requests per second of all replicas within the objectives."),
        "output_tokens_per_s": _number("Output tokens of all replicas under the load."),
        "limited_by": {"type": "object", "description": "What fails at the next larger load.", "properties": _SHORTFALL},
        "decode_bound": _text("Resource that rules a decode step."),
        "prefill_bound": _text("Resource that rules what prompts add to a step."),
        "kv_cache_room": _number("Requests of mean length that find memory in a replica."),
        "launch": _text("Command of one replica; null where the engine has none that holds a limit of requests."),
        "launch_notes": {"type": "array", "items": {"type": "string"}},
    }  # fmt: skip
    separate = {
        "prefill": {"type": "object", "properties": _SPLIT},
        "decode": {"type": "object", "properties": _SPLIT},
        "gpus": {"type": "integer", "description": "GPUs of all replicas of both kinds."},
        "usd_per_hour": _number("All GPUs, in use or not; null where no price is known."),
        "prefill_per_decode": _number("Prefill replicas per decode replica at which both are busy all the time."),
        "kv_transfer": {"type": "object", "description": "The judged prompt's cache over the network of each device."},
        "ttft_s": time_range | {"description": "Mean wait for prefill, the prompt, and what of the transfer it does not hide."},
        "tpot_s": time_range | {"description": "A decode step that carries no prompts."},
        "e2e_s": time_range | {"description": "TTFT + (output - 1) x TPOT."},
        "in_flight_per_decode_replica": _number("Requests that decode under the load."),
        "max_num_seqs": {"type": "integer", "description": "Most requests at once in a decode replica within the objectives."},
        "sustainable_request_rate": _number("Requests per second of prefill and decode together."),
    }
    failure = _SPLIT | {"usd_per_hour": _number("All GPUs."), "fails": _list(_SHORTFALL, "Why, worst first.")}
    concession = {
        "objective": _text("ttft_s, tpot_s, e2e_s, request_rate, concurrency or max_gpus."),
        "asked": _number("As asked."),
        "needed": _number("What it would have to be."),
    } | _SPLIT
    point = {k: v for k, v in _SPLIT.items() if k != "replicas"} | {
        "in_flight": _number("Requests in flight in one replica."),
        "tpot_s": _number("At this load."),
        "ttft_s": _number("At this load."),
        "output_tokens_per_s_per_gpu": _number("At this load."),
        "usd_per_million_output_tokens": _number("At this load; null where a price is unknown."),
    }
    return {
        "type": "object",
        "properties": {
            "meets": {"type": "boolean", "description": "Whether anything meets the objectives."},
            "answers": _list(answer, "Best first."),
            "disaggregated": _list(separate, "With --disaggregated: prefill and decode on replicas of their own, best first."),
            "next_cheaper": _list(
                failure, "The most expensive deployment of each device that is cheaper than the best answer, and why it fails."
            ),
            "nearest_misses": _list(failure, "Where nothing meets the objectives: what misses by least."),
            "would_have_to_give": _list(concession, "Where nothing meets the objectives: each that would do alone."),
            "would_have_to_give_together": _list(concession, "And what would have to give at once."),
            "front": _list(
                point, "Replicas at loads within the TTFT and end-to-end objectives that no other beats in both TPOT and cost."
            ),
            "examined": {"type": "object", "description": "Deployments looked at, that fit, and that meet the objectives."},
        },
    }
