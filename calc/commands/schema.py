"""``roofcast schema``: JSON Schemas of the files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calc.commands import options as opt

_OUTPUT = tuple(p for p in opt.OUTPUT if p.name == "output")


@opt.takes(_OUTPUT)
def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="model, hardware, efficiency, scenario or result.")], **options: Any
) -> None:
    """JSON Schema of a kind of file, for editors and validators."""
    from calc.commands import output
    from calc.errors import UnknownNameError, did_you_mean
    from calc.profiles.json_schema import KINDS, json_schema
    from calc.report import records
    from calc.report.result_schema import result_schema

    known = (*KINDS, "result")
    if kind not in known:
        raise UnknownNameError(f"no schema of kind {kind!r}", did_you_mean(kind, known) or "known: " + ", ".join(known))
    output.write(records.dumps(result_schema() if kind == "result" else json_schema(kind)), options.get("output"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
