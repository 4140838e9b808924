"""A deployment in the words of its engine: the command that starts one replica, and what the command cannot say.

Options as documented in 2026: docs.vllm.ai (vllm serve, data and expert parallel deployment), docs.sglang.io (server arguments, expert
parallelism), llama.cpp tools/server/README.md, nvidia.github.io/TensorRT-LLM (trtllm-serve), mlx-lm mlx_lm/server.py.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from calc.memory.options import MemoryOptions
from calc.serving.deployment import Deployment
from calc.serving.launch.drafts import draft_words
from calc.serving.load.traffic import Traffic
from calc.serving.parallel import scale_up_limit
from calc.serving.speculation import Draft
from calc.units import GIB

#: Weight formats that an engine makes from a 16-bit checkpoint while it loads; every other format needs a checkpoint stored so.
_ONLINE = {"vllm": {"fp8": "fp8", "nf4": "bitsandbytes"}, "sglang": {"fp8": "fp8", "nf4": "bitsandbytes"}}
#: GPUs of a host at most: larger fabrics join several.
_HOST_GPUS = 8
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
#: Why no command is given for an engine: a plan counts on a server that holds a limit of requests at once.
_WITHOUT_COMMAND = {
    "gpt-fast": "gpt-fast has no server: its generate.py answers one prompt (README of github.com/pytorch-labs/gpt-fast)",
    "exllamav2": "exllamav2 is a library without a server of its own: its README names TabbyAPI",
    "transformers": "transformers serve documents no limit of requests at once, which this plan counts on",
}
#: KV formats in the words of an engine, where they differ from ours.
_KV_WORDS = {"sglang": {"fp8": "fp8_e4m3", "nvfp4": "fp4_e2m1"}, "llama.cpp": {"fp16": "f16", "fp32": "f32"}}


@dataclass(frozen=True)
class Launch:
    """The words of a command, and ``notes`` on what has to be done beside it."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(shlex.quote(w) for w in self.words)


def launch(deployment: Deployment, traffic: Traffic, batch_limit: int, draft: Draft | None = None) -> Launch:
    """The command of one replica that runs at most ``batch_limit`` requests at once, with its draft."""
    engine = deployment.engine.NAME
    make = {"vllm": _vllm, "sglang": _sglang, "llama.cpp": _llama_cpp, "tensorrt-llm": _tensorrt_llm, "mlx": _mlx}.get(engine)
    if make is None:
        why = _WITHOUT_COMMAND.get(engine, f"{engine} is not an engine that can be started")
        return Launch((), (f"{why}: choose another with --engine for a launch command",))
    length = deployment.memory.max_model_len or traffic.longest
    source, notes = _checkpoint(deployment, engine)
    words = make(deployment, source, length, batch_limit)
    if draft is not None:
        further, said = draft_words(engine, draft)
        words, notes = [*words, *further], notes + said
    if engine == "tensorrt-llm" and deployment.sharding.is_wide:
        words, said = _attention_dp(words)
        notes += said
    notes += _exchange(deployment) + _hosts(deployment)
    if engine == "mlx":
        notes += _mlx_notes(deployment)
    if traffic.tail.cached_len and engine in ("vllm", "tensorrt-llm"):
        notes += ("prefix caching must stay on (the default): the plan counts on it",)
    return Launch(tuple(str(w) for w in words), notes)


def _checkpoint(deployment: Deployment, engine: str) -> tuple[str, tuple[str, ...]]:
    """What to load, with a note where the asked format needs a checkpoint of its own."""
    model, asked = deployment.model.profile, _asked_format(deployment)
    source = model.hub_id or model.id
    if engine == "llama.cpp":
        file = f"{model.id}-{asked or model.storage.dtype}.gguf".lower()
        return file, (f"{file} stands for your GGUF file of {source}",)
    if asked is None or asked in ("none", "bf16", "fp16") or asked in _ONLINE.get(engine, {}):
        return source, ()
    path = f"{source.rpartition('/')[2]}-{asked}"
    return path, (f"{path} stands for a checkpoint of {source} stored in {asked}",)


def _asked_format(deployment: Deployment) -> str | None:
    """The weight format asked for; None: as the checkpoint stores them."""
    asked = str(deployment.inputs["quantization"])
    return None if asked == "as stored" else asked


