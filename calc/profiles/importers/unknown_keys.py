"""Keys of a config that no law has read although their names speak of shapes: each becomes a warning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from calc.errors import did_you_mean
from calc.profiles.importers.config import Config

_SHAPES = re.compile(
    r"size|dim(s)?$|_dim_|^num_|^n_|_num_|^d_|layer|head|window|expert|rank|width|depth|group|pattern|_freq|block|hidden|latent|shared"
    r"|sparse|compress|conv|state|kernel|memory|memories|interleave|interval|period|cross|cla_|mtp|nextn|_types|ratio|bias|gate"
)
#: Names that speak of shapes but change neither tensors nor caches.
_HARMLESS = re.compile(
    r"dropout|_token(_id|_index|s)?$|token_id|_drop$|initializer|init_(std|method|scale)|(^|_)eps(ilon)?$|^rope|rope_|_rope|theta|scaling"
    r"|softcap|soft_cap|logit_cap|loss|aux|router_jitter|scale|multiplier|_alpha|_beta|act(ivation)?(_fn|_func|_function)?$|hidden_act|use_cache"
    r"|attn_impl|flash|kernels?_path|use_.*kernels|torch|dtype|^id2label|^label2id|num_labels|num_beams|num_return|num_logits_to_keep|top_k$"
    r"|norm_topk|topk_(group|method)|n_group$|num_expert_group|seq_aux|scoring_func|ep_size|pretraining_tp|chunk_size|prefill|context_window"
    r"|max_window_layers|original_max|initial_context|_range|_min$|_max$|_floor$|softmax|residual_(in_fp32|multiplier|weight)|fp32|gradient"
    r"|group_norm_eps|no_repeat|task_specific|architectures|output_(attentions|hidden|router)|return_dict|tie_|is_(encoder|decoder)|begin_"
    r"|_offset$|prefix|chunk_length|diversity|encoder_no|pruned_heads|tokenizer|quantization_config|quant|auto_map|version|parallel_|bos|eos"
    r"|remove_invalid|mup_|gegelu|attention_bias|use_bias|sep_|pad_|summary_|problem_type|finetuning|ignore_|skip_|layer_scale|layerscale"
    r"|sparsity_pattern|mscale|norm_(type|epsilon)|layernorm_type|interpolation|_limit$|use_mem_eff|time_step|expert_capacity|vision_feature|image_(seq|grid)"
    r"|transformers|swiglu|router_bias_func|gated_norm|layer_norm_type|use_parallel_embedding|num_frames|classifier|head_type|group_query"
)
#: Sections in which nothing is a shape, or whose own reader has said what it did not understand.
_NO_SHAPES = ("rope_parameters", "rope_scaling", "quantization_config", "compression_config", "hf_quant_config", "quantization")


def unread(c: Config) -> Iterator[tuple[str, Any]]:
    """Keys, and values, that name something architectural and were not read. False, null, 0 and empty say that it is off."""
    for key, value in c.data.items():
        if key in c.used or key.startswith("_") or value in (None, False, 0, "", [], {}):
            continue
        lower = key.lower()
        if _SHAPES.search(lower) and not _HARMLESS.search(lower):
            yield key, value


def warn_of_unread(c: Config) -> None:
    """Add a warning for each of them, in this object and in the sections that were read."""
    for key, value in unread(c):
        near = did_you_mean(key, c.used - set(c.data))
        shown = f"{value!r}" if not isinstance(value, (list, dict)) else type(value).__name__
        hint = f"; {near}" if near else ""
        c.warn(
            f"{'.'.join((*c.path, key))} = {shown:.60} is not understood for this model type and was left out of the numbers{hint}"
        )
    for key, section in c.sections.items():
        if key not in _NO_SHAPES:
            warn_of_unread(section)


def warn_of_defaults(c: Config, model_type: str) -> None:
    """Say which sizes were absent and taken from the class."""
    if c.defaulted:
        taken = ", ".join(f"{key} {value:,}" for key, value in sorted(c.defaulted.items()))
        c.warn(f"absent from the config and taken from the defaults of class {model_type}: {taken}")
