"""GGUF headers: what is refused and how it is worded, hostile files, and the tables against the reference implementation."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from calc.errors import ProfileError
from calc.numerics import weight_format
from calc.operators.parameters import count_parameters
from calc.profiles.importers.gguf import header as gguf_header
from calc.profiles.importers.gguf.tensor_types import FILE_TYPES, TYPES, block_of
from calc.profiles.importers.gguf_file import import_gguf
from tests.support import gguf_layers, gguf_models, gguf_states
from tests.support.cli import run
from tests.support.gguf import Spec, bytes_of, header, load, numbers_of, write
from tests.support.gguf_models import HIDDEN, VOCABULARY, Model

MODELS = gguf_models.TWINS | gguf_states.TWINS | gguf_layers.TWINS


# --- what is refused --------------------------------------------------------------------------------------------------------


def refused(folder: Path, metadata: dict[str, Any], tensors: list[Spec], **options: Any) -> str:
    path = write(folder / "bad.gguf", metadata, tensors, **options)
    with pytest.raises(ProfileError) as caught:
        import_gguf(path)
    return f"{caught.value.message} {caught.value.hint or ''}"


def plain_llama() -> Model:
    return gguf_models.decoder("llama")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"general.architecture": "lama"}, "general.architecture 'lama' is an unknown architecture did you mean llama"),
        ({"general.architecture": None}, "general.architecture is missing"),
        ({"general.architecture": "clip"}, "general.architecture is 'clip': a vision or audio projector"),
        ({"general.type": "adapter"}, "general.type is 'adapter'"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": 10**9}, "llama.block_count is 1,000,000,000"),
        ({"llama.block_count": 5}, "layer 4 has no tensors"),
        ({"llama.block_count": 3}, "belongs to layer 3"),
        ({"llama.embedding_length": 1024}, "1,024"),
        ({"llama.embedding_length": "wide"}, "llama.embedding_length must be a whole number"),
        ({"llama.attention.head_count": 7}, "llama.attention.head_count_kv gives layer 0 7 query and 2 key-value heads"),
        ({"llama.attention.head_count": 16}, "heads and head size make 1,024"),
        ({"llama.attention.head_count": None}, "llama.attention.head_count gives layer 0 0 query"),
        ({"llama.attention.head_count_kv": [2, 2, 2]}, "llama.attention.head_count_kv has 3 entries for 4 layers"),
        ({"llama.attention.key_length": 128}, "heads and head size make 1,024"),
        ({"llama.feed_forward_length": [1024, 1024, 512, 1024]}, "llama.feed_forward_length gives layer 2 the width 512"),
        ({"llama.attention.sliding_window": 512, "llama.attention.sliding_window_pattern": [1] * 9}, "has 9 entries for 4 layers"),
        ({"llama.attention.shared_kv_layers": 4}, "llama.attention.shared_kv_layers is 4 of 4 layers"),
        ({"llama.nextn_predict_layers": 4}, "llama.nextn_predict_layers is 4 of 4 layers"),
        ({"general.alignment": 3}, "general.alignment is 3"),
        ({"split.count": 4}, "one of 4 files"),
    ],
)
def test_contradictions_name_the_field(change, says, tmp_path):
    model = plain_llama()
    metadata = {k: v for k, v in (model.metadata | change).items() if v is not None}
    assert says in refused(tmp_path, metadata, model.tensors)


def without(model: Model, name: str) -> list[Spec]:
    return [t for t in model.tensors if t[0] != name]


def test_contradictions_between_tensors_name_the_tensor(tmp_path):
    model = plain_llama()
    assert "'attn_output.weight' is missing" in refused(tmp_path, model.metadata, without(model, "blk.2.attn_output.weight"))
    assert "token_embd.weight" in refused(tmp_path, model.metadata, without(model, "token_embd.weight"))
    reshaped = [(n, (HIDDEN, 96) if n == "blk.1.attn_k.weight" else s, k) for n, s, k in model.tensors]
    assert "'blk.1.attn_k.weight' has 96 columns" in refused(tmp_path, model.metadata, reshaped)
    narrow = [(n, (512, HIDDEN) if n == "blk.1.ffn_down.weight" else s, k) for n, s, k in model.tensors]
    assert "blk.1.ffn_up.weight" in refused(tmp_path, model.metadata, narrow)
    assert "lists no tensors" in refused(tmp_path, model.metadata, [])
    twice = [*model.tensors, ("output_norm.weight", (HIDDEN,), "fp32")]
    assert "'output_norm.weight' stands twice" in refused(tmp_path, model.metadata, twice)


def test_experts_that_contradict_are_refused(tmp_path):
    model = gguf_models.mixtral()[0]
    assert "llama.expert_used_count is 9" in refused(tmp_path, model.metadata | {"llama.expert_used_count": 9}, model.tensors)
    assert "llama.expert_count is 4" in refused(tmp_path, model.metadata | {"llama.expert_count": 4}, model.tensors)
    old = gguf_models.old_mixtral()[0]
    assert "8 equal ones are expected" in refused(tmp_path, old.metadata, without(old, "blk.1.ffn_up.3.weight"))


def raw(folder: Path, content: bytes) -> str:
    path = folder / "raw.gguf"
    path.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        import_gguf(path)
    return caught.value.message


def head(tensors: int, keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def entry(key: str, kind: int, body: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + body


def tensor(name: str = "t", shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "does not begin with GGUF"),
        (b"ggml" * 9, "does not begin with GGUF"),
        (head(0, 0, version=1), "version 1"),
        (head(0, 0, version=77), "version 77"),
        (head(1 << 62, 0), "claims"),
        (head(0, 1 << 40), "claims"),
        (head(50_000, 0), "more than the 24 bytes"),
        (head(0, 1) + struct.pack("<Q", 1 << 62) + bytes(40), "a key of"),
        (head(0, 1) + entry("k", 8, struct.pack("<Q", 1 << 61)), "a text of"),
        (head(0, 1) + entry("k", 9, struct.pack("<IQ", 4, 1 << 60)), "values under 'k'"),
        (head(0, 1) + entry("k", 9, struct.pack("<IQ", 9, 1)) + bytes(20), "unknown value type 9"),
        (head(0, 1) + entry("k", 77, bytes(20)), "unknown value type 77"),
        (head(0, 2) + 2 * entry("k", 4, struct.pack("<I", 1)), "'k' stands twice"),
        (head(0, 1) + struct.pack("<Q", 2) + b"\xff\xfe" + bytes(20), "not UTF-8"),
        (head(1, 0) + tensor(shape=(0,)), "impossible shape"),
        (head(1, 0) + tensor(shape=(1 << 40, 1 << 40)), "impossible shape"),
        (head(1, 0) + tensor(shape=(2, 2, 2, 2, 2)), "5 dimensions"),
        (head(1, 0) + tensor(kind=99), "unknown type 99"),
        (head(1, 0) + tensor(kind=12), "not whole blocks of q4_k"),
        (head(1, 0) + tensor(offset=7), "no multiple of 32"),
        (head(2, 0) + tensor("a") + tensor("b"), "'a' and 'b' share bytes"),
        (head(1, 1) + entry("general.architecture", 8, struct.pack("<Q", 5) + b"llama") + tensor()[:-4], "ends within its header"),
    ],
)
def test_broken_headers_are_refused(content, says, tmp_path):
    assert says in raw(tmp_path, content)


def test_every_cut_of_a_header_is_refused(tmp_path):
    model = Model("llama", 1, gguf_models.heads(**gguf_models.RMS))
    model.block(0, **gguf_models.NORMS, **gguf_models.attention(), **gguf_models.gated())
    content, _ = header(model.metadata, model.ends().tensors)
    for end in range(0, len(content), 3):
        raw(tmp_path, content[:end])


def test_bytes_that_were_damaged_never_end_in_a_traceback(tmp_path):
    """Any error but ProfileError fails the test."""
    model = gguf_models.mixtral()[0]
    content, _ = header(model.metadata, model.tensors)
    chance = random.Random(7)
    path = tmp_path / "damaged.gguf"
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(4, len(damaged))] = chance.choice((0, 1, 8, 9, 127, 255, chance.randrange(256)))
        path.write_bytes(damaged)
        try:
            profile = import_gguf(path)[0]
            count_parameters(profile, numbers_of(profile))
        except ProfileError:
            continue


_ODD_VALUES = (
    0,
    1,
    3,
    -1,
    1 << 31,
    (1 << 63) - 1,
    "x",
    "",
    1.5,
    float("nan"),
    True,
    [],
    [0] * 4,
    [1] * 4,
    [2] * 25,
    ["a"],
    [True] * 4,
)


@pytest.mark.parametrize("name", ["deepseek2", "qwen3next", "gemma4", "nemotron_h", "rwkv7", "kimi-linear", "mamba2", "gpt-oss"])
def test_odd_metadata_never_end_in_a_traceback(name, tmp_path):
    """Every key of the architecture with every odd value; the bytes stay those of the file whenever it is accepted."""
    model, _ = MODELS[name]()
    for key in (k for k in model.metadata if not k.startswith("tokenizer.")):
        for value in _ODD_VALUES:
            path = write(tmp_path / "odd.gguf", model.metadata | {key: value}, model.tensors, data=False)
            try:
                profile = import_gguf(path)[0]
            except ProfileError:
                continue
            assert count_parameters(profile, numbers_of(profile)).weights_bytes == bytes_of(model.tensors)


def test_a_hostile_header_takes_little_memory(tmp_path, monkeypatch):
    """Arrays of small numbers are the densest thing a file can ask to keep."""
    monkeypatch.setattr(gguf_header, "MAX_ALL_ITEMS", 50_000)
    keys = {f"llama.k{i}": list(range(100)) for i in range(5_000)}
    path = write(tmp_path / "wide.gguf", {"general.architecture": "llama"} | keys, [("token_embd.weight", (32,), "fp32")])
    tracemalloc.start()
    with pytest.raises(ProfileError):
        import_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * path.stat().st_size


def test_a_header_over_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_header, "_STARTS", (64, 1_000))
    monkeypatch.setattr(gguf_header, "MAX_HEADER_BYTES", 1_000)
    model = plain_llama()
    assert "longer than 1,000 bytes" in refused(tmp_path, model.metadata, model.tensors)


def test_a_header_longer_than_the_first_look_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_header, "_STARTS", (64, 1_000, 1 << 20))
    assert load(tmp_path, plain_llama()).num_hidden_layers == 4


def test_a_header_alone_states_the_bytes_and_says_what_is_missing(tmp_path):
    model = plain_llama()
    path = write(tmp_path / "model.gguf", model.metadata, model.tensors, data=False)
    profile, warnings, _ = import_gguf(path)
    assert profile.storage.total_bytes == bytes_of(model.tensors)
    assert len(warnings) == 1
    assert "not in the file" in warnings[0]


@pytest.mark.parametrize("options", [{"version": 2}, {"order": ">"}, {"alignment": 32}])
def test_older_and_big_endian_files_are_read(options, tmp_path):
    model = plain_llama()
    path = write(tmp_path / "model.gguf", model.metadata, model.tensors, **options)
    assert import_gguf(path)[0].storage.total_bytes == bytes_of(model.tensors)


def test_refusals_of_the_command_line(tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF")
    for command in (["models", "show"], ["models", "import"]):
        found = run(*command, str(path))
        assert (found.code, found.stdout) == (3, "")
        assert found.stderr.startswith("error: ")
        assert "Traceback" not in found.stderr
    assert run("models", "show", str(tmp_path / "absent.gguf")).code == 3
    (tmp_path / "folder.gguf").mkdir()
    assert run("models", "show", str(tmp_path / "folder.gguf")).code == 3


# --- the tables against the reference implementation ------------------------------------------------------------------------


def test_types_agree_with_the_formats_of_the_calculator():
    for name in TYPES.values():
        if not name.startswith("i") or name.startswith("iq"):
            elements, size = block_of(name)
            assert weight_format(name).nominal_bits == pytest.approx(8 * size / elements)


def test_types_agree_with_the_gguf_package():
    constants = pytest.importorskip("gguf.constants", reason="the gguf package is not installed (extra dev)")
    names = {"F32": "fp32", "F16": "fp16", "F64": "fp64"}
    theirs = {kind.value: (kind.name, size) for kind, size in constants.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}
    for number, (name, size) in theirs.items():
        assert TYPES[number] == names.get(name, name.lower())
        assert block_of(TYPES[number]) == size
    for kind in constants.LlamaFileType:
        known = FILE_TYPES.get(kind.value)
        assert known is None or kind.name in (f"MOSTLY_{known}", f"ALL_{known}")


def test_files_of_the_gguf_package_are_read(tmp_path):
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed (extra dev)")
    import numpy as np

    path = tmp_path / "model.gguf"
    made = gguf.GGUFWriter(str(path), "llama")
    made.add_block_count(1)
    made.add_embedding_length(HIDDEN)
    made.add_context_length(4096)
    made.add_head_count(8)
    made.add_head_count_kv(2)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    made.add_file_type(1)
    model = Model("llama", 1)
    model.block(0, **gguf_models.NORMS, **gguf_models.attention(), **gguf_models.gated())
    for name, shape, kind in model.ends().tensors:
        made.add_tensor(name, np.zeros(tuple(reversed(shape)), dtype=np.float32 if kind == "fp32" else np.float16))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
    profile, warnings, _ = import_gguf(path)
    theirs = gguf.GGUFReader(str(path))
    assert warnings == ()
    assert profile.storage.scheme == "F16"
    assert profile.storage.total_bytes == sum(int(t.n_bytes) for t in theirs.tensors)
    assert count_parameters(profile, numbers_of(profile)).weights_bytes == profile.storage.total_bytes
