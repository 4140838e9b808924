"""Safetensors: the index, headers, bytes by tensor role, and files that lie."""

from __future__ import annotations

import json
import struct

import pytest

from calc.errors import ProfileError
from calc.profiles.importers import safetensors_index as st
from calc.profiles.importers.hf_config import import_folder_or_file
from tests.support.configs import llama


def header(tensors, data=0):
    entries, start = {}, 0
    for name, (dtype, shape) in tensors.items():
        elements = 1
        for width in shape:
            elements *= width
        size = -(-elements * st.DTYPE_BITS[dtype] // 8)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + size]}
        start += size
    content = json.dumps(entries).encode()
    return struct.pack("<Q", len(content)) + content + b"\0" * (start if data is None else data)


TENSORS = {
    "model.embed_tokens.weight": ("BF16", [10, 4]),
    "model.layers.0.self_attn.q_proj.weight": ("F8_E4M3", [4, 4]),
    "model.layers.0.self_attn.q_proj.weight_scale_inv": ("F32", [1, 1]),
    "model.layers.0.mlp.experts.0.gate_proj.weight": ("U8", [4, 2]),
    "model.layers.0.mlp.gate.weight": ("BF16", [2, 4]),
    "model.layers.0.mlp.shared_experts.up_proj.weight": ("BF16", [4, 4]),
    "model.layers.0.input_layernorm.weight": ("BF16", [4]),
    "model.layers.1.eh_proj.weight": ("BF16", [4, 8]),
    "model.layers.1.mlp.experts.0.up_proj.weight": ("BF16", [4, 4]),
    "visual.blocks.0.attn.qkv.weight": ("BF16", [4, 12]),
    "lm_head.weight": ("BF16", [10, 4]),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(llama(num_hidden_layers=1)))
    (tmp_path / "model-00001-of-00001.safetensors").write_bytes(header(TENSORS, None))
    index = {"metadata": {"total_size": 999}, "weight_map": dict.fromkeys(TENSORS, "model-00001-of-00001.safetensors")}
    (tmp_path / st.INDEX_NAME).write_text(json.dumps(index))
    return tmp_path


def test_bytes_by_role(folder):
    tensors = st.read_header(folder / "model-00001-of-00001.safetensors")
    assert st.bytes_by_role(tensors, layers=1) == {
        "embedding": 80,
        "attention": 16 + 4,
        "experts": 8,
        "router": 16,
        "shared_experts": 32,
        "norm": 8,
        "next_token_layers": 64 + 32,
        "tower": 96,
        "lm_head": 80,
    }


def test_files_beside_a_config_give_stored_bytes(folder):
    storage = import_folder_or_file(folder)[0].storage
    assert storage.total_bytes == sum(st.bytes_by_role(st.read_header(folder / "model-00001-of-00001.safetensors")).values())
    assert sum(storage.role_bytes.values()) == storage.total_bytes


def test_the_index_alone_gives_the_total(folder):
    (folder / "model-00001-of-00001.safetensors").unlink()
    storage = import_folder_or_file(folder)[0].storage
    assert (storage.total_bytes, storage.role_bytes) == (999, {})


def test_a_single_file_needs_no_index(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(llama(num_hidden_layers=1)))
    (tmp_path / st.SINGLE_NAME).write_bytes(header(TENSORS, None))
    assert import_folder_or_file(tmp_path)[0].storage.total_bytes == 436


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("transformer.h.3.attn.c_attn.weight", "attention"),
        ("transformer.wte.weight", "embedding"),
        ("model.layers.3.block_sparse_moe.experts.2.w1.weight", "experts"),
        ("model.layers.3.block_sparse_moe.gate.weight", "router"),
        ("model.layers.3.mlp.gate_proj.weight", "feed_forward"),
        ("model.layers.3.linear_attn.in_proj_qkvz.weight", "linear_attention"),
        ("backbone.layers.3.mixer.in_proj.weight", "linear_attention"),
        ("model.norm.weight", "norm"),
        ("mtp.layers.0.mlp.up_proj.weight", "next_token_layers"),
        ("vision_tower.encoder.layers.0.mlp.fc1.weight", "tower"),
        ("something.else", "other"),
    ],
)
def test_roles_by_name(name, role):
    assert st.role_of(name) == role


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01\x02",
        struct.pack("<Q", 200_000_000) + b"{}",
        struct.pack("<Q", 1 << 63) + b"{}",
        struct.pack("<Q", 1000) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 5) + b'{"a":',
        header({"a": ("BF16", [4])}, 4),
    ],
)
def test_headers_that_lie_about_the_file(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ProfileError):
        st.read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {},
        {"dtype": "F7", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]},
    ],
)
def test_tensors_that_contradict_themselves(entry):
    with pytest.raises(ProfileError, match="tensor 'a'"):
        st.parse_header(json.dumps({"a": entry}).encode(), "x")


def test_tensors_that_overlap():
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    with pytest.raises(ProfileError, match="share the bytes"):
        st.parse_header(json.dumps({"a": entry, "b": {**entry, "data_offsets": [4, 12]}}).encode(), "x")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"weight_map": 7},
        {"weight_map": {"a": "../../etc/passwd"}},
        {"weight_map": {"a": "/x.safetensors"}},
        {"weight_map": {"a": 1}},
        {"weight_map": {}, "metadata": {"total_size": -1}},
        {"weight_map": {}, "metadata": {"total_size": "big"}},
        {"weight_map": {}, "metadata": 3},
    ],
)
def test_indexes_that_are_none(tmp_path, content):
    path = tmp_path / st.INDEX_NAME
    path.write_text(json.dumps(content))
    with pytest.raises(ProfileError):
        st.read_index(path)
