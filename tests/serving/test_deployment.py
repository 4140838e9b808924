"""What a deployment settles by itself and says: types that products run in."""

from __future__ import annotations

import pytest

from calc.serving.phase import main_dtype
from tests.support.memory import deploy


@pytest.mark.parametrize(
    ("model", "hardware", "options", "runs", "said"),
    [
        ("llama-3.1-8b", "a100-sxm4-80gb", {"quantization": "fp8"}, "bf16", "no fp8 units"),
        ("llama-3.1-8b", "a100-sxm4-80gb", {"quantization": "fp8-block"}, "bf16", "no fp8 units"),
        ("llama-3.1-8b", "a100-sxm4-80gb", {"quantization": "int8"}, "int8", None),
        ("llama-3.1-8b", "v100-sxm2-32gb", {"quantization": "int8"}, "fp16", "no int8 units"),
        ("llama-3.1-8b", "h100-sxm5-80gb", {"quantization": "fp8"}, "fp8", None),
        ("llama-3.1-8b", "h100-sxm5-80gb", {"quantization": "nvfp4"}, "bf16", "no fp4 units"),
        ("llama-3.1-8b", "b200", {"quantization": "nvfp4"}, "fp4", None),
        ("llama-3.1-8b", "a100-sxm4-80gb", {"quantization": "awq"}, "bf16", None),  # never anything but weights
        ("llama-3.1-8b", "a100-sxm4-80gb", {}, "bf16", None),
        ("deepseek-v3", "a100-sxm4-80gb", {"tp": 8}, "bf16", "no fp8 units"),  # as stored
        ("gpt-oss-20b", "b200", {}, "bf16", "the engine multiplies mxfp4 in bf16"),
        ("gpt-oss-20b", "b200", {"engine": "tensorrt-llm"}, "fp8", None),
        ("gpt-oss-20b", "a100-sxm4-80gb", {"engine": "llama.cpp"}, "int8", None),
    ],
)
def test_formats_whose_products_run_in_a_wider_type_are_said(model, hardware, options, runs, said):
    deployment = deploy(model, hardware, **options)
    assert main_dtype(deployment) == runs
    messages = [message for code, message in deployment.warnings if code == "weight_only"]
    assert len(messages) == (said is not None)
    if said:
        assert said in messages[0]
        assert f"unpacked to {runs}" in messages[0]
