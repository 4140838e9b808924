"""Remedies weigh a format by the bytes that capacity counts, not by the bits of its name."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import calc
from calc.memory.options import MemoryOptions
from calc.operators.parameters import Held, held_bytes, model_weights
from calc.serving import remedies
from calc.serving.deployment import DeploymentOptions, resolve
from tests.support.profiles import BF16, attention, decoder, device, loaded

MODEL = decoder(hidden=2048, layers=8, mixers=attention(16, 4, 128), width=8192, vocab=32000)


def stored_at(bytes_per_element: float) -> object:
    """The model as a checkpoint whose files hold so many bytes an element, whatever their format is called."""
    sizes: dict[str, int] = {}
    for held in model_weights(MODEL):
        assert isinstance(held, Held)
        sizes[held.weight.role] = sizes.get(held.weight.role, 0) + held_bytes([held], BF16)
    counted = {role: int(size / 2 * bytes_per_element) for role, size in sizes.items()}
    return msgspec.structs.replace(MODEL, storage=msgspec.structs.replace(MODEL.storage, role_bytes=counted, scheme="mixed"))


def found(model: object, memory_gb: float) -> remedies.Remedies:
    machine = loaded(
        device(memory_capacity_gb=memory_gb, memory_reported_mib=memory_gb * 1024, peaks={"fp16": 1.0, "bf16": 1.0, "fp8": 2.0})
    )
    return remedies.find(loaded(model), machine, DeploymentOptions(engine="ideal"), 2, 4096)


def test_a_file_that_is_smaller_than_a_format_is_not_told_to_use_it():
    model = stored_at(0.6)
    small = resolve(loaded(model), loaded(device()), DeploymentOptions(engine="ideal"))
    held = small.engine.capacity(small.question()).weights_bytes_per_gpu
    assert held < 0.7 / 2 * held_bytes(list(model_weights(MODEL)), BF16)
    assert found(model, 0.3).quantization != "fp8"  # would take more than the file does
    assert found(MODEL, 1.0).quantization == "fp8"


def test_what_memory_does_not_limit_is_no_number():
    mamba = calc.load_model("mamba-2.8b")
    found = remedies.find(mamba, calc.load_hardware("h100-sxm5-80gb"), DeploymentOptions(), 4, 4096)
    assert found.context is None  # a state does not grow with the context
    assert found.requests is not None
    on_host = DeploymentOptions(engine="llama.cpp", memory=MemoryOptions(gpu_layers=0))  # and so is every cache
    apart = remedies.find(calc.load_model("llama-3.1-8b"), calc.load_hardware("l40s"), on_host, 4, 4096)
    assert apart.requests is None


@pytest.mark.parametrize("data", [1, 2, 4])
def test_gpus_of_a_remedy_are_those_it_was_tried_on(data):
    model, machine = calc.load_model("deepseek-v3"), calc.load_hardware("h200-sxm-141gb")
    options = DeploymentOptions(tensor_parallel_size=1, data_parallel_size=data, enable_expert_parallel=data > 1)
    split = remedies.find(model, machine, options, 4, 32768).gpus
    assert split is not None
    assert split.data == data
    tried = DeploymentOptions(
        tensor_parallel_size=split.tensor,
        pipeline_parallel_size=split.pipeline,
        data_parallel_size=data,
        enable_expert_parallel=data > 1,
    )
    one = resolve(model, machine, tried)
    assert split.gpus == one.sharding.gpus
    assert remedies.room(one, 32768, 4) >= 4


def test_devices_of_an_engine_that_deals_out_layers_are_stages():
    model, hardware = calc.load_model("llama-3.1-70b"), calc.load_hardware("rtx-3090")
    base = DeploymentOptions(engine="llama.cpp", quantization="q4_k_m")
    found = remedies.find(model, hardware, base, 4, 8192).gpus
    assert (found.tensor, found.data) == (1, 1)
    enough, fewer = (
        resolve(model, hardware, replace(base, pipeline_parallel_size=n)) for n in (found.pipeline, found.pipeline // 2)
    )
    assert remedies.room(enough, 8192, 4) >= 4 > remedies.room(fewer, 8192, 4)
