"""Vision and audio towers: parameters from their configs."""

from __future__ import annotations

import pytest

from tests.support.configs import changed, config, imported, parameters, profile, refusal

#: Published checkpoints, tower and projector together.
TOWERS = {
    "google__gemma-3-27b-it": 423_060_336,
    "google__gemma-4-31B-it": 575_743_536,
    "google__gemma-4-E4B-it": 169_330_688 + 304_824_608 + 3_932_160,
    "google__gemma-3n-E4B-it": 294_126_912 + 681_348_640 + 7_805_952,
    "llava-hf__llava-1.5-7b-hf": 324_487_168,
    "mistral-community__pixtral-12b": 434_957_312,
    "mistralai__Mistral-Small-3.1-24B-Instruct-2503": 438_958_080,
    "OpenGVLab__InternVL3-8B-hf": 331_552_768,
    "Qwen__Qwen2.5-VL-7B-Instruct": 676_550_144,
    "Qwen__Qwen3-VL-8B-Instruct": 576_388_336,
    "Qwen__Qwen3.5-397B-A17B": 456_010_480,
    "meta-llama__Llama-4-Scout-17B-16E-Instruct": 871_932_416,
    "meta-llama__Llama-3.2-11B-Vision-Instruct": 867_749_395,
    "moonshotai__Kimi-K2.5": 471_143_920,
    "moonshotai__Kimi-K3": 447_358_976,
    "stepfun-ai__step3": 4_675_374_592,
}


@pytest.mark.parametrize("name", TOWERS)
def test_towers_of_published_models(name):
    assert parameters(config(name)).by_part["towers"] == TOWERS[name]


def test_towers_of_wrappers_without_a_shared_config():
    # Totals of the classes of transformers 5.24 at their defaults.
    text = config("meta-llama__Meta-Llama-3.1-8B")
    siglip = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26}
    siglip |= {"num_attention_heads": 16, "image_size": 384, "patch_size": 14}
    one_vision = {"model_type": "llava_onevision", "text_config": text, "vision_config": siglip}
    assert parameters(one_vision).by_part["towers"] == 419_255_840
    clip = {"model_type": "clip_vision_model", "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32}
    clip |= {"num_attention_heads": 16, "image_size": 2016, "patch_size": 14}
    m3 = {"model_type": "minimax_m3_vl", "text_config": config("MiniMaxAI__MiniMax-M3"), "vision_config": clip}
    assert parameters(m3).by_part["towers"] == 865_567_232
    flash = {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 47, "image_size": 728, "patch_size": 14}
    step = {"model_type": "step3p7", "text_config": config("stepfun-ai__Step-3.7-Flash"), "vision_config": flash}
    assert parameters(step).by_part["towers"] == 1_981_014_784


def test_tokens_of_an_image():
    tower = profile(config("google__gemma-3-27b-it")).towers[0]
    assert (tower.tokens_per_item, tower.output_tokens_per_item) == (4096, 256)
    tower = profile(config("llava-hf__llava-1.5-7b-hf")).towers[0]
    assert (tower.tokens_per_item, tower.output_tokens_per_item) == (577, 576)


def test_every_tensor_of_kimi_k3_is_counted():
    assert parameters(config("moonshotai__Kimi-K3")).total == 2_779_931_837_184


def test_a_tower_of_kimi_k3_with_other_parts_is_refused():
    data = config("moonshotai__Kimi-K3")
    error = refusal({**data, "vision_config": changed(data["vision_config"], mm_projector_type="patchmerger")})
    assert "vision_config.mm_projector_type" in error.message
    assert "patchmergerv2" in (error.hint or "")


def test_tower_without_a_law_is_said():
    wrapper = {"model_type": "aya_vision", "text_config": config("CohereLabs__aya-23-8B"), "vision_config": {"hidden_size": 1152}}
    _, warnings = imported(wrapper)
    assert any("vision_config" in text and "not counted" in text for text in warnings)


def test_unknown_towers_and_impossible_images():
    data = config("llava-hf__llava-1.5-7b-hf")
    error = refusal({**data, "vision_config": changed(data["vision_config"], model_type="clip_vision")})
    assert "vision_config.model_type" in error.message
    assert "clip_vision_model" in (error.hint or "")
    assert "patch_size" in refusal({**data, "vision_config": changed(data["vision_config"], patch_size=1000)}).message
    assert "vision_config" in refusal({**data, "vision_config": 7}).message
