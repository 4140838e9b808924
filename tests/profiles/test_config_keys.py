"""What the importer makes of keys: spellings, null, class defaults, patterns, unknown names."""

from __future__ import annotations

import json

import pytest

from calc.profiles.importers import hf_config
from calc.profiles.model import FullAttention, LatentAttention, SlidingAttention
from tests.support.configs import changed, config, experts, import_text, imported, llama, parameters, profile, refusal


def mixers(data):
    model = profile(data)
    return [model.layer_kinds[name].mixers[0] for name in model.layers()]


def test_absent_key_value_heads_mean_as_many_as_query_heads():
    assert mixers(llama(num_key_value_heads=...))[0].num_key_value_heads == 8
    assert mixers(llama(num_key_value_heads=None))[0].num_key_value_heads == 8


def test_explicit_head_size_wins_over_hidden_size():
    assert mixers(llama(head_dim=48))[0].head_dim == 48
    assert mixers(llama(head_dim=None))[0].head_dim == 8


def test_absent_sizes_are_those_of_the_class_and_said():
    model, warnings = imported({"model_type": "llama", "torch_dtype": "float16"})
    assert (model.hidden_size, model.num_hidden_layers) == (4096, 32)
    assert any("hidden_size 4,096" in text and "class llama" in text for text in warnings)


def test_null_is_not_absent():
    # Mistral's class slides over 4096 tokens unless the config says null.
    sizes = {"model_type": "mistral", "torch_dtype": "bfloat16"}
    assert {type(m) for m in mixers(sizes)} == {SlidingAttention}
    assert {type(m) for m in mixers({**sizes, "sliding_window": None})} == {FullAttention}


def test_a_window_as_long_as_the_context_never_bites():
    data = config("mistralai__Mistral-7B-Instruct-v0.1", sliding_window=32768)
    assert {type(m) for m in mixers(data)} == {FullAttention}


def test_qwen_windows_are_inert_unless_switched_on():
    base = config("Qwen__Qwen2-7B-Instruct", sliding_window=4096, max_window_layers=20)
    assert {type(m) for m in mixers(base)} == {FullAttention}
    kinds = [type(m) for m in mixers({**base, "use_sliding_window": True})]
    assert kinds == [FullAttention] * 20 + [SlidingAttention] * 8


def test_layer_types_win_over_the_older_key():
    data = config("google__gemma-3-1b-it", layer_types=["full_attention"] * 25 + ["sliding_attention"])
    assert [type(m) for m in mixers(data)].count(SlidingAttention) == 1


def test_pattern_as_letters():
    data = config("LGAI-EXAONE__EXAONE-4.0-32B", layer_types=..., sliding_window_pattern="LG")
    model = profile(data)
    assert model.layer_counts() == {"sliding": 32, "full-nope": 32} or set(model.layer_counts().values()) == {32}
    assert [m.positions for m in mixers(data)[:2]] == ["rotary", "none"]


def test_no_rope_layers_hold_one_where_positions_are_used():
    positions = [m.positions for m in mixers(config("HuggingFaceTB__SmolLM3-3B"))]
    assert positions[:4] == ["rotary", "rotary", "rotary", "none"]


def test_kimi_counts_layers_from_one():
    attended = [
        i for i, m in enumerate(mixers(config("moonshotai__Kimi-Linear-48B-A3B-Instruct"))) if isinstance(m, LatentAttention)
    ]
    assert attended == [3, 7, 11, 15, 19, 23, 26]


def test_falcon_old_style_has_one_key_value_head_whatever_the_key_says():
    assert mixers(config("tiiuae__falcon-7b"))[0].num_key_value_heads == 1


def test_per_layer_lists_where_a_number_is_usual():
    data = config("tencent__Hunyuan-A13B-Instruct", moe_topk=[8] * 31 + [4])
    chosen = [k.feed_forwards[0].num_experts_per_token for k in profile(data).layer_kinds.values()]
    assert sorted(chosen) == [4, 8]


def test_listed_expert_layers_as_a_list_or_a_text():
    as_list = config("stepfun-ai__step3")
    text = changed(as_list["text_config"], moe_layers_enum=",".join(map(str, as_list["text_config"]["moe_layers_enum"])))
    assert parameters({**as_list, "text_config": text}).total == parameters(as_list).total


def test_cross_layer_attention_stores_half_the_caches():
    plain, shared = config("tencent__Hunyuan-A13B-Instruct"), config("tencent__Hunyuan-A13B-Instruct", use_cla=True)
    assert sum(m.kv_source == "own" for m in mixers(shared)) == sum(m.kv_source == "own" for m in mixers(plain)) // 2


def test_bare_infinity_is_read():
    text = json.dumps(config("nvidia__Nemotron-H-56B-Base-8K"))
    assert "Infinity" in text
    assert import_text(text)[0].num_hidden_layers == 118


def test_text_model_of_a_wrapper_inherits_tying_and_dtype():
    data = config("mistral-community__pixtral-12b", tie_word_embeddings=True, torch_dtype="float32")
    model = profile(data)
    assert model.tie_word_embeddings
    assert model.storage.dtype == "fp32"


def test_wrapper_whose_text_section_names_no_class():
    data = config("google__gemma-3-27b-it")
    data["text_config"].pop("model_type")
    assert parameters(data).total == parameters(config("google__gemma-3-27b-it")).total


def test_llm_config_is_a_text_section_too():
    data = config("OpenGVLab__InternVL3-8B-hf", model_type="internvl_chat")
    data["llm_config"] = data.pop("text_config")
    assert parameters(data).total == parameters(config("OpenGVLab__InternVL3-8B-hf")).total


