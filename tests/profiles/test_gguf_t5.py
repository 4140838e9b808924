"""T5 in GGUF: the profile of a file is that of the same model's config, tensor for tensor."""

from __future__ import annotations

import pytest

from calc.errors import ProfileError
from calc.operators.parameters import count_parameters
from calc.profiles.importers.gguf_file import import_gguf
from tests.support.cli import answered
from tests.support.configs import profile
from tests.support.gguf import Spec, bytes_of, elements_of, numbers_of, write

HIDDEN, HEADS, WIDTH, INNER, VOCAB, BUCKETS = 64, 4, 32, 96, 320, 16
CONFIG = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": HIDDEN, "num_heads": HEADS, "d_kv": WIDTH,
    "d_ff": INNER, "num_layers": 3, "num_decoder_layers": 3, "vocab_size": VOCAB, "relative_attention_num_buckets": BUCKETS,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "n_positions": 128,
}  # fmt: skip


def metadata(name: str = "t5", **changes: object) -> dict[str, object]:
    keys = {
        "block_count": 3, "embedding_length": HIDDEN, "feed_forward_length": INNER, "context_length": 128,
        "attention.head_count": HEADS, "attention.key_length": WIDTH, "attention.value_length": WIDTH,
        "attention.layer_norm_epsilon": 1e-6, "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.relative_buckets_count": BUCKETS, "decoder_start_token_id": 0,
    }  # fmt: skip
    merged = {**keys, **changes}
    return {"general.architecture": name, "general.file_type": 1} | {f"{name}.{k}": v for k, v in merged.items() if v is not None}


def block(stack: str, index: int, *, table: bool, gated: bool = True) -> list[Spec]:
    start = f"{stack}.blk.{index}."
    attention = {
        "q": (HIDDEN, HEADS * WIDTH), "k": (HIDDEN, HEADS * WIDTH), "v": (HIDDEN, HEADS * WIDTH), "o": (HEADS * WIDTH, HIDDEN),
    }  # fmt: skip
    names = ("attn", "cross_attn") if stack == "dec" else ("attn",)
    found: list[Spec] = [(f"{start}{name}_norm.weight", (HIDDEN,), "fp32") for name in (*names, "ffn")]
    found += [(f"{start}{name}_{letter}.weight", shape, "fp16") for name in names for letter, shape in attention.items()]
    parts = {"ffn_up": (HIDDEN, INNER), "ffn_down": (INNER, HIDDEN)} | ({"ffn_gate": (HIDDEN, INNER)} if gated else {})
    found += [(f"{start}{name}.weight", shape, "q8_0") for name, shape in parts.items()]
    return found + ([(f"{start}attn_rel_b.weight", (HEADS, BUCKETS), "fp16")] if table else [])


def tensors(*stacks: str, head: bool = True, tables: str = "first", gated: bool = True, depth: int = 3) -> list[Spec]:
    found: list[Spec] = [("token_embd.weight", (HIDDEN, VOCAB), "fp16")]
    for stack in stacks:
        for i in range(depth):
            found += block(stack, i, table=tables == "all" or i == 0, gated=gated)
        found.append((f"{stack}.output_norm.weight", (HIDDEN,), "fp32"))
    return found + ([("output.weight", (HIDDEN, VOCAB), "fp16")] if head else [])


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({}, {}),
        ({"feed_forward_proj": "relu", "tie_word_embeddings": True}, {"gated": False, "head": False}),
        ({"model_type": "umt5"}, {"tables": "all"}),
    ],
)
def test_a_file_is_the_model_of_its_config(tmp_path, config, options):
    listed = tensors("enc", "dec", **options)
    found, warnings, _ = import_gguf(write(tmp_path / "t5.gguf", metadata(), listed))
    expected = profile(CONFIG | config)
    for name in ("hidden_size", "vocab_size", "layer_kinds", "stack", "encoder", "extras", "tie_word_embeddings", "final_norm"):
        assert getattr(found, name) == getattr(expected, name), name
    assert warnings == ()
    counted = count_parameters(found, numbers_of(found))
    assert counted.total == count_parameters(expected).total == elements_of(listed) == found.parameters.total
    assert counted.weights_bytes == pytest.approx(bytes_of(listed), rel=1e-9)


def test_the_encoder_alone_is_an_encoder(tmp_path):
    listed = tensors("enc", head=False)
    path = write(tmp_path / "encoder.gguf", metadata("t5encoder"), listed)
    found, warnings, _ = import_gguf(path)
    assert (found.has_lm_head, found.encoder, warnings) == (False, None, ())
    assert all(not mixer.causal for kind in found.layer_kinds.values() for mixer in kind.mixers)
    assert count_parameters(found).total == elements_of(listed)
    answer = answered("estimate", str(path), "l4", "-i", "128", "--json").json["results"]
    assert answer["decode"] is None
    assert answer["prefill"]["kv_write_bytes"] == 0


def test_the_decoder_may_be_deeper_than_the_encoder(tmp_path):
    listed = tensors("enc") + [t for t in tensors("dec", depth=5) if t[0].startswith("dec.")]
    found, _, _ = import_gguf(write(tmp_path / "deep.gguf", metadata(decoder_block_count=5), listed))
    assert (found.num_hidden_layers, sum(b.repeat * len(b.layers) for b in found.encoder.stack)) == (5, 3)


@pytest.mark.parametrize(
    ("changes", "without", "says"),
    [
        ({"block_count": 2}, "", "belongs to layer 2"),
        ({"block_count": 4}, "", "layer 3 of enc.blk has no tensors"),
        ({"attention.relative_buckets_count": 8}, "", "8 buckets of 4 heads"),
        ({"attention.head_count": 8}, "", "are expected"),
        ({}, "dec.blk.1.cross_attn_norm.weight", "'cross_attn_norm.weight' is missing"),
        ({}, "dec.blk.1.cross_attn_q.weight", "is missing"),
        ({}, "enc.blk.2.attn_o.weight", "'attn_output.weight' is missing"),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path, changes, without, says):
    listed = [t for t in tensors("enc", "dec") if t[0] != without]
    with pytest.raises(ProfileError) as refusal:
        import_gguf(write(tmp_path / "t5.gguf", metadata(**changes), listed))
    assert says in str(refusal.value)
