"""Builds what is generated: ``python -m docs.build`` writes the reference and refreshes the outputs shown in examples;
``python -m docs.build --check`` writes nothing and exits 1 when the reference is stale (the examples have a test of their own)."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from calc.profiles.json_schema import KINDS, json_schema
from calc.report.result_schema import result_schema
from docs import api_reference, cli_reference, examples, json_reference

REFERENCE = examples.ROOT / "docs" / "reference"


def generated() -> dict[Path, str]:
    """Content of every generated file of the reference."""
    files = {
        REFERENCE / "cli.md": cli_reference.page(),
        REFERENCE / "json-output.md": json_reference.page(),
        REFERENCE / "python-api.md": api_reference.page(),
    }
    schemas: dict[str, dict[str, Any]] = {kind: json_schema(kind) for kind in KINDS} | {"result": result_schema()}
    for kind, schema in schemas.items():
        files[REFERENCE / "schema" / f"{kind}.schema.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return files


def stale() -> list[Path]:
    """Generated files that differ from what would be written."""
    return [path for path, text in generated().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare."""
    if "--check" in arguments:
        found = stale()
        for path in found:
            print(f"stale: {path.relative_to(examples.ROOT)} (python -m docs.build)")
        return 1 if found else 0
    for path, text in generated().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(examples.ROOT)}")
    left = []
    for page in examples.pages():
        with tempfile.TemporaryDirectory() as folder:
            left += examples.refresh(page, Path(folder))
    for line in left:
        print(f"by hand: {line}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
