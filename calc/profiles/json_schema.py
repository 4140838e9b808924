"""JSON Schemas of profile files, made from the structs that read them."""

from __future__ import annotations

from typing import Any

KINDS = ("model", "hardware", "efficiency", "scenario")


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of profile."""
    import msgspec

    from calc.profiles.efficiency import EfficiencyProfile
    from calc.profiles.hardware import HardwareProfile
    from calc.profiles.model import ModelProfile
    from calc.profiles.scenario import ScenarioFile

    structs: dict[str, type[Any]] = {
        "model": ModelProfile,
        "hardware": HardwareProfile,
        "efficiency": EfficiencyProfile,
        "scenario": ScenarioFile,
    }
    struct = structs[kind]
    schema = msgspec.json.schema(struct)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"roofcast {kind} file", **schema}
