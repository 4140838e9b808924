"""``roofcast measure``: times the operators of the prediction on the local device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt

if TYPE_CHECKING:
    from calc.profiles.catalog import Loaded
    from calc.profiles.model import ModelProfile

_OPTIONS = (
    opt.text("suite", "--suite", help="quick (60 s), standard (5 min) or full (30 min). Default: quick.", metavar="SUITE"),
    opt.text("budget", "--budget", help="Time for everything, e.g. 30 or 2min; cuts rounds, not coverage.", metavar="TIME"),
    opt.text("only", "--only", help="Cases to measure, e.g. 'gemm:*,attention:decode'.", metavar="PATTERNS"),
    opt.flag("list_", "--list", help="List the cases and stop; works without torch."),
    opt.text("dtype", "--dtype", help="auto, bf16, fp16 or fp32. Default: auto.", metavar="TYPE"),
    opt.text(
        "quantization",
        "--quantization",
        "-q",
        help="Weights: none, fp8, fp8-channel, fp8-block or int8. Default: as stored where an accelerator multiplies in it.",
        metavar="FORMAT",
    ),
    opt.text("device", "--device", help="cpu, cuda, mps or xpu. Default: cuda where present.", metavar="DEVICE"),
    opt.text("tensor_parallel_size", "--tensor-parallel-size", "-tp", help="Measure the shapes of one rank of N.", metavar="N"),
    opt.text("batch_size", "--batch-size", "-b", help="Requests at once. Default: 1.", metavar="N"),
    opt.text("input_len", "--input-len", "-i", help="Prompt tokens of the prefill. Default: 512.", metavar="TOKENS"),
    opt.text("context_len", "--context-len", help="Keys the decode step sees. Default: 1024.", metavar="TOKENS"),
    opt.text("seed", "--seed", help="Seed of data and order. Default: 0.", metavar="N"),
    opt.text("output", "--output", "-o", help="Write the run file (JSON) here.", metavar="FILE"),
    opt.text("profiles_dir", "--profiles-dir", help="Folder with profiles of your own.", metavar="DIR"),
)
_OUTPUT = tuple(p for p in opt.OUTPUT if p.name != "output")
#: The model of most published speeds: what a machine does with it can be compared.
_DEFAULT_MODEL = "llama-3.1-8b"
_HARDWARE = Annotated[
    str | None,
    typer.Argument(metavar="[HARDWARE]", help="Datasheet profile to show beside the measured ceilings.", show_default=False),
]


@opt.takes(_OPTIONS, _OUTPUT, opt.VERBOSE)
def measure(model: opt.MODEL = _DEFAULT_MODEL, hardware: _HARDWARE = None, **options: Any) -> None:
    """Time the operators of prefill and decode on this machine and show measured beside predicted."""
    from dataclasses import asdict
    from pathlib import Path

    import calc
    from calc import files
    from calc.commands import output
    from calc.commands.measure_progress import ended_by_signals, shown
    from calc.measure import session
    from calc.report import measurement as report
    from calc.report import records

    loaded = [calc.load_model(model, options.get("profiles_dir"))]
    datasheet = calc.load_hardware(hardware, options.get("profiles_dir")) if hardware else None
    output.notices(options, *loaded, *([datasheet] if datasheet else []))
    sizes = _sizes(options)
    patterns, budget_s = _patterns(options), _budget(options)
    if options.get("list_"):
        _list(options, loaded[0], sizes, patterns)
        return
    target = options.get("output")
    if target is not None:
        files.check_writable(target)
    with ended_by_signals(), shown(options) as progress:
        result = session.measure(
            loaded[0].profile,
            hardware=datasheet.profile if datasheet else None,
            suite=options.get("suite") or "quick",
            budget_s=budget_s,
            dtype=options.get("dtype") or "auto",
            quantization=options.get("quantization"),
            device=options.get("device"),
            seed=_seed(options),
            only=patterns,
            output=Path(target).expanduser() if target else None,
            progress=progress,
            batch_size=sizes["batch_size"],
            input_len=sizes["input_len"],
            context_len=sizes["context_len"],
            tensor_parallel_size=sizes["tensor_parallel_size"],
        )
    facts = asdict(result)
    warnings = tuple((w.code, w.message) for w in result.warnings)
    inputs = {"model": loaded[0].name, "hardware": datasheet.name if datasheet else None, **result.settings}
    output.emit(
        options | {"output": None},
        document=lambda: records.envelope(
            "measure", inputs, [*loaded, *([datasheet] if datasheet else [])], report.record(facts), warnings
        ),
        page=lambda: report.page(loaded[0].profile.name, facts),
        rows=lambda: report.rows(facts),
    )
    if target and not result.output and not result.interrupted:
        raise typer.Exit(1)  # a warning says why; what reads the file next must not take an older one for this run
    if result.interrupted:
        lost = "the run file could not be written" if target else "nothing was saved (no -o)"
        print(f"interrupted: {'saved ' + result.output if result.output else lost}", file=sys.stderr)
        sys.exit(130)  # said already what was saved


def _list(options: dict[str, Any], loaded: Loaded[ModelProfile], sizes: dict[str, Any], patterns: list[str] | None) -> None:
    """Show what would be measured; works without torch."""
    from calc.commands import output
    from calc.measure import session
    from calc.measure.cases import grid
    from calc.measure.device import device
    from calc.report import measurement as report
    from calc.report import records

    kind = device.named(options.get("device") or "cpu")[0]
    suite = grid.for_suite(session.suite_named(options.get("suite") or "quick"), kind)
    quantization = options.get("quantization")
    work = session.list_cases(
        loaded.profile,
        dtype=options.get("dtype") or "auto",
        only=patterns,
        grid=suite,
        quantization=quantization,
        kind=kind,
        **sizes,
    )
    cases = [
        {"id": c.id, "phase": c.phase, "class": c.op_class, "calls": c.calls, "flops": c.flops, "bytes": c.bytes}
        for c in work.cases
    ]
    output.emit(
        options,
        document=lambda: records.envelope(
            "measure-list", sizes, [loaded], {"cases": cases, "not_measured": list(work.not_measured)}, ()
        ),
        page=lambda: report.list_page(loaded.profile.name, cases, list(work.not_measured)),
        rows=lambda: cases,
    )


def _patterns(options: dict[str, Any]) -> list[str] | None:
    from calc.errors import UsageError

    only = options.get("only")
    found = None if only is None else [p.strip() for p in only.split(",") if p.strip()]
    if found == []:
        raise UsageError(f"--only {only!r} names no case", "like 'gemm:*,attention:decode'; --list shows all")
    return found


def _sizes(options: dict[str, Any]) -> dict[str, int]:
    from calc import units

    defaults = {"batch_size": 1, "input_len": 512, "context_len": 1024, "tensor_parallel_size": 1}
    sizes = {}
    for name, default in defaults.items():
        value = options.get(name)
        sizes[name] = default if value is None else units.parse_count(value, opt.written(name), maximum=1 << 24)
    return sizes


def _budget(options: dict[str, Any]) -> float | None:
    from calc import units

    value = options.get("budget")
    return None if value is None else units.parse_seconds(value, "--budget", minimum=1.0)


def _seed(options: dict[str, Any]) -> int:
    from calc import units

    value = options.get("seed")
    return 0 if value is None else units.parse_count(value, "--seed", minimum=0)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(measure)
