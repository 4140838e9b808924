"""Architectures of GGUF files: what neither their metadata nor their tensors say.

Patterns of windows and layers without positions are fixed in llama.cpp's code for most architectures (``load_arch_hparams`` of
llama.cpp src/models); newer files state them, and then the file counts. Shapes, biases, norms and experts come from the tensor list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Positions = Literal["rotary", "none", "learned", "alibi", "relative"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """``family`` is the model type of the same model in a Hugging Face config, ``sparse`` that of its variant with experts.

    Windows: every ``period``-th layer is full (the last of each group, or the first where ``full_first``), the others see ``window``
    tokens where the file names no window; ``window_layers`` is the one depth that has windows at all. ``bare_full``: full layers
    rotate nothing; ``bare_period``: every such layer rotates nothing.
    """

    family: str
    sparse: str = ""
    period: int | None = None
    full_first: bool = False
    window: int | None = None
    window_layers: int | None = None
    chunked: bool = False
    positions: Positions = "rotary"
    bare_full: bool = False
    bare_period: int | None = None
    parallel: bool = False
    gated_query: bool = False  # the query projection holds an output gate of its own width
    decoder: bool = True
    late_embedding_norm: bool = False  # token_embd_norm is the norm before the head
    own_kv_layers: int | None = None  # layers from here on read the caches of earlier ones


def _plain(*names: str) -> dict[str, Architecture]:
    return {name: Architecture(name) for name in names}


ARCHITECTURES: dict[str, Architecture] = {
    **_plain(
        "apertus", "arcee", "baichuan", "deepseek", "dots1", "ernie4_5", "exaone", "internlm2", "minicpm", "minicpm3", "nemotron",
        "olmoe", "orion", "plm", "qwen", "qwen2", "qwen3", "refact", "seed_oss", "starcoder2", "xverse",
    ),
    "llama": Architecture("llama", "mixtral"),
    "mistral3": Architecture("ministral3"),
    "mistral4": Architecture("mistral4"),
    "deci": Architecture("deci"),
    "llama4": Architecture("llama4_text", period=4, window=8192, chunked=True, bare_full=True),
    "arctic": Architecture("arctic"),
    "smollm3": Architecture("smollm3", bare_period=4),
    "granite": Architecture("granite"),
    "granitemoe": Architecture("granitemoe", "granitemoe"),
    "granitehybrid": Architecture("granitemoehybrid"),
    "phi2": Architecture("phi", parallel=True),
    "phi3": Architecture("phi3"),
    "phimoe": Architecture("phimoe"),
    "qwen2moe": Architecture("qwen2_moe"),
    "qwen2vl": Architecture("qwen2_vl_text"),
    "qwen3moe": Architecture("qwen3_moe"),
    "qwen3vl": Architecture("qwen3_vl_text"),
    "qwen3vlmoe": Architecture("qwen3_vl_moe_text"),
    "qwen3next": Architecture("qwen3_next", gated_query=True),
    "qwen35": Architecture("qwen3_5_text", gated_query=True),
    "qwen35moe": Architecture("qwen3_5_moe_text", gated_query=True),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2", period=2, window=4096),
    "gemma3": Architecture("gemma3_text", period=6),
    "gemma3n": Architecture("gemma3n_text", period=5, own_kv_layers=20),
    "gemma4": Architecture("gemma4_text"),
    "gemma-embedding": Architecture("gemma3_text", period=6, decoder=False),
    "command-r": Architecture("cohere", parallel=True),
    "cohere2": Architecture("cohere2", period=4, parallel=True, bare_full=True),
    "olmo": Architecture("olmo"),
    "olmo2": Architecture("olmo2", period=4),
    "exaone4": Architecture("exaone4", period=4, window=4096, window_layers=64, bare_full=True),
    "exaone-moe": Architecture("exaone_moe", period=4, bare_full=True),
    "deepseek2": Architecture("deepseek_v2"),
    "deepseek32": Architecture("deepseek_v32"),
    "glm-dsa": Architecture("glm_moe_dsa"),
    "glm4": Architecture("glm4"),
    "glm4moe": Architecture("glm4_moe"),
    "chatglm": Architecture("chatglm"),
    "gpt-oss": Architecture("gpt_oss", period=2),
    "minimax-m2": Architecture("minimax_m2"),
    "mimo2": Architecture("mimo_v2_flash"),
    "step35": Architecture("step3p5"),
    "afmoe": Architecture("afmoe", period=4, bare_full=True),
    "smallthinker": Architecture("smallthinker", period=4, full_first=True, window=4096, bare_full=True),
    "bailingmoe": Architecture("bailing_moe"),
    "bailingmoe2": Architecture("bailing_moe_v2"),
    "ernie4_5-moe": Architecture("ernie4_5_moe"),
    "hunyuan-moe": Architecture("hunyuan_v1_moe"),
    "hunyuan-dense": Architecture("hunyuan_v1_dense"),
    "grok": Architecture("grok-1"),
    "dbrx": Architecture("dbrx"),
    "mamba": Architecture("mamba", positions="none"),
    "mamba2": Architecture("mamba2", positions="none"),
    "jamba": Architecture("jamba", positions="none"),
    "falcon-h1": Architecture("falcon_h1"),
    "nemotron_h": Architecture("nemotron_h", positions="none"),
    "nemotron_h_moe": Architecture("nemotron_h", positions="none"),
    "kimi-linear": Architecture("kimi_linear", positions="none"),
    "lfm2": Architecture("lfm2", late_embedding_norm=True),
    "lfm2moe": Architecture("lfm2_moe", late_embedding_norm=True),
    "rwkv6": Architecture("rwkv6", positions="none"),
    "rwkv7": Architecture("rwkv7", positions="none"),
    "gpt2": Architecture("gpt2", positions="learned"),
    "starcoder": Architecture("gpt_bigcode", positions="learned"),
    "gptneox": Architecture("gpt_neox"),
    "gptj": Architecture("gptj", parallel=True),
    "falcon": Architecture("falcon", parallel=True),
    "bloom": Architecture("bloom", positions="alibi"),
    "mpt": Architecture("mpt", positions="alibi"),
    "jais": Architecture("jais", positions="alibi"),
    "stablelm": Architecture("stablelm"),
    "codeshell": Architecture("codeshell"),
    "openelm": Architecture("openelm"),
    "bert": Architecture("bert", positions="learned", decoder=False),
    "nomic-bert": Architecture("nomic_bert", decoder=False),
    "modern-bert": Architecture("modernbert", period=3, full_first=True, decoder=False),
    "jina-bert-v2": Architecture("bert", positions="alibi", decoder=False),
    "t5": Architecture("t5", positions="relative"),
    "t5encoder": Architecture("t5", positions="relative", decoder=False),
}  # fmt: skip

#: Architectures that are known to exist and have no law here, with the reason.
REFUSED = {
    "clip": "a vision or audio projector, not a language model: give the model's own file",
    "plamo2": "its state-space layers have no law here",
    "rwkv6qwen2": "its mixture of RWKV and Qwen layers has no law here",
    "arwkv7": "its mixture of RWKV and Qwen layers has no law here",
    "grovemoe": "its adjugate experts have no law here",
    "cogvlm": "its second set of layers for images has no law here",
}
