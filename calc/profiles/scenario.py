"""The schema of a scenario file: deployments with workloads and what is expected of them, for checks in CI."""

from __future__ import annotations

from typing import Annotated

import msgspec

from calc.profiles.schema import Strict, Text

Amount = int | float | str  # numbers, or text with a unit: 32k, 40ms, 80GiB, 90%


class DeploymentSpec(Strict, frozen=True, kw_only=True):
    """Options of a deployment, named as on the command line with underscores."""

    gpus: Amount | None = None
    tensor_parallel_size: Amount | None = None
    pipeline_parallel_size: Amount | None = None
    data_parallel_size: Amount | None = None
    decode_context_parallel_size: Amount | None = None
    enable_expert_parallel: bool = False
    dtype: Text | None = None
    quantization: Text | None = None
    kv_cache_dtype: Text | None = None
    cache_type_k: Text | None = None
    cache_type_v: Text | None = None
    engine: Text | None = None
    engine_version: Amount | None = None
    gpu_memory_utilization: Amount | None = None
    gpu_memory: Amount | None = None
    kv_cache_memory: Amount | None = None
    weights_memory: Amount | None = None
    activation_memory: Amount | None = None
    max_model_len: Amount | None = None
    max_num_seqs: Amount | None = None
    max_num_batched_tokens: Amount | None = None
    block_size: Amount | None = None
    enable_prefix_caching: bool = False
    gpu_layers: Amount | None = None
    n_gpu_layers: Amount | None = None  # the same, by its longer name
    cpu_offload_gb: Amount | None = None
    host_memory_bandwidth: Amount | None = None
    speculative_tokens: Amount | None = None
    acceptance: Amount | None = None
    draft_model: Text | None = None
    fusion: Text | None = None
    efficiency: Text | None = None
    overlap: Amount | None = None


class WorkloadSpec(Strict, frozen=True, kw_only=True):
    """The work of the scenario."""

    batch_size: Amount | None = None
    input_len: Amount | None = None
    output_len: Amount | None = None
    context_len: Amount | None = None
    cached_len: Amount | None = None
    concurrency: Amount | None = None
    request_rate: Amount | None = None


class Bounds(Strict, frozen=True, kw_only=True):
    """Limits of one result; ``equals`` with ``within`` (a share) is a tolerance."""

    at_least: Amount | None = None
    at_most: Amount | None = None
    equals: Amount | bool | None = None
    within: Amount | None = None


class Scenario(Strict, frozen=True, kw_only=True):
    """One deployment and what is expected of it. Keys of ``expect`` name results of estimate or capacity."""

    name: Text
    model: Text
    hardware: Text
    deployment: DeploymentSpec = DeploymentSpec()
    workload: WorkloadSpec = WorkloadSpec()
    expect: Annotated[dict[str, Bounds | bool | int | float | str], msgspec.Meta(min_length=1)]


class ScenarioFile(Strict, frozen=True, kw_only=True):
    """A file of scenarios."""

    scenarios: Annotated[list[Scenario], msgspec.Meta(min_length=1, max_length=10_000)]


def faults(content: ScenarioFile) -> list[tuple[tuple[str | int, ...], str]]:
    """Names must be unique, bounds must say something."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    names: dict[str, int] = {}
    for i, scenario in enumerate(content.scenarios):
        if scenario.name in names:
            found.append((("scenarios", i, "name"), f"scenario {scenario.name!r} stands twice"))
        names.setdefault(scenario.name, i)
        if None not in (scenario.deployment.gpu_layers, scenario.deployment.n_gpu_layers):
            found.append(
                (("scenarios", i, "deployment", "n_gpu_layers"), "n_gpu_layers is the same as gpu_layers, which is given too")
            )
        for key, bound in scenario.expect.items():
            if isinstance(bound, Bounds) and bound.at_least is None and bound.at_most is None and bound.equals is None:
                found.append((("scenarios", i, "expect", key), "says nothing: give at_least, at_most or equals"))
    return found
