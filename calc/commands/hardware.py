"""``roofcast hardware``: the library of accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import profile_file

if TYPE_CHECKING:
    from pathlib import Path

    from calc.measure.device.detect import LocalDevice
    from calc.profiles.catalog import Loaded
    from calc.profiles.hardware import HardwareProfile

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
    least_gb = None if least is None else units.parse_bytes(least, "--min-memory") / units.GIGA
    rows = library.hardware_rows(options.get("profiles_dir"), options.get("vendor"), least_gb, options.get("sort"))
    output.emit(
        options,
        document=lambda: records.envelope("hardware-list", {}, [], {"hardware": rows}, ()),
        page=lambda: library.hardware_page(rows),
        rows=lambda: rows,
    )


@opt.takes(opt.PROFILES_DIR, opt.OUTPUT, opt.VERBOSE)
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


_MEASURE = (
    opt.flag("measure", "--measure", help="Measure its rates (half a minute) and write a profile; -o FILE.yaml names it."),
    opt.flag("force", "--force", help="Measure a device that has a profile, and overwrite an existing file."),
)


@opt.takes(_MEASURE, opt.PROFILES_DIR, opt.OUTPUT)
def detect(**options: Any) -> None:
    """Name the local device and the profile that describes it. An unknown name is refused, never taken for another part."""
    from calc.commands import local_device, output
    from calc.report import hardware as report
    from calc.report import records

    path = profile_file.named_path(options) if options.get("measure") else None
    found = local_device.find(options.get("profiles_dir"))
    if options.get("measure"):
        _measure(found.local, found.profile, path, options)
        return
    output.emit(
        options,
        document=lambda: records.envelope("hardware-detect", {}, [found.profile] if found.profile else [], found.record, ()),
        page=lambda: report.detected_page(found.record, found.hint),
        rows=lambda: [found.record],
    )
    if found.profile is None:
        raise typer.Exit(1)


def _measure(local: LocalDevice, loaded: Loaded[HardwareProfile] | None, path: Path | None, options: dict[str, Any]) -> None:
    """Write a profile of the local device from what it reaches; it never replaces one that is there unless told to."""
    from calc.commands import output
    from calc.commands.measure_progress import ended_by_signals, shown
    from calc.errors import UsageError
    from calc.measure.fitting.own_profile import measured_profile
    from calc.profiles import hardware as schema
    from calc.profiles import reader, writer
    from calc.report import hardware as report
    from calc.report import records, table

    if loaded is not None and not options.get("force"):
        hint = f"`roofcast measure MODEL {loaded.name}` holds it against the device; --force measures a profile all the same"
        raise UsageError(f"{loaded.name} describes this device already", hint)
    with ended_by_signals(), shown(options) as progress:
        profile = measured_profile(local, path.stem if path else None, progress)
    text = writer.hardware_yaml(profile)
    reader.convert(reader.parse_yaml(text.encode(), profile.id), schema.HardwareProfile, schema.faults)
    output.write(text, str(path) if path else None)
    if path is not None:
        output.emit(
            options | {"output": None},
            document=lambda: records.envelope(
                "hardware-detect", {"measure": True}, [], report.record(profile) | {"written": str(path)}, ()
            ),
            page=lambda: report.page(profile),
            rows=lambda: [table.flatten(report.record(profile))],
        )


@opt.takes(profile_file.OUTPUT, profile_file.FORCE)
def new(identifier: Annotated[str, typer.Argument(metavar="ID", help="Its id: lower case with hyphens.")], **options: Any) -> None:
    """Start a profile by hand: a commented file, each figure to fill in a null or TODO that `roofcast check` names."""
    from calc.profiles import template

    profile_file.new(identifier, template.hardware_text(identifier), options)


def register(app: typer.Typer) -> None:
    """Add the sub-application."""
    hardware = typer.Typer(
        help="The library of accelerators: list, show, detect, new.", no_args_is_help=True, rich_markup_mode=None
    )
    hardware.command("list")(list_hardware)
    hardware.command("show")(show)
    hardware.command("detect")(detect)
    hardware.command("new")(new)
    app.add_typer(hardware, name="hardware")
