"""Speculative decoding in the words of an engine.

Sources: docs.vllm.ai features/speculative_decoding and vllm.config.speculative; docs.sglang.io advanced_features/speculative_decoding;
llama.cpp docs/speculative.md; nvidia.github.io/TensorRT-LLM features/speculative-decoding; mlx-lm mlx_lm/server.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from calc.serving.speculation import NGRAM, Draft

Words = tuple[tuple[object, ...], tuple[str, ...]]
#: Longest n-gram that is looked up: the value of vLLM's own example.
_LOOKUP = 4


def draft_words(engine: str, draft: Draft) -> Words:
    """Options of an engine for a draft, with notes on what they cannot say."""
    make: dict[str, Callable[[Draft], Words]] = {
        "vllm": _vllm,
        "sglang": _sglang,
        "llama.cpp": _llama_cpp,
        "tensorrt-llm": _tensorrt_llm,
        "mlx": _mlx,
    }
    if engine not in make:
        return (), (f"how {engine} is told to draft {draft.tokens} tokens a round is not known",)
    return make[engine](draft)


def _model(draft: Draft) -> str:
    """Where the draft model of its own is found."""
    assert draft.deployment is not None
    profile = draft.deployment.model.profile
    return profile.hub_id or profile.id


def _vllm(draft: Draft) -> Words:
    config: dict[str, object] = {"num_speculative_tokens": draft.tokens}
    if draft.name == NGRAM:
        config = {"method": "ngram", "prompt_lookup_max": _LOOKUP} | config
    elif draft.part_of_model:
        config = {"method": "mtp"} | config
    else:
        config = {"method": "draft_model", "model": _model(draft)} | config
    return ("--speculative-config", json.dumps(config)), ()


def _sglang(draft: Draft) -> Words:
    """A chain of drafts is a tree of one branch: as many steps, and the token that starts it counts."""
    if draft.name == NGRAM:
        return ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", draft.tokens + 1), ()
    chain = (
        *("--speculative-num-steps", draft.tokens, "--speculative-eagle-topk", 1),
        *("--speculative-num-draft-tokens", draft.tokens + 1),
    )
    if draft.part_of_model:
        return ("--speculative-algorithm", "EAGLE", *chain), ()
    return ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", _model(draft), *chain), ()


def _llama_cpp(draft: Draft) -> Words:
    most = ("--spec-draft-n-max", draft.tokens)
    if draft.name == NGRAM:
        return ("--spec-type", "ngram-simple", *most), ()
    if draft.part_of_model:
        return ("--spec-type", "draft-mtp", *most), ()
    file = f"{_model(draft).rpartition('/')[2]}.gguf".lower()
    return ("--model-draft", file, *most), (f"{file} stands for your GGUF file of {_model(draft)}",)


def _tensorrt_llm(draft: Draft) -> Words:
    """Only a file says it."""
    if draft.name == NGRAM:
        what = f"NGramDecodingConfig: max_draft_len {draft.tokens}"
    elif draft.part_of_model:
        what = f"MTPDecodingConfig: num_nextn_predict_layers {draft.tokens}"
    else:
        what = f"DraftTargetDecodingConfig: max_draft_len {draft.tokens}, speculative_model {_model(draft)}"
    file = "speculative.yaml"
    return ("--extra_llm_api_options", file), (f"{file} holds a speculative_config as of {what}",)


def _mlx(draft: Draft) -> Words:
    if draft.deployment is None or draft.part_of_model:
        return (), (f"mlx_lm.server drafts with a model of its own only, not with {draft.name}",)
    return ("--draft-model", _model(draft), "--num-draft-tokens", draft.tokens), ()
