"""Each engine's own memory law, one file an engine, one interface: ``capacity(question) -> Capacity`` and ``sequences(...)``."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from calc.errors import UnknownNameError, did_you_mean
from calc.memory.budget import Capacity, MemoryQuestion

_MODULES = {
    "ideal": "ideal",
    "vllm": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp",
    "tensorrt-llm": "tensorrt_llm",
}
#: Other names that people and logs use.
_ALIASES = {
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "llama_cpp": "llama.cpp",
    "trt-llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
}


class EngineLaw(Protocol):
    """What the module of an engine offers."""

    NAME: str
    NEWEST_VERSION: str

    def capacity(self, question: MemoryQuestion) -> Capacity:
        """The budget and what fits in it."""
        ...

    def sequences(self, question: MemoryQuestion, capacity: Capacity, context: int) -> int:
        """How many sequences of ``context`` tokens fit at once."""
        ...


def engine(name: str) -> EngineLaw:
    """The law of an engine by name."""
    key = name.lower()
    module = _MODULES.get(_ALIASES.get(key, key))
    if module is None:
        raise UnknownNameError(
            f"unknown engine {name!r}", did_you_mean(name, _MODULES) or "engines with a memory law: " + ", ".join(_MODULES)
        )
    return import_module(f"calc.memory.engines.{module}")


def engine_names() -> list[str]:
    """Engines whose memory law is known."""
    return list(_MODULES)
