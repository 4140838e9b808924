"""``roofcast env``: what this installation sees."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt


@opt.takes(opt.PROFILES_DIR, opt.OUTPUT)
def env(**options: Any) -> None:
    """Version, Python, libraries, local device with its driver, profile folders in use."""
    from calc.commands import local_device, output
    from calc.report import environment, records, table

    found = local_device.find(options.get("profiles_dir"))
    facts = environment.facts(options.get("profiles_dir"), found.record)
    output.emit(
        options,
        document=lambda: records.envelope("env", {}, [found.profile] if found.profile else [], facts, ()),
        page=lambda: environment.page(facts),
        rows=lambda: [table.flatten(facts)],
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(env)