def test_embedding_models_have_no_head():
    assert not profile(llama(architectures=["LlamaModel"])).has_lm_head
    assert profile(config("THUDM__chatglm3-6b")).has_lm_head


def test_newer_spellings_of_the_same_models():
    kimi = config("moonshotai__Kimi-Linear-48B-A3B-Instruct", linear_attn_config=..., first_k_dense_replace=...)
    full = {3, 7, 11, 15, 19, 23, 26}
    kimi |= {
        "layer_types": ["full_attention" if i in full else "linear_attention" for i in range(27)],
        "mlp_layer_types": ["dense"] + ["sparse"] * 26,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "linear_conv_kernel_dim": 4,
    }
    assert parameters(kimi).total == parameters(config("moonshotai__Kimi-Linear-48B-A3B-Instruct")).total
    ratios = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    old = config("deepseek-ai__DeepSeek-V4-Flash")
    new = changed(
        old,
        compress_ratios=...,
        num_hash_layers=...,
        layer_types=[ratios[r] for r in old["compress_ratios"][:43]],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
        mlp_layer_types=["hash_moe"] * 3 + ["moe"] * 40,
    )
    assert parameters(new).total == parameters(old).total
    letters = config("nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    words = {"M": "linear_attention", "*": "full_attention", "E": "moe"}
    listed = changed(
        letters,
        hybrid_override_pattern=...,
        mtp_hybrid_override_pattern=...,
        layers_block_type=[words[x] for x in letters["hybrid_override_pattern"]],
        mtp_layers_block_type=["full_attention", "moe"],
    )
    assert parameters(listed).total == parameters(letters).total


def test_shared_indexers_hold_no_weights():
    whole = config("zai-org__GLM-5")
    halved = {**whole, "indexer_types": ["full", "shared"] * 39}
    indexer = 2048 * 32 * 128 + 6144 * 128 + 2 * 128 + 6144 * 32
    assert parameters(whole).total - parameters(halved).total == 39 * indexer


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_memory_heads", 4),
        ("attention_rank", 16),
        ("expert_hidden_dim", 32),
        ("n_registers", 2),
        ("window_stride", 64),
        ("sliding_window", 128),
        ("q_lora_rank", 16),
        ("num_experts", 8),
        ("kv_compression_ratio", 4),
    ],
)
def test_an_unknown_architectural_key_is_named(key, value):
    assert any(key in text for text in imported(llama(**{key: value}))[1])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope_theta", 1e6),
        ("attention_dropout", 0.1),
        ("bos_token_id", 1),
        ("num_labels", 3),
        ("num_experts", 0),
        ("sliding_window", None),
        ("transformers_version", "4.50"),
        ("rope_scaling", {"factor": 8.0, "low_freq_factor": 1.0}),
    ],
)
def test_harmless_keys_and_switched_off_ones_are_silent(key, value):
    assert imported(llama(**{key: value}))[1] == ()


def test_shared_configs_raise_few_doubts():
    doubted = {}
    for name in ("meta-llama__Meta-Llama-3.1-8B", "deepseek-ai__DeepSeek-V3", "google__gemma-4-E4B-it", "Qwen__Qwen3.5-35B-A3B"):
        doubted[name] = imported(config(name))[1]
    assert doubted == dict.fromkeys(doubted, ())


def test_missing_dtype_is_said():
    model, warnings = imported(llama(torch_dtype=...))
    assert model.storage.dtype == "bf16"
    assert any("bf16 is assumed" in text for text in warnings)


@pytest.mark.parametrize(
    ("data", "key", "value", "near"),
    [
        (llama(model_type="lama"), "model_type", "lama", "llama"),
        (llama(layer_types=["full_atention"] * 4), "layer_types", "full_atention", "full_attention"),
        (llama(torch_dtype="bfloat8"), "torch_dtype", "bfloat8", None),
        (config("mosaicml__mpt-7b", attn_config={"attn_type": "multiquery"}), "attn_type", "multiquery", "multiquery_attention"),
        (config("nvidia__Nemotron-H-8B-Base-8K", hybrid_override_pattern="M" * 51 + "X"), "hybrid_override_pattern", "X", None),
        (config("MiniMaxAI__MiniMax-M2.5", qk_norm_type="per_heads"), "qk_norm_type", "per_heads", "per_head"),
        (config("google__recurrentgemma-2b-it", block_types=["recurent"]), "block_types", "recurent", "recurrent"),
        (config("google__gemma-3-27b-it", model_type="gema3"), "model_type", "gema3", "gemma3"),
    ],
)
def test_unknown_kinds_are_refused_by_name(data, key, value, near):
    error = refusal(data)
    assert key in error.message
    assert repr(value) in error.message
    assert error.exit_code == 3
    assert near is None or near in (error.hint or "")
    assert "profile YAML" in (error.hint or "") or key == "torch_dtype"


def test_faults_name_file_and_line():
    text = json.dumps(llama(num_attention_heads=7), indent=2)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if '"num_attention_heads"' in row)
    assert refusal(text).message.startswith(f"config.json:{line}: num_attention_heads")


def test_identity_comes_from_the_path(tmp_path):
    cached = tmp_path / "models--org--Some-Model" / "snapshots" / "abc" / "config.json"
    named = tmp_path / "org__Other.Model.json"
    plain = tmp_path / "My Model" / "config.json"
    for path in (cached, named, plain):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(experts()))
    found = [hf_config.import_folder_or_file(p)[0] for p in (cached, named, plain, plain.parent)]
    assert [(m.id, m.hub_id) for m in found] == [
        ("some-model", "org/Some-Model"),
        ("other.model", "org/Other.Model"),
        ("my-model", None),
        ("my-model", None),
    ]
