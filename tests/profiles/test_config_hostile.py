"""Configs that are cut off, hostile or contradict themselves end in one error, quickly and without a traceback."""

from __future__ import annotations

import json
import random
import time

import pytest

from calc.errors import ProfileError
from calc.profiles.importers import json_file
from calc.profiles.importers.hf_config import import_folder_or_file
from tests.support.configs import CONFIGS, config, experts, import_text, llama, refusal

GOOD = json.dumps(llama())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD[: len(GOOD) // 2], "not valid JSON"),
        ("", "not valid JSON"),
        ("[]", "an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"hidden_size": 1, "hidden_size": 2}', "stands twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": 1}\n{"b": 2}', "not valid JSON"),
        ("{}", "model_type is missing"),
        ('{"model_type": 7}', "must be a text"),
        ('{"model_type": "' + "x" * 10_000 + '"}', "is unknown"),
    ],
)
def test_broken_text(text, said):
    assert said in refusal(text).message


def test_not_text_at_all():
    with pytest.raises(ProfileError, match="UTF-8"):
        import_text(b"\xff\xfe\x00{")


def test_duplicate_keys_name_both_lines():
    text = '{\n "a": {"x": 1},\n "x": 2,\n "b": [{"y": 1},\n {"y": 2, "z": 3,\n "z": 4}]\n}'
    assert refusal(text).message == "config.json:6: key 'z' stands twice; the first is on line 5"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (llama(num_hidden_layers=10**9), "num_hidden_layers"),
        (llama(num_hidden_layers=10**30), "num_hidden_layers"),
        (llama(num_hidden_layers=0), "num_hidden_layers"),
        (llama(num_hidden_layers=-4), "num_hidden_layers"),
        (llama(num_hidden_layers="4"), "num_hidden_layers"),
        (llama(num_hidden_layers=4.5), "num_hidden_layers"),
        (llama(num_hidden_layers=True), "num_hidden_layers"),
        (llama(num_hidden_layers=[4]), "num_hidden_layers"),
        (llama(hidden_size=float("inf")), "hidden_size"),
        (llama(hidden_size=1 << 50), "hidden_size"),
        (llama(hidden_size=None), "hidden_size"),
        (llama(num_attention_heads=7), "num_attention_heads"),
        (llama(num_key_value_heads=3), "num_key_value_heads"),
        (llama(num_key_value_heads=16), "num_key_value_heads"),
        (llama(layer_types=["full_attention"] * 5), "layer_types"),
        (llama(layer_types=["full_attention"] * 3), "layer_types"),
        (llama(layer_types="full_attention"), "layer_types"),
        (llama(layer_types=["sliding_attention"] * 4), "layer_types"),
        (llama(attention_bias="yes"), "attention_bias"),
        (experts(num_experts_per_tok=9), "num_experts_per_tok"),
        (experts(moe_layer_freq=[1, 1]), "moe_layer_freq"),
        (config("nvidia__Nemotron-H-8B-Base-8K", num_hidden_layers=51), "hybrid_override_pattern"),
        (config("google__recurrentgemma-2b-it", num_hidden_layers=2), "block_types"),
        (config("LiquidAI__LFM2-1.2B", full_attn_idxs=[99]), "full_attn_idxs"),
        (config("moonshotai__Kimi-Linear-48B-A3B-Instruct", num_hidden_layers=26), "full_attn_layers"),
        (
            config("google__gemma-3n-E4B-it") | {"text_config": {"model_type": "gemma3n_text", "num_kv_shared_layers": 35}},
            "num_kv_shared",
        ),
        (config("mistralai__Mamba-Codestral-7B-v0.1", n_groups=7), "n_groups"),
        (config("mistralai__Mamba-Codestral-7B-v0.1", expand=3), "mamba_d_ssm"),
        (config("Qwen__Qwen3-Next-80B-A3B-Instruct", linear_num_value_heads=17), "linear_num_value_heads"),
        (config("nvidia__Llama-3_3-Nemotron-Super-49B-v1", num_hidden_layers=79), "block_configs"),
        (config("stepfun-ai__step3") | {"text_config": {"model_type": "step3_text", "moe_layers_enum": "4,x"}}, "step3"),
    ],
)
def test_contradictions_name_the_key(data, key):
    error = refusal(data)
    assert key in error.message or key == "step3"
    assert error.exit_code == 3


def test_oversized_files_are_not_read(tmp_path):
    big = tmp_path / "config.json"
    with big.open("wb") as file:
        file.truncate(json_file.MAX_INDEX_BYTES + 1)
    with pytest.raises(ProfileError, match="at most"):
        import_folder_or_file(big)


def test_many_small_values_are_not_built():
    content = b'{"a": [' + b"[]," * 5_000_000 + b"0]}"
    with pytest.raises(ProfileError, match="values"):
        json_file.parse_json(content, "config.json")


@pytest.mark.parametrize("name", ["folder", "missing.json", "empty"])
def test_paths_that_hold_no_config(tmp_path, name):
    (tmp_path / "folder" / "config.json").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProfileError):
        import_folder_or_file(tmp_path / name)


def test_expressions_that_could_run_forever_are_not_run():
    data = llama(
        quantization_config={
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
            },
            "ignore": ["re:(a+)+$", "re:(.*)*(.*)*x", "re:" + ".*e" * 50, "re:(", "re:" + "a" * 10_000] * 20,
        }
    )
    start = time.process_time()
    _, warnings = import_text(json.dumps(data))
    assert time.process_time() - start < 30  # run, they would not end
    assert any("not understood" in text for text in warnings)


BAD = [None, -1, 0, 10**9, 10**30, 1.5, "x", "", [], {}, True, [1], [-1], {"a": 1}, float("inf"), [None], [[1]], "MMM", "1,2,999"]


def _places(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from _places(value, (*path, key))


@pytest.mark.parametrize("seed", range(8))
def test_damaged_configs_end_in_a_profile_or_one_error(seed):
    chance = random.Random(seed)
    files = sorted(CONFIGS.glob("*.json"))
    for _ in range(150):
        data = json.loads(chance.choice(files).read_text(encoding="utf-8"))
        for _ in range(chance.choice((1, 1, 2, 3))):
            *parents, key = chance.choice(list(_places(data)))
            node = data
            for parent in parents:
                node = node.get(parent, {}) if isinstance(node, dict) else {}
            if isinstance(node, dict):
                node[key] = chance.choice(BAD)
                if chance.random() < 0.25:
                    del node[key]
        try:
            import_text(json.dumps(data))
        except ProfileError:
            continue
