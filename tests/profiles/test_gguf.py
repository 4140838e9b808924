"""GGUF files: layers from tensors, exact bytes, and the same model as its config.json describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from calc.errors import ProfileError
from calc.memory.kv_cache import rank_caches
from calc.memory.weights import stage_bytes
from calc.numerics import weight_format
from calc.operators.numbers import plan
from calc.operators.parameters import count_parameters
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import decode
from calc.profiles import reader, sources, writer
from calc.profiles.importers.gguf.architectures import ARCHITECTURES
from calc.profiles.importers.gguf_file import import_gguf
from calc.profiles.model import ChunkedAttention, FullAttention, ModelProfile, SlidingAttention
from calc.profiles.model_faults import faults
from tests.support import gguf_layers, gguf_models, gguf_states
from tests.support.cli import run
from tests.support.configs import import_text
from tests.support.gguf import Spec, bytes_of, elements_of, load, numbers_of, write
from tests.support.gguf_models import HIDDEN, Model

MODELS = gguf_models.TWINS | gguf_states.TWINS | gguf_layers.TWINS


def layers_of(profile: ModelProfile) -> list[dict[str, Any]]:
    """Layers in order as plain data. Extras count by their elements: a config names them otherwise than a tensor list."""
    found = []
    for name in profile.layers():
        kind = msgspec.to_builtins(profile.layer_kinds[name])
        kind["extras"] = sum(e["elements"] for e in kind["extras"])
        for mixer in kind["mixers"]:
            mixer.pop("rotary_dim", None)
        found.append(kind)
    return found


# --- every architecture -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_bytes_and_elements_are_those_of_the_file(name, tmp_path):
    model, _ = MODELS[name]()
    path = write(tmp_path / "model.gguf", model.metadata, model.tensors)
    profile, warnings, _ = import_gguf(path)
    numbers = numbers_of(profile)
    counted = count_parameters(profile, numbers)
    beyond = sum(s.elements for s in profile.parameters.stored_beyond_architecture)
    assert warnings == ()
    assert counted.weights_bytes == bytes_of(model.tensors) == profile.storage.total_bytes
    assert counted.total + beyond == elements_of(model.tensors) == profile.parameters.total
    if profile.next_token_layers is None:
        assert sum(stage_bytes(profile, Sharding(), numbers, 0).values()) == counted.weights_bytes


@pytest.mark.parametrize("name", [name for name, make in MODELS.items() if make()[1]])
def test_layers_are_those_of_the_config(name, tmp_path):
    model, config = MODELS[name]()
    profile = load(tmp_path, model)
    twin, _ = import_text(json.dumps(config))
    assert layers_of(profile) == layers_of(twin)
    assert count_parameters(profile).by_part == count_parameters(twin).by_part
    assert (profile.tie_word_embeddings, profile.vocab_size, profile.norm) == (twin.tie_word_embeddings, twin.vocab_size, twin.norm)
    caches = [rank_caches(p, Sharding(), plan("bf16", {}, compute="bf16"))[0] for p in (profile, twin)]
    assert caches[0].bytes_per_token == caches[1].bytes_per_token
    assert caches[0].state_bytes == caches[1].state_bytes
    assert caches[0].ideal_bytes(9000) == caches[1].ideal_bytes(9000)


@pytest.mark.parametrize("name", MODELS)
def test_profile_survives_being_written(name, tmp_path):
    profile = load(tmp_path, MODELS[name]()[0])
    text = writer.model_yaml(profile)
    again = reader.convert(reader.parse_yaml(text.encode(), "model.yaml"), ModelProfile, faults)
    assert again == profile


def test_every_law_of_the_table_names_a_family():
    assert all(law.family for law in ARCHITECTURES.values())


def test_a_step_streams_what_the_file_holds_but_tables(tmp_path):
    """Decode of one token reads every weight once: all bytes but those of the looked-up embedding, norms and small vectors aside."""
    profile = load(tmp_path, gguf_models.llama()[0])
    operators = step_operators(profile, Sharding(), numbers_of(profile), decode(1, 100))
    streamed = sum(float(op.weight_bytes) * op.count for op in operators)
    stored = profile.storage.role_bytes
    assert streamed == pytest.approx(sum(stored.values()) - stored["embedding"], rel=1e-3)


def test_a_tied_head_is_read_in_the_type_of_the_embedding(tmp_path):
    profile = load(tmp_path, gguf_models.qwen2()[0])
    numbers = numbers_of(profile)
    assert profile.tie_word_embeddings
    assert numbers.weight("lm_head").name == numbers.weight("embedding").name == "q4_k"
    assert numbers.weight("lm_head").counted_bytes == pytest.approx(144 / 256)


def test_mixes_count_each_tensor_in_its_own_type(tmp_path):
    """Half of the value projections in Q6_K, as Q4_K_M files have them."""
    model = gguf_models.decoder("llama")
    model.tensors = [(n, s, "q6_k" if "attn_v" in n and n[4] in "01" else k) for n, s, k in model.tensors]
    profile = load(tmp_path, model, **{"general.file_type": 15})
    matrices = {"q": 512 * 512, "o": 512 * 512, "k": 512 * 128, "v": 512 * 128}
    expected = 4 * sum(matrices.values()) * 144 // 256 + 2 * matrices["v"] * (210 - 144) // 256
    assert profile.storage.role_bytes["attention"] == expected
    assert (profile.storage.scheme, profile.storage.dtype) == ("Q4_K_M", "q4_k")
    assert count_parameters(profile, numbers_of(profile)).weights_bytes == bytes_of(model.tensors)


def q4_k_m(layers: int = 32) -> list[Spec]:
    """Llama 3.1 8B as llama.cpp quantises it: values and down projections of half the layers, and the head, in Q6_K."""
    found: list[Spec] = [
        ("token_embd.weight", (4096, 128256), "q4_k"), ("output.weight", (4096, 128256), "q6_k"),
        ("output_norm.weight", (4096,), "fp32"), ("rope_freqs.weight", (64,), "fp32"),
    ]  # fmt: skip
    for i in range(layers):
        finer = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
        mixed = "q6_k" if finer else "q4_k"
        shapes = {
            "attn_q": (4096, 4096), "attn_k": (4096, 1024), "attn_v": (4096, 1024), "attn_output": (4096, 4096),
            "ffn_gate": (4096, 14336), "ffn_up": (4096, 14336), "ffn_down": (14336, 4096),
        }  # fmt: skip
        found += [(f"blk.{i}.{n}.weight", s, mixed if n in ("attn_v", "ffn_down") else "q4_k") for n, s in shapes.items()]
        found += [(f"blk.{i}.{n}.weight", (4096,), "fp32") for n in ("attn_norm", "ffn_norm")]
    return found


def test_a_published_size_is_met(tmp_path):
    """llama.cpp prints 4685.30 MiB for this file, of which 281.81 MiB, the embedding, stay in host memory; its README 4.8944 bits."""
    keys = {"attention.head_count": 32, "attention.head_count_kv": 8, "embedding_length": 4096, "context_length": 131072}
    model = Model("llama", 32, {**keys, **gguf_models.RMS}, q4_k_m())
    profile = load(tmp_path, model, **{"general.file_type": 15})
    counted = count_parameters(profile, numbers_of(profile))
    assert counted.total == 8_030_261_248
    assert round(counted.weights_bytes / 2**20, 2) == 4685.30
    assert round(profile.storage.role_bytes["embedding"] / 2**20, 2) == 281.81
    assert 8 * counted.weights_bytes / counted.total == pytest.approx(weight_format("q4_k_m").element_bits, abs=1e-4)


# --- windows, positions, arrays ---------------------------------------------------------------------------------------------


def words(profile: ModelProfile) -> str:
    """F full, S sliding, C chunked, lower case where a layer knows no positions."""
    letters = {FullAttention: "F", SlidingAttention: "S", ChunkedAttention: "C"}
    found = ""
    for name in profile.layers():
        mixer = profile.layer_kinds[name].mixers[0]
        letter = letters[type(mixer)]  # type: ignore[index]
        found += letter.lower() if mixer.positions == "none" else letter  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        ("llama", {}, "FFFFFFFF"),
        ("llama", {"attention.sliding_window": 4096}, "SSSSSSSS"),
        ("llama", {"attention.sliding_window": 32768}, "FFFFFFFF"),  # as wide as the context: never bites
        ("gemma2", {}, "SFSFSFSF"),
        ("gemma3", {"attention.sliding_window": 512}, "SSSSSFSS"),
        ("gemma3", {"attention.sliding_window": 512, "attention.sliding_window_pattern": 4}, "SSSFSSSF"),
        ("gemma3", {"attention.sliding_window": 512, "attention.sliding_window_pattern": [True] * 4 + [False] * 4}, "SSSSFFFF"),
        ("llama4", {}, "CCCfCCCf"),
        ("llama4", {"attention.sliding_window": 0}, "FFFFFFFF"),
        ("cohere2", {"attention.sliding_window": 4096}, "SSSfSSSf"),
        ("gpt-oss", {"attention.sliding_window": 128}, "SFSFSFSF"),
        ("smollm3", {}, "FFFfFFFf"),
        ("smallthinker", {"attention.sliding_window": 4096}, "fSSSfSSS"),
        ("olmo2", {"attention.sliding_window": 4096}, "SSSFSSSF"),
        ("granite", {"rope.dimension_count": 0}, "ffffffff"),
    ],
)
def test_windows_by_architecture_and_by_the_file(architecture, keys, expected, tmp_path):
    assert words(load(tmp_path, gguf_models.decoder(architecture, 8, keys=keys))) == expected


def test_windows_that_llama_cpp_ignores_are_said(tmp_path):
    model = gguf_models.decoder("phi3", keys={"attention.sliding_window": 2047})
    _, warnings, _ = import_gguf(write(tmp_path / "model.gguf", model.metadata, model.tensors))
    assert len(warnings) == 1
    assert "2,047" in warnings[0]
    assert "llama.cpp" in warnings[0]


def test_unknown_keys_and_tensors_are_said_and_counted(tmp_path):
    model = gguf_models.decoder("llama", keys={"attention.sparse_block_size": 64}, attn_mystery=(HIDDEN, 512))
    path = write(tmp_path / "model.gguf", model.metadata, model.tensors)
    profile, warnings, _ = import_gguf(path)
    assert any("attention.sparse_block_size" in w for w in warnings)
    assert any("attn_mystery" in w for w in warnings)
    assert count_parameters(profile, numbers_of(profile)).weights_bytes == bytes_of(model.tensors)


def test_a_tower_in_the_file_is_counted(tmp_path):
    model = gguf_models.decoder("gemma3", keys={"attention.sliding_window": 512})
    model.add("v.blk.0.attn_q.weight", 256, 256, kind="fp16")
    model.add("mm.input_projection.weight", 256, HIDDEN, kind="fp16")
    profile = load(tmp_path, model)
    assert [(t.modality, t.parameters) for t in profile.towers] == [("vision", 256 * 256 + 256 * HIDDEN)]
    assert count_parameters(profile, numbers_of(profile)).weights_bytes == bytes_of(model.tensors)


def test_scales_beside_nvfp4_matrices_are_bytes_but_no_parameters(tmp_path):
    model = gguf_models.decoder("llama")
    model.tensors = [(n, s, "nvfp4" if ".ffn_" in n and len(s) > 1 else k) for n, s, k in model.tensors]
    plain = count_parameters(load(tmp_path, model)).total
    for index in range(4):
        model.add(f"blk.{index}.ffn_up.scale", 1)
    profile = load(tmp_path, model)
    assert count_parameters(profile, numbers_of(profile)).weights_bytes == bytes_of(model.tensors)
    assert count_parameters(profile).total == plain


def test_latent_files_that_hold_both_forms_count_one(tmp_path):
    model, _ = gguf_models.deepseek2()
    once = count_parameters(load(tmp_path, model)).total
    for index in range(4):
        model.add(f"blk.{index}.attn_kv_b.weight", 256, 8 * 256)
    profile = load(tmp_path, model)
    assert count_parameters(profile).total == once
    assert [s.elements for s in profile.parameters.stored_beyond_architecture] == [4 * 256 * 8 * 256]
    assert count_parameters(profile, numbers_of(profile)).weights_bytes == bytes_of(model.tensors)


# --- names, sources, commands -----------------------------------------------------------------------------------------------


def test_names_come_from_the_file_and_the_repository_from_the_metadata(tmp_path):
    model = gguf_models.decoder("llama")
    metadata = model.metadata | {"general.name": "Other", "general.source.url": "https://huggingface.co/org/Model-8B"}
    profile = import_gguf(write(tmp_path / "Model-8B-Q4_K_M.gguf", metadata, model.tensors))[0]
    assert (profile.id, profile.name, profile.hub_id) == ("model-8b-q4_k_m", "Model-8B-Q4_K_M", "org/Model-8B")


def split(folder: Path, model: Model, count: int = 3) -> list[Path]:
    """The model over several files, as gguf-split writes them."""
    paths = []
    for number in range(count):
        keys = {"split.no": number, "split.count": count, "split.tensors.count": len(model.tensors)}
        metadata = (model.metadata if number == 0 else {}) | keys
        path = folder / f"model-{number + 1:05}-of-{count:05}.gguf"
        paths.append(write(path, metadata, model.tensors[number::count]))
    return paths


def test_split_models_are_read_whole_from_any_part(tmp_path):
    model = gguf_models.decoder("llama")
    paths = split(tmp_path, model)
    profiles = [import_gguf(path)[0] for path in paths]
    assert profiles[0] == profiles[1] == profiles[2]
    assert profiles[0].storage.total_bytes == bytes_of(model.tensors)
    assert profiles[0].id == "model"


def test_a_missing_part_is_named(tmp_path):
    paths = split(tmp_path, gguf_models.decoder("llama"))
    paths[1].unlink()
    with pytest.raises(ProfileError, match="model-00002-of-00003"):
        import_gguf(paths[0])


def test_a_part_under_another_name_is_refused(tmp_path):
    paths = split(tmp_path, gguf_models.decoder("llama"))
    with pytest.raises(ProfileError, match="one of 3 files"):
        import_gguf(paths[0].rename(tmp_path / "model.gguf"))


def test_commands_take_the_file(tmp_path):
    model = gguf_models.qwen3moe()[0]
    path = write(tmp_path / "Small-Q4_K_M.gguf", model.metadata | {"general.file_type": 15}, model.tensors)
    shown = run("models", "show", str(path), "--json")
    assert shown.code == 0, shown.stderr
    results = shown.json["results"]
    assert results["weights_bytes"] == bytes_of(model.tensors)
    assert results["weights_format"] == "Q4_K_M"
    assert "in Q4_K_M" in " ".join(run("models", "show", str(path)).stdout.split())
    estimate = run("estimate", str(path), "rtx-4090", "--engine", "llama.cpp")
    assert estimate.code == 0, estimate.stderr
    assert "as stored (Q4_K_M)" in " ".join(estimate.stdout.split())
    assert run("estimate", str(path), "rtx-4090", "--json").json["inputs"]["stored_format"] == "Q4_K_M"
    target = tmp_path / "small.yaml"
    assert run("models", "import", str(path), "-o", str(target)).code == 0
    again = run("models", "show", str(target), "--json").json["results"]
    assert again == results


def test_another_format_replaces_what_is_stored(tmp_path):
    model = gguf_models.decoder("llama")
    path = write(tmp_path / "model.gguf", model.metadata, model.tensors)
    sixteen = run("models", "show", str(path), "-q", "none", "--json").json["results"]
    assert sixteen["weights_bytes"] == 2 * sixteen["parameters"]
    assert sixteen["weights_format"] == "none"


def test_is_source():
    assert sources.is_source("x.gguf")
    assert sources.is_source("hf:org/name")
    assert not sources.is_source("x.yaml")
