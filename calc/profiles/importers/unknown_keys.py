"""Keys of a config that no law has read although their names speak of shapes: each becomes a warning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from calc.errors import did_you_mean
from calc.profiles.importers.config import Config

#: Names that count or measure something: only those listed below are harmless.
_LOUD = re.compile(r"layers|heads|window|expert|rank|_dims?$|_size$|^num_|^n_|_num$|_types?$")
_HARMLESS_LOUD = frozenset(
    (
        "num_labels", "num_beams", "num_beam_groups", "num_return_sequences", "num_logits_to_keep", "num_frames", "num_image_tokens",
        "num_reward_heads", "n_group", "num_expert_group", "expert_capacity", "expert_capacity_factor", "ep_size", "max_window_layers",
        "context_window_size", "prefill_chunk_size", "type_vocab_size", "n_ctx", "problem_type", "model_type", "rope_type", "norm_type",
        "layer_norm_type", "image_size", "summary_type", "attn_type", "ffn_type",
    )
)  # fmt: skip
#: Weaker signs of a shape, and the many names that carry them without being one.
_QUIET = re.compile(
    r"layer|head|width|depth|group|pattern|block|hidden|latent|shared|sparse|compress|conv|state|kernel|memory|memories|interleave|interval"
    r"|period|cross|cla_|mtp|nextn|ratio|bias|gate|attention"
)
_HARMLESS_QUIET = re.compile(
    r"dropout|_token(_id|_index|s)?$|token_id|initializer|init_(std|method|scale)|_init$|(^|_)eps(ilon)?$|rope|theta|scaling|softcap|soft_cap"
    r"|logit_cap|loss|aux_|jitter|scale|multiplier|_alpha$|_beta$|activation|_act(_fn|_func)?$|hidden_act|use_cache|attn_impl|attn_mode|flash"
    r"|use_.*kernels?$|torch|dtype|topk_(group|method)|norm_topk|n_group|pretraining|initial_context|_range$|_min$|_max$|_floor$|softmax"
    r"|residual_(in_fp32|multiplier|weight)|fp32|gradient|prefix|penalty|pruned_heads|tokenizer|quant|auto_map|version|output_|return_dict"
    r"|norm_(epsilon|alpha|bias_init)|layernorm_\w+_(alpha|beta)|layer_scale|sparsity_pattern|mscale|interpolation|_limit$|mem_eff|time_step"
    r"|vision_feature|mup_|gegelu|classifier|cross_entropy|use_parallel_embedding|parallel_(loss|embedding)|image_grid|apply_residual"
    r"|masked_softmax|slow_but_exact|bias_dropout|attention_softmax|reorder|upcast|deterministic|router_bias_func|temperature|pooler_"
    r"|query_pre_attn|attn_(scale|temperature)|floor_scale|z_loss|clip_qkv|attn_logit|attention_(multiplier|value_scale|dropout|prob)"
    r"|gradient_checkpointing|head_type|memory_efficient|use_mrope|logits|ignore_index"
)
#: Sections in which nothing is a shape, or whose own reader has said what it did not understand.
_NO_SHAPES = ("rope_parameters", "rope_scaling", "quantization_config", "compression_config", "hf_quant_config", "quantization")


def _is_harmless(key: str) -> bool:
    if _LOUD.search(key):
        return key in _HARMLESS_LOUD or key.startswith(("pooler_", "summary_"))
    return not _QUIET.search(key) or bool(_HARMLESS_QUIET.search(key))


def unread(c: Config) -> Iterator[tuple[str, Any]]:
    """Keys, and values, that name something architectural and were not read. False, null, 0 and empty say that it is off."""
    for key, value in c.data.items():
        if key in c.used or key.startswith("_") or value in (None, False, 0, "", [], {}):
            continue
        if not _is_harmless(key.lower()):
            yield key, value


def warn_of_unread(c: Config) -> None:
    """Add a warning for each of them, in this object and in the sections that were read."""
    for key, value in unread(c):
        near = did_you_mean(key, c.used - set(c.data))
        shown = f"{value!r:.60}" if not isinstance(value, (list, dict)) else f"a {type(value).__name__}"
        hint = f"; {near}" if near else ""
        c.warn(f"{'.'.join((*c.path, key))} = {shown} is not understood for this model type and was left out of the numbers{hint}")
    for key, section in c.sections.items():
        if key not in _NO_SHAPES:
            warn_of_unread(section)


def warn_of_defaults(c: Config, model_type: str) -> None:
    """Say which sizes were absent and taken from the class."""
    if c.defaulted:
        taken = ", ".join(f"{key} {value:,}" for key, value in sorted(c.defaulted.items()))
        c.warn(f"absent from the config and taken from the defaults of class {model_type}: {taken}")
