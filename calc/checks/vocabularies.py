"""Tokenizer sizes that published configs pad: entering the first for ``vocab_size`` understates embedding and LM head."""

from __future__ import annotations

#: Tokens of the tokenizer (with or without its special tokens) → rows in published configs. Sources: config.json and
#: tokenizer files of the families on the Hugging Face Hub.
_PADDED: dict[int, tuple[int, ...]] = {
    151643: (151936, 152064),  # Qwen1.5 to Qwen3
    151646: (151936, 152064),
    151665: (151936, 152064),
    151669: (151936, 152064),
    128000: (128256,),  # Llama 3
    100277: (100352,),  # Phi-4, OLMo 2 (OLMo 3 has exactly 100278)
    32011: (32064,),  # Phi-3
    50254: (50304, 50432),  # GPT-NeoX tokenizer: Pythia, OLMo
    128799: (129280,),  # DeepSeek-V3
    100002: (102400,),  # DeepSeek-V2, DeepSeek LLM
    64794: (65024,),  # ChatGLM3
    200019: (201088, 200064),  # gpt-oss, Phi-4-mini
    151329: (151552,),  # GLM-4
}


def padded(vocab_size: int | None) -> tuple[int, ...]:
    """Rows that models with a tokenizer of this size have; empty where the size is no known tokenizer count."""
    return _PADDED.get(vocab_size or 0, ())
