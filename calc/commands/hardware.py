"""``roofcast hardware``: the library of accelerators."""

from __future__ import annotations

from typing import Any

import typer

from calc.commands import options as opt

_FILTERS = (
    opt.text("vendor", "--vendor", help="Only this vendor.", metavar="VENDOR"),
    opt.text("min_memory", "--min-memory", help="Only devices with at least this memory, e.g. 80GB.", metavar="SIZE"),
    opt.text("sort", "--sort", help="id, memory, bandwidth, compute, ridge or price.", metavar="KEY"),
)


@opt.takes(_FILTERS, opt.PROFILES_DIR, opt.OUTPUT)
def list_hardware(**options: Any) -> None:
    """All devices with memory, bandwidth, dense peaks and price."""
    from calc import units
    from calc.commands import output
    from calc.report import library, records

    least = options.get("min_memory")
    least_gb = None if least is None else units.parse_bytes(least, "--min-memory") / 1e9
    rows = library.hardware_rows(options.get("profiles_dir"), options.get("vendor"), least_gb, options.get("sort"))
    output.emit(
        options,
        document=lambda: records.envelope("hardware-list", {}, [], {"hardware": rows}, ()),
        page=lambda: library.hardware_page(rows),
        rows=lambda: rows,
    )


@opt.takes(opt.PROFILES_DIR, opt.OUTPUT)
def show(hardware: opt.HARDWARE, **options: Any) -> None:
    """One device: peaks, ridge points, memory, links, and what each figure rests on."""
    import calc
    from calc.commands import output
    from calc.report import hardware as report
    from calc.report import records, table

    loaded = calc.load_hardware(hardware, options.get("profiles_dir"))
    output.notices(options, loaded)
    record = report.record(loaded.profile)
    output.emit(
        options,
        document=lambda: records.envelope("hardware-show", {"hardware": loaded.name}, [loaded], record, ()),
        page=lambda: report.page(loaded.profile),
        rows=lambda: [table.flatten(record)],
    )


@opt.takes(opt.PROFILES_DIR, opt.OUTPUT)
def detect(**options: Any) -> None:
    """Name the local device and the profile that describes it. An unknown name is refused, never taken for another part."""
    import calc
    from calc.commands import output
    from calc.errors import UnknownNameError
    from calc.measure.detect import detect_local
    from calc.report import hardware as report
    from calc.report import records

    local = detect_local()
    try:
        loaded = calc.load_hardware(local.name, options.get("profiles_dir"))
        unknown = None
    except UnknownNameError as error:
        loaded, unknown = None, error
    record = {
        "kind": local.kind,
        "name": local.name,
        "count": local.count,
        "memory_bytes": local.memory_bytes,
        "told_by": local.source,
        "driver": local.driver,
        "torch": local.torch_version,
        "profile": loaded.name if loaded else None,
    }
    output.emit(
        options,
        document=lambda: records.envelope("hardware-detect", {}, [loaded] if loaded else [], record, ()),
        page=lambda: report.detected_page(record, unknown.hint if unknown else None),
        rows=lambda: [record],
    )
    if loaded is None:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the sub-application."""
    hardware = typer.Typer(help="The library of accelerators: list, show, detect.", no_args_is_help=True, rich_markup_mode=None)
    hardware.command("list")(list_hardware)
    hardware.command("show")(show)
    hardware.command("detect")(detect)
    app.add_typer(hardware, name="hardware")
