"""Each engine's own memory law, one file an engine, one interface: ``capacity(question) -> Capacity`` and ``sequences(...)``."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from calc.errors import UnknownNameError, did_you_mean
from calc.memory.budget import Capacity, MemoryQuestion

#: Engines with a law of their own → module.
_MODULES = {
    "ideal": "ideal",
    "vllm": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp",
    "tensorrt-llm": "tensorrt_llm",
}
#: Engines of which only speeds are published.
WITHOUT_LAW = ("gpt-fast", "mlx", "exllamav2", "transformers")
#: Other names that people and logs use.
_ALIASES = {
    "mlx-lm": "mlx",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "llama_cpp": "llama.cpp",
    "trt-llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
}


class EngineLaw(Protocol):
    """What the module of an engine offers."""

    @property
    def NAME(self) -> str:
        """The engine as ``--engine`` takes it."""
        ...

    @property
    def NEWEST_VERSION(self) -> str:
        """The newest version that is known."""
        ...

    def capacity(self, question: MemoryQuestion) -> Capacity:
        """The budget and what fits in it."""
        ...

    def sequences(self, question: MemoryQuestion, capacity: Capacity, context: int) -> int:
        """How many sequences of ``context`` tokens fit at once."""
        ...


def engine(name: str) -> EngineLaw:
    """The law of an engine by name; that of the ideal engine, with a warning, where none is published."""
    key = _ALIASES.get(name.lower(), name.lower())
    if key in WITHOUT_LAW:
        laws: dict[str, EngineLaw] = import_module("calc.memory.engines.without_law").LAWS
        return laws[key]
    if key not in _MODULES:
        known = all_engines()
        raise UnknownNameError(f"unknown engine {name!r}", did_you_mean(name, known) or "engines: " + ", ".join(known))
    return import_module(f"calc.memory.engines.{_MODULES[key]}")


def all_engines() -> list[str]:
    """Every engine that can be named: those whose memory law is known, then those of which only speeds are."""
    return [*_MODULES, *WITHOUT_LAW]
