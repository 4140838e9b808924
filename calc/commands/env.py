"""``roofcast env``: what this installation sees."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt


@opt.takes(opt.PROFILES_DIR, opt.OUTPUT)
def env(**options: Any) -> None:
    """Version, Python, libraries, local device, profile folders in use."""
    from calc.commands import output
    from calc.report import environment, records

    facts = environment.facts(options.get("profiles_dir"))
    output.emit(
        options,
        document=lambda: records.envelope("env", {}, [], facts, ()),
        page=lambda: environment.page(facts),
        rows=lambda: [{k: str(v) for k, v in facts.items()}],
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(env)
