"""The JSON Schema of memory and capacity in answers."""

from __future__ import annotations

from calc.report.schema_parts import boolean, integer, listed, number, record, text

TERM = {
    "name": text("gpu_memory, weights, activation, runtime, cuda_graphs, kv_cache or kv_cache_needed."),
    "bytes": integer("Per GPU."),
    "evidence": text("What it rests on."),
    "low": integer("Least that the evidence allows, where it spreads."),
    "high": integer("Most that the evidence allows, where it spreads."),
}
CAPACITY = {
    "engine": text("Engine whose memory law was used."),
    "engine_version": text("Its version; the newest known one where none was given."),
    "max_model_len": integer("Longest sequence the figures are about."),
    "gpu_memory_utilization": number("Share of memory the engine may use, in the engine's own sense."),
    "max_num_seqs": integer("Most sequences at once, where the engine limits them; of each data-parallel rank of a replica."),
    "max_num_batched_tokens": integer("Most tokens in a step, where the engine limits them."),
    "capacity_bytes_per_gpu": integer("Total memory of a GPU as the engine sees it."),
    "fits": {"type": "boolean", "description": "Weights and one sequence of max_model_len fit."},
    "weights_bytes_per_gpu": integer("Weights as loaded of the rank that rules: the one whose cache holds least."),
    "activation_bytes_per_gpu": integer("Peak of activations or of the sampler, whichever is larger."),
    "runtime_bytes_per_gpu": integer("Memory outside the framework's allocator: context, NCCL."),
    "graph_bytes_per_gpu": integer("CUDA graphs, where the engine subtracts them."),
    "kv_cache_bytes_per_gpu": integer("What is left for the cache."),
    "kv_bytes_per_token_per_gpu": number("Slope at large context: layers whose cache grows without bound."),
    "state_bytes_per_sequence_per_gpu": integer("Recurrent state, constant in the context."),
    "block_tokens": integer("Tokens per block."),
    "blocks": integer("Blocks in the pool."),
    "kv_tokens": integer("Tokens of KV cache as the engine prints them: of one data-parallel rank."),
    "max_concurrency": number("Sequences of max_model_len tokens at once on all ranks of a replica."),
    "max_concurrency_low": number("The same where every uncertain term is at its worst."),
    "max_concurrency_high": number("The same where every uncertain term is at its best."),
    "max_context_tokens": integer("Longest single sequence; null where memory does not limit it."),
    "kv_bytes_per_sequence": {
        "type": "object",
        "description": "Bytes of a sequence of max_model_len tokens over all ranks of a replica: ideal, reserved in blocks, read by one "
        "decode step. Three numbers that are never merged.",
        "properties": {k: number(k) for k in ("ideal", "reserved", "read_per_step")},
    },
    "terms": listed(TERM, "Every term of the budget with its evidence."),
}
MEMORY = {
    "fits": {"type": "boolean", "description": "The workload's requests at their final length fit by the engine's law."},
    "capacity_bytes_per_gpu": integer("Total memory of a GPU as the engine sees it."),
    "used_bytes_per_gpu": integer("Weights, activations, runtime, graphs and the ideal cache of the workload."),
    "terms": listed(TERM),
    "too_large": text("The term that does not fit, or max_num_seqs (only when it does not)."),
    "largest_batch": integer("Largest batch at this length that fits (only when it does not)."),
    "largest_context": integer("Longest context at this batch that fits (only when it does not)."),
    "missing_bytes_per_gpu": integer("Weights that would have to go, by the engine's law (only when it does not fit)."),
    "host_stream_s": number(
        "Those bytes over the host link: what a step waits at least if they stay in host memory; null beyond all weights."
    ),
    "host_hidden_tokens": number("Tokens in a step from which products hide that; null for mixtures of experts."),
    "max_num_seqs": integer("The least that lets them run, where the engine runs fewer; null: not needed, or more than it can."),
}
_LENGTHS = {
    "mean_input_tokens": number("Mean prompt."),
    "mean_output_tokens": number("Mean output."),
    "longest_tokens": integer("Most tokens of a request."),
    "concurrency_mean": number(
        "Requests at once, each at the mean context of its life (llama.cpp reserves full lengths); null where memory does not limit them."
    ),
    "concurrency_peak": number("Requests at once if all were at their last token."),
}
_TO_FIT = {
    "concurrency": integer("Requests that were asked for."),
    "max_model_len": integer("Their length."),
    "fits": boolean("Whether they fit as it is."),
    "too_large": text("What keeps them from running at once: weights, kv_cache or max_num_seqs; null where they fit."),
    "requests": integer("Requests of this length that memory holds as it is; null where it does not limit them."),
    "context_tokens": integer("Longest length of so many requests that memory holds as it is; null where it does not limit it."),
    "sequence_limit": integer("Most that the engine runs at once as it is, on all data-parallel ranks; null: no limit."),
    "max_num_seqs": integer(
        "The least that lets them run, of each data-parallel rank, where the engine runs fewer; what follows takes it for granted. "
        "null: not needed, or more than the engine can."
    ),
    "gpu_memory_utilization": number("The smallest that is enough; null: none is. Like the following, the rest as it is."),
    "gpus": integer("The fewest that are enough, all data-parallel ranks counted; null: none within reach."),
    "tensor_parallel_size": integer("How they are split."),
    "pipeline_parallel_size": integer("How they are split."),
    "data_parallel_size": integer("As it is."),
    "kv_cache_dtype": text("The widest that is enough; null: none is."),
    "quantization": text("The widest that is enough; null: none is."),
}
#: Keys of ``capacity`` beside those of every capacity.
ASKED = {
    "printed": listed(
        {"name": text("Figure."), "value": number("As the engine prints it."), "unit": text("Its unit.")},
        "Further figures of the engine's start-up log, where it prints any.",
    ),
    "concurrency_fits": boolean("Whether --concurrency requests fit, where it is given."),
    "to_fit": record(_TO_FIT, "Where --concurrency is given: what would hold that many requests."),
    "lengths": record(_LENGTHS, "Where lengths or a trace are given."),
}
