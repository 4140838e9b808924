"""``roofcast fit``: an efficiency profile of this device from run files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt

if TYPE_CHECKING:
    from calc.profiles.catalog import Loaded
    from calc.profiles.hardware import HardwareProfile

_OPTIONS = (
    opt.text("hardware", "--hardware", help="Datasheet to take shares of. Default: the one the runs name.", metavar="NAME"),
    opt.text("profile", "--output", "-o", help="Write the efficiency profile (YAML) here.", metavar="FILE"),
)
_OUTPUT = tuple(p for p in opt.OUTPUT if p.name != "output")


@opt.takes(_OPTIONS, opt.PROFILES_DIR, _OUTPUT)
def fit(runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run files that measure wrote.")], **options: Any) -> None:
    """Fit reached efficiencies to run files; use the profile with --efficiency FILE."""
    from pathlib import Path

    import msgspec

    import calc
    from calc.commands import output
    from calc.measure import run_reader, session
    from calc.measure.fitting.fitted_profile import fit_runs
    from calc.profiles.writer import efficiency_yaml
    from calc.report import fit as report
    from calc.report import records

    loaded = [run_reader.load(Path(name).expanduser()) for name in runs]
    hardware = calc.load_hardware(options["hardware"], options.get("profiles_dir")) if options.get("hardware") else None
    sheet = session.datasheet_record(hardware.profile) if hardware else None
    target = options.get("profile")
    identifier = Path(target).stem.lower() if target and target != "-" else None  # files are named after the ids in them
    profile = fit_runs([run for run, _ in loaded], [content_hash for _, content_hash in loaded], sheet, identifier)
    if target is not None:
        output.write(efficiency_yaml(profile), options["profile"])
    facts = msgspec.to_builtins(profile)
    told = (*_other_device(hardware, loaded[0][0]), *report.warnings(facts))
    inputs = {"runs": len(runs), "hardware": hardware.name if hardware else None, "output": options.get("profile")}
    output.emit(
        options,
        document=lambda: records.envelope("fit", inputs, [hardware] if hardware else [], facts, told),
        page=lambda: report.page(facts, options.get("profile"), told),
        rows=lambda: report.rows(facts),
    )


def _other_device(hardware: Loaded[HardwareProfile] | None, run: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """What to tell of a datasheet that does not carry the name of the device that was measured."""
    device = run["environment"].get("device", {}).get("name")
    if hardware is None or not device:
        return ()
    sheet = hardware.profile
    if device.lower() in {name.lower() for name in (sheet.id, sheet.name, *sheet.aliases)}:
        return ()
    said = (
        f"the runs were measured on {device}, a name that {sheet.id} does not carry: shares of another device's rates mean nothing"
    )
    return (("W_OTHER_DEVICE", said),)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fit)
