"""The time of a whole step, made without those of its operators, is the time of the step."""

from __future__ import annotations

import numpy as np
import pytest

import calc
from calc.operators import work
from calc.serving.deployment import DeploymentOptions
from calc.serving.phase import evaluate, timed_step

CASES = [
    ("llama-3.1-70b", "h100-sxm5-80gb", {"tensor_parallel_size": 8}),
    ("deepseek-v3", "h200-sxm-141gb", {"tensor_parallel_size": 8, "enable_expert_parallel": True}),
    ("qwen3-next-80b-a3b-instruct", "mi300x", {}),
    ("llama-3.1-8b", "rtx-4090", {"engine": "llama.cpp", "quantization": "q4_k_m"}),
]
BATCH, LENGTH = np.arange(1.0, 40.0, 3.0)[:, None], np.array([1.0, 17.0, 900.0, 30_000.0])[None, :]
STEPS = {
    "prefill": work.prefill(BATCH, LENGTH, 0.0),
    "decode": work.decode(BATCH, LENGTH),
    "mixed": work.mixed(work.prefill(BATCH - 1, 512), work.decode(BATCH, 1000)),
    "one number": work.decode(7, 1234),
}


@pytest.mark.parametrize(("model", "device", "options"), CASES)
@pytest.mark.parametrize("step", sorted(STEPS))
@pytest.mark.parametrize("efficiency", [None, "default"])
def test_same_numbers(model, device, options, step, efficiency):
    from calc.profiles.catalog import bundled_folder

    path = None if efficiency is None else str(bundled_folder("hardware") / "efficiency" / "default.yaml")
    deployment = calc.deploy(model, device, DeploymentOptions(**options, efficiency=path))
    whole, alone = evaluate(deployment, STEPS[step]).timed, timed_step(deployment, STEPS[step])
    for part in ("floor", "low", "expected", "high"):
        np.testing.assert_allclose(getattr(alone.time_s, part), getattr(whole.time_s, part), rtol=1e-14)
    assert alone.time_s.evidence == whole.time_s.evidence
    for resource, seconds in whole.share_s.items():
        found, wanted = np.broadcast_arrays(alone.share_s[resource], seconds)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-18)
