"""What a quantisation config covers and what it leaves in 16 bit; exact bytes where a vendor states them."""

from __future__ import annotations

import json

import pytest

from calc.operators.numbers import plan
from calc.operators.parameters import count_parameters
from calc.profiles.importers.hf_config import import_config, import_folder_or_file
from calc.profiles.importers.json_file import JsonDocument
from tests.support.configs import CONFIGS, config, experts, imported, llama, profile, refusal

LINEAR = ("attention", "feed_forward")


def storage(data):
    return profile(data).storage


def quantised(**section):
    return llama(quantization_config=section)


def weight_bytes(name):
    model, _ = import_folder_or_file(CONFIGS / f"{name}.json")
    numbers = plan(model.storage.dtype, model.storage.roles, compute="bf16", group_size=model.storage.group_size)
    return count_parameters(model, numbers).weights_bytes


def test_gpt_oss_bytes_are_those_of_the_published_files():
    assert weight_bytes("openai__gpt-oss-120b") == 65_248_815_744


@pytest.mark.parametrize(
    ("section", "name", "group"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block", None),
        ({"quant_method": "fp8"}, "fp8", None),
        ({"quant_method": "fbgemm_fp8"}, "fp8-channel", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq", 64),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "awq", 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": False}, "w4a16", 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq", 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "gptq-8bit", 32),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, "gptq-3bit", 1 << 24),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4-double", None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", None),
        ({"bits": 4, "group_size": 64}, "mlx-4bit", 64),
    ],
)
def test_methods(section, name, group):
    found = storage(quantised(**section))
    assert {role: found.roles[role] for role in LINEAR} == dict.fromkeys(LINEAR, name)
    assert found.group_size == group
    assert found.dtype == "bf16"


def compressed(weights, *, inputs=None, **rest):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return quantised(quant_method="compressed-tensors", config_groups={"group_0": group}, ignore=["lm_head"], **rest)


@pytest.mark.parametrize(
    ("weights", "inputs", "name"),
    [
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}, None, "w4a16"),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False}, None, "awq"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8}, "int8"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "w8a16"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"num_bits": 8}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"num_bits": 8}, "fp8-channel"),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, {"num_bits": 8}, "fp8-block"),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, {"num_bits": 4}, "nvfp4"),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, None, "mxfp4"),
    ],
)
def test_compressed_tensors(weights, inputs, name):
    found = storage(compressed(weights, inputs=inputs))
    assert found.roles == dict.fromkeys(LINEAR, name)


def test_cache_formats_that_a_checkpoint_asks_for():
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    assert storage(compressed(weights, kv_cache_scheme={"num_bits": 8, "type": "float"})).kv_cache == "fp8"
    assert storage(quantised(quant_method="modelopt", quant_algo="FP8", kv_cache_quant_algo="FP8")).kv_cache == "fp8"
    assert storage(quantised(quant_method="modelopt", quant_algo="FP8", kv_cache_quant_algo=None)).kv_cache is None


def test_expressions_decide_by_role():
    roles = storage(config("moonshotai__Kimi-K2.5")).roles
    assert roles == {"experts": "w4a16"}


@pytest.mark.parametrize(
    "ignored",
    [
        ["model.layers.0.self_attn", "model.layers.1.self_attn", "model.layers.2.self_attn", "model.layers.3.self_attn"],
        [f"model.layers.{i}.self_attn.{p}_proj" for i in range(4) for p in "qkvo"],
        ["self_attn"],
        ["model.layers.*.self_attn*"],
        ["model.layers.0*", "model.layers.1*", "model.layers.2.self_attn*", "model.layers.3.self_attn*"],
        ["re:.*self_attn.*"],
    ],
)
def test_ignore_lists_in_all_forms(ignored):
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignored}
    assert "attention" not in storage(quantised(**section)).roles


def test_part_of_a_role_left_out_is_said():
    section = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]}
    model, warnings = imported(quantised(**section))
    assert model.storage.roles["attention"] == "fp8"
    assert any("25% of the attention modules" in text for text in warnings)


def test_gate_does_not_name_gate_proj():
    section = {"quant_method": "fp8", "modules_to_not_convert": ["gate", "lm_head"]}
    found = storage(experts(quantization_config=section))
    assert set(found.roles) == {"attention", "feed_forward", "experts", "shared_experts"}


def test_rules_that_leave_modules_out_of_gptq():
    section = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}, "lm_head": True}
    found = storage(quantised(**section))
    assert found.roles == {"feed_forward": "gptq", "lm_head": "gptq"}


def test_mixed_precision_by_module():
    layers = {f"model.layers.{i}.self_attn.{p}_proj": {"quant_algo": "FP8"} for i in range(4) for p in "qkvo"}
    layers |= {f"model.layers.{i}.mlp.{p}_proj": {"quant_algo": "NVFP4"} for i in range(4) for p in ("gate", "up", "down")}
    found = storage(quantised(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers))
    assert found.roles == {"attention": "fp8", "feed_forward": "nvfp4"}


def test_experts_in_another_format_than_the_rest():
    assert storage(config("deepseek-ai__DeepSeek-V4-Flash")).roles == {
        "experts": "fp4-block",
        "attention": "fp8-block",
        "shared_experts": "fp8-block",
    }


def test_list_that_is_cut_off_is_extended_to_all_layers():
    model, warnings = imported(config("nvidia__DeepSeek-V3.1-NVFP4"))
    assert "attention" not in model.storage.roles
    assert model.storage.roles["experts"] == "nvfp4"
    assert any("cut off" in text for text in warnings)


def test_separate_quantisation_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(llama()))
    content = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(content))
    model, _ = import_folder_or_file(tmp_path)
    assert model.storage.roles == dict.fromkeys(LINEAR, "fp8")
    beside = import_config(JsonDocument(llama(), "config.json"), None, JsonDocument(content, "hf_quant_config.json"))[0]
    assert beside.storage == model.storage


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"quant_method": "gptqq"}, "quant_method"),
        ({"quant_method": "aqlm"}, "quant_method"),
        ({}, "quant_method"),
        ({"quant_method": "gptq", "bits": 5}, "bits"),
        ({"quant_method": "awq", "bits": 3}, "bits"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP5"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP2"}, "kv_cache_quant_algo"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, "weight_block_size"),
    ],
)
def test_what_is_not_understood_is_refused(section, key):
    error = refusal(quantised(**section))
    assert key in error.message
    assert error.exit_code == 3


def test_nearest_method_is_offered():
    assert "gptq" in (refusal(quantised(quant_method="gptqq")).hint or "")