def _flag(name: str, value: object, unless: object = None) -> list[object]:
    return [] if value is None or value == unless else [name, value]


def _offload(memory: MemoryOptions) -> list[object]:
    """Weights left in host memory, in GiB."""
    return ["--cpu-offload-gb", f"{memory.cpu_offload_bytes / GIB:g}"] if memory.cpu_offload_bytes else []


def _kv_words(deployment: Deployment, engine: str) -> tuple[str, str] | None:
    """The formats of keys and values in the engine's words; None where they are its default (the compute type)."""
    numbers = deployment.numbers
    if numbers.keys.name == numbers.compute and numbers.values.name == numbers.compute:
        return None
    words = _KV_WORDS.get(engine, {})
    return words.get(numbers.keys.name, numbers.keys.name), words.get(numbers.values.name, numbers.values.name)


def _dtype(deployment: Deployment) -> str | None:
    """The compute type where it is not what ``auto`` takes."""
    stored, compute = deployment.model.profile.storage.dtype, deployment.numbers.compute
    natural = "bf16" if stored not in ("bf16", "fp16") else stored
    return None if compute == natural else _DTYPES[compute]


def _vllm(deployment: Deployment, source: str, length: int, batch: int) -> list[object]:
    sharding, memory = deployment.sharding, deployment.memory
    kv = _kv_words(deployment, "vllm")
    return [
        *("vllm", "serve", source),
        *_flag("--tensor-parallel-size", sharding.tensor, 1),
        *_flag("--pipeline-parallel-size", sharding.pipeline, 1),
        *_flag("--data-parallel-size", sharding.data_ranks, 1),
        *(["--enable-expert-parallel"] if sharding.expert_parallel else []),
        *_flag("--decode-context-parallel-size", sharding.decode_context, 1),
        *_flag("--dtype", _dtype(deployment)),
        *_flag("--quantization", _ONLINE["vllm"].get(_asked_format(deployment) or "")),
        *_flag("--kv-cache-dtype", kv and kv[0]),
        *("--max-model-len", length, "--max-num-seqs", -(-batch // sharding.data_ranks)),
        *_flag("--max-num-batched-tokens", memory.max_num_batched_tokens),
        *_flag("--gpu-memory-utilization", memory.gpu_memory_utilization),
        *_flag("--block-size", memory.block_size),
        *_offload(memory),
    ]


def _sglang(deployment: Deployment, source: str, length: int, batch: int) -> list[object]:
    sharding, memory = deployment.sharding, deployment.memory
    kv = _kv_words(deployment, "sglang")
    return [
        *("python", "-m", "sglang.launch_server", "--model-path", source),
        *_flag("--tp-size", sharding.stage_ranks, 1),  # all ranks of a stage: data-parallel attention cuts them into groups
        *_flag("--pp-size", sharding.pipeline, 1),
        *(["--dp-size", sharding.data_ranks, "--enable-dp-attention"] if sharding.is_wide else []),
        *(["--ep-size", sharding.expert_ranks] if sharding.expert_parallel else []),
        *_flag("--dtype", _dtype(deployment)),
        *_flag("--quantization", _ONLINE["sglang"].get(_asked_format(deployment) or "")),
        *_flag("--kv-cache-dtype", kv and kv[0]),
        *("--context-length", length, "--max-running-requests", batch),
        *_flag("--chunked-prefill-size", memory.max_num_batched_tokens),
        *_flag("--mem-fraction-static", memory.gpu_memory_utilization),
        *_flag("--page-size", memory.block_size),
        *_offload(memory),
    ]


def _llama_cpp(deployment: Deployment, source: str, length: int, batch: int) -> list[object]:
    sharding, memory = deployment.sharding, deployment.memory
    kv = _kv_words(deployment, "llama.cpp") or ("f16", "f16")
    split = ["--split-mode", memory.split_mode, "--tensor-split", ",".join(["1"] * sharding.ranks)] if sharding.ranks > 1 else []
    return [
        *("llama-server", "--model", source, "--n-gpu-layers", 999 if memory.gpu_layers is None else memory.gpu_layers),
        *split,
        *_flag("--cache-type-k", kv[0], "f16"),
        *_flag("--cache-type-v", kv[1], "f16"),
        *(["--flash-attn", "on"] if kv[1] not in ("f16", "bf16", "f32") else []),  # quantised values need it
        *("--ctx-size", length * batch, "--parallel", batch),
        *_flag("--ubatch-size", memory.ubatch_size),
    ]


def _tensorrt_llm(deployment: Deployment, source: str, length: int, batch: int) -> list[object]:
    sharding, memory = deployment.sharding, deployment.memory
    kv = _kv_words(deployment, "tensorrt-llm")
    return [
        *("trtllm-serve", source, "--backend", "pytorch"),
        *_flag("--tp_size", sharding.stage_ranks, 1),
        *_flag("--pp_size", sharding.pipeline, 1),
        *(["--ep_size", sharding.expert_ranks] if sharding.expert_parallel else []),
        *_flag("--kv_cache_dtype", kv and kv[0]),
        *("--max_seq_len", length, "--max_batch_size", -(-batch // sharding.data_ranks)),
        *_flag("--max_num_tokens", memory.max_num_batched_tokens),
        *_flag("--kv_cache_free_gpu_memory_fraction", memory.gpu_memory_utilization),
    ]


def _attention_dp(words: list[object]) -> tuple[list[object], tuple[str, ...]]:
    """TensorRT-LLM reads it from a file alone, which may hold a draft's configuration already."""
    option, entry = "--extra_llm_api_options", "enable_attention_dp: true"
    if option in words:
        return words, (f"{words[words.index(option) + 1]} also holds {entry}",)
    file = "attention_dp.yaml"
    return [*words, option, file], (f"{file} holds {entry}",)


def _exchange(deployment: Deployment) -> tuple[str, ...]:
    """The kernels that carry tokens to their experts as the times count them, where they are not the engine's default."""
    option = {"vllm": "--all2all-backend deepep_low_latency", "sglang": "--moe-a2a-backend deepep"}.get(deployment.engine.NAME)
    if option is None or not deployment.sharding.is_wide:
        return ()
    return (f"times are those of kernels that send tokens to their experts alone: install DeepEP and add {option}",)


def _hosts(deployment: Deployment) -> tuple[str, ...]:
    """What each host of a replica is told that is larger than one. Nothing where a fabric joins hosts of an unknown size."""
    sharding, engine = deployment.sharding, deployment.engine.NAME
    within = scale_up_limit(deployment.hardware.profile)
    if sharding.ranks <= within or within > _HOST_GPUS:
        return ()
    hosts = -(-sharding.ranks // within)
    if engine == "tensorrt-llm":
        return (f"start it through trtllm-llmapi-launch on {hosts} hosts, one MPI rank a GPU",)
    if engine == "sglang":
        said = f"--nnodes {hosts} --node-rank I --dist-init-addr HOST:PORT"
    elif engine == "vllm" and sharding.is_wide and sharding.pipeline == 1:
        local = within // sharding.tensor
        said = f"--data-parallel-size-local {local} --data-parallel-address HOST, on others also --headless"
        said += f" --data-parallel-start-rank {local}"
        said += ", twice as many and so on" if hosts > 2 else ""
    elif engine == "vllm":
        said = f"--nnodes {hosts} --node-rank I --master-addr HOST, on others also --headless"
    else:
        return ()
    return (f"start it on each of {hosts} hosts with {said}",)


def _mlx(deployment: Deployment, source: str, length: int, batch: int) -> list[object]:
    return [
        *("mlx_lm.server", "--model", source, "--decode-concurrency", batch),
        *_flag("--prefill-step-size", deployment.memory.max_num_batched_tokens),
        *(["--pipeline"] if deployment.sharding.pipeline > 1 else []),
    ]


def _mlx_notes(deployment: Deployment) -> tuple[str, ...]:
    """What mlx_lm.server has no option for: devices, and caches in other formats than its own of 4 and 8 bits."""
    notes: tuple[str, ...] = ()
    if deployment.sharding.ranks > 1:
        notes += (f"run it on {deployment.sharding.ranks} devices through mlx.launch",)
    if _kv_words(deployment, "mlx"):
        notes += (f"a KV cache in {deployment.numbers.keys.name} is no option of mlx_lm.server (--kv-bits is a format of its own)",)
    return notes
