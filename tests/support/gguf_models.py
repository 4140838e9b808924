"""Small models as llama.cpp's converter would write them: metadata and tensor lists by architecture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.gguf import Spec

HIDDEN, VOCABULARY, HEADS, KV_HEADS, HEAD, FF = 512, 1024, 8, 2, 64, 1024


@dataclass
class Model:
    """Metadata without the architecture's name in front, tensors with blocks numbered."""

    architecture: str
    layers: int
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: list[Spec] = field(default_factory=list)

    @property
    def metadata(self) -> dict[str, Any]:
        own = {"block_count": self.layers, "embedding_length": HIDDEN, "context_length": 32768, **self.keys}
        tokens = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(16)]}
        return {"general.architecture": self.architecture} | {f"{self.architecture}.{k}": v for k, v in own.items()} | tokens

    def add(self, name: str, *shape: int, kind: str | None = None) -> None:
        """Matrices in Q4_K, vectors in fp32, as files have them."""
        wide = len(shape) > 1 and shape[0] % 256 == 0
        self.tensors.append((name, shape, kind or ("q4_k" if wide else "fp32")))

    def block(self, index: int, **shapes: tuple[int, ...]) -> None:
        """Tensors of a layer; ``__`` stands for a dot, a name without a dot gets ``.weight``."""
        for name, shape in shapes.items():
            dotted = name.replace("__", ".")
            bare = dotted.startswith(("ssm_a", "ssm_d")) and dotted in ("ssm_a", "ssm_d")
            self.add(f"blk.{index}.{dotted}" + ("" if bare or "." in dotted else ".weight"), *shape)

    def ends(self, *, head: bool = True, norm: bool = True, bias: bool = False) -> Model:
        self.add("token_embd.weight", HIDDEN, VOCABULARY)
        if norm:
            self.add("output_norm.weight", HIDDEN)
            if bias:
                self.add("output_norm.bias", HIDDEN)
        if head:
            self.add("output.weight", HIDDEN, VOCABULARY, kind="q6_k")
        return self


def attention(heads: int = HEADS, kv: int = KV_HEADS, head: int = HEAD, value: int | None = None) -> dict[str, tuple[int, ...]]:
    value = value or head
    return {
        "attn_q": (HIDDEN, heads * head),
        "attn_k": (HIDDEN, kv * head),
        "attn_v": (HIDDEN, kv * value),
        "attn_output": (heads * value, HIDDEN),
    }


def heads(**more: Any) -> dict[str, Any]:
    return {"attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD, "attention.value_length": HEAD, **more}


def gated(width: int = FF) -> dict[str, tuple[int, ...]]:
    return {"ffn_gate": (HIDDEN, width), "ffn_up": (HIDDEN, width), "ffn_down": (width, HIDDEN)}


def experts(number: int = 8, width: int = 256) -> dict[str, tuple[int, ...]]:
    return {
        "ffn_gate_inp": (HIDDEN, number),
        "ffn_gate_exps": (HIDDEN, width, number),
        "ffn_up_exps": (HIDDEN, width, number),
        "ffn_down_exps": (width, HIDDEN, number),
    }


NORMS = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
QK_NORMS = {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}
RMS = {"attention.layer_norm_rms_epsilon": 1e-5}


def biases(**widths: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}__bias": (width,) for name, width in widths.items()}


def decoder(architecture: str, layers: int = 4, *, head: bool = True, keys: dict[str, Any] | None = None, **parts: tuple[int, ...]) -> Model:
    """A plain decoder: attention, a gated part, two norms, and whatever ``parts`` adds."""
    model = Model(architecture, layers, heads(feed_forward_length=FF, **RMS, **(keys or {})))
    for index in range(layers):
        model.block(index, **NORMS, **attention(), **gated(), **parts)
    return model.ends(head=head)
