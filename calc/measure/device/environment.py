"""The record of what a run ran on. No host name, no user name, no path: nothing that tells who or where."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from calc.measure.device import command_monitor, nvml
from calc.measure.device.device import DeviceFacts
from calc.measure.device.host import read_host
from calc.version import VERSION

#: Variables that change speed and hold no names or paths.
VARIABLES = (
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME",
    "MKL_NUM_THREADS", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY", "THP_MEM_ALLOC_ENABLE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION", "PYTORCH_ENABLE_MPS_FALLBACK",
)  # fmt: skip


def record(
    torch: Any | None, facts: DeviceFacts, dtype: str, argv: list[str] | None = None, *, pinned: bool = False
) -> dict[str, Any]:
    """Everything that may explain a difference between two runs; null for what cannot be read."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": {"name": "roofcast", "version": VERSION, "git_commit": git_commit()},
        "command": [hide_path(a) for a in (sys.argv[1:] if argv is None else argv)],
        "host": _host(facts) | {"pinned": pinned},
        "device": _device(torch, facts),
        "torch": _torch(torch, dtype) if torch is not None else None,
        "python": platform.python_version(),
        "variables": {name: hide_path(os.environ[name]) for name in VARIABLES if name in os.environ},
    }


def hide_path(text: str) -> str:
    """Text without any part that looks like a path (it may hold a user's name)."""
    return "<path>" if "/" in text or "\\" in text or text.startswith("~") else text


def device_uuid(torch: Any, facts: DeviceFacts) -> str | None:
    """The CUDA device's uuid, None where torch does not tell."""
    if facts.kind != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(facts.index), "uuid", None)
    return None if uuid is None else str(uuid)


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from, None for an installed wheel."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "pyproject.toml").is_file():
        return None
    try:
        head = (root / ".git" / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head[5:]
        loose = root / ".git" / name
        if loose.is_file():
            return loose.read_text().strip()
        for line in (root / ".git" / "packed-refs").read_text().splitlines():
            if line.endswith(" " + name):
                return line.split()[0]
    except OSError:
        pass
    return None


def _host(facts: DeviceFacts) -> dict[str, Any]:
    host = read_host()
    return {
        "cpu": host.name,
        "logical_cpus": host.logical_cpus,
        "physical_cores": host.physical_cores,
        "quota_cpus": host.quota_cpus,
        "threads": facts.threads,
        "last_level_cache_bytes": host.cache_bytes,
        "memory_bytes": host.memory_bytes,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "niceness": os.nice(0) if hasattr(os, "nice") else None,
    }


def _device(torch: Any | None, facts: DeviceFacts) -> dict[str, Any]:
    uuid = device_uuid(torch, facts) if torch is not None else None
    managed = {}
    if facts.kind == "cuda" and not is_rocm(torch):
        managed = nvml.device_facts(uuid, facts.index) or command_monitor.device_facts(uuid, facts.index)
    return {
        "kind": facts.kind,
        "name": facts.name,
        "driver": None,
        "uuid_sha256": hashlib.sha256(uuid.encode()).hexdigest()[:16] if uuid else None,
        "memory_bytes": facts.memory_bytes,
        "free_memory_bytes": facts.free_bytes,
        "cache_bytes": facts.cache_bytes,
        "cache_reported": facts.cache_reported,
        **facts.details,
        **managed,
    }


def is_rocm(torch: Any | None) -> bool:
    """Whether this torch is built for AMD's ROCm, which calls its devices cuda too."""
    return torch is not None and torch.version.hip is not None


def _torch(torch: Any, dtype: str) -> dict[str, Any]:
    backends, matmul = torch.backends, torch.backends.cuda.matmul
    cudnn = backends.cudnn.version() if backends.cudnn.is_available() else None
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cublas": _cublas_version(),
        "cudnn": cudnn,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() and _has_nccl(torch) else None,
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "cpu_capability": backends.cpu.get_cpu_capability(),
        "mkldnn": bool(backends.mkldnn.is_available()),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),  # TF32 or not
        "allow_bf16_reduced_precision_reduction": bool(matmul.allow_bf16_reduced_precision_reduction),
        "allow_fp16_reduced_precision_reduction": bool(matmul.allow_fp16_reduced_precision_reduction),
    }


def _has_nccl(torch: Any) -> bool:
    return torch.distributed.is_available() and bool(torch.distributed.is_nccl_available())


def _cublas_version() -> str | None:
    """Of the wheel that torch brings; a torch built on the system's CUDA has none, and torch itself does not tell."""
    for name in ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12", "nvidia-cublas-cu11"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
