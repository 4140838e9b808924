"""``roofcast measure``: times the operators of the prediction on the local device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt

if TYPE_CHECKING:
    from calc.measure.progress import ProgressEvent

_OPTIONS = (
    opt.text("suite", "--suite", help="quick (60 s), standard (5 min) or full (30 min). Default: quick.", metavar="SUITE"),
    opt.text("budget", "--budget", help="Time for everything, e.g. 30 or 2min; cuts rounds, not coverage.", metavar="TIME"),
    opt.text("only", "--only", help="Cases to measure, e.g. 'gemm:*,attention:decode'.", metavar="PATTERNS"),
    opt.flag("list_", "--list", help="List the cases and stop; works without torch."),
    opt.text("dtype", "--dtype", help="auto, bf16, fp16 or fp32. Default: auto.", metavar="TYPE"),
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
_HARDWARE = Annotated[
    str | None,
    typer.Argument(metavar="[HARDWARE]", help="Datasheet profile to show beside the measured ceilings.", show_default=False),
]


@opt.takes(_OPTIONS, _OUTPUT)
def measure(model: opt.MODEL, hardware: _HARDWARE = None, **options: Any) -> None:
    """Time the operators of prefill and decode on this machine and show measured beside predicted."""
    from dataclasses import asdict
    from pathlib import Path

    import calc
    from calc.commands import output
    from calc.measure import grid, session
    from calc.report import measurement as report
    from calc.report import records

    loaded = [calc.load_model(model, options.get("profiles_dir"))]
    datasheet = calc.load_hardware(hardware, options.get("profiles_dir")) if hardware else None
    output.notices(options, *loaded, *([datasheet] if datasheet else []))
    sizes = _sizes(options)
    only = options.get("only")
    patterns = None if only is None else [p.strip() for p in only.split(",") if p.strip()]
    dtype = options.get("dtype") or "auto"
    if options.get("list_"):
        suite = grid.for_suite(options.get("suite") or "quick", options.get("device") or "cpu")
        work = session.list_cases(loaded[0].profile, dtype=dtype, only=patterns, grid=suite, **sizes)
        cases = [
            {"id": c.id, "phase": c.phase, "class": c.op_class, "calls": c.calls, "flops": c.flops, "bytes": c.bytes}
            for c in work.cases
        ]
        output.emit(
            options | {"output": None},
            document=lambda: records.envelope(
                "measure-list", sizes, loaded, {"cases": cases, "not_measured": list(work.not_measured)}, ()
            ),
            page=lambda: report.list_page(loaded[0].profile.name, cases, list(work.not_measured)),
            rows=lambda: cases,
        )
        return
    target = options.get("output")
    result = session.measure(
        loaded[0].profile,
        hardware=datasheet.profile if datasheet else None,
        suite=options.get("suite") or "quick",
        budget_s=_budget(options),
        dtype=dtype,
        device=options.get("device"),
        seed=_seed(options),
        only=patterns,
        output=Path(target).expanduser() if target else None,
        progress=_progress(options),
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
    if result.interrupted:
        print(f"interrupted: {'saved ' + result.output if result.output else 'nothing was saved (no -o)'}", file=sys.stderr)
        raise typer.Exit(130)


def _sizes(options: dict[str, Any]) -> dict[str, int]:
    from calc import units

    defaults = {"batch_size": 1, "input_len": 512, "context_len": 1024, "tensor_parallel_size": 1}
    sizes = {}
    for name, default in defaults.items():
        value = options.get(name)
        what = "--" + name.replace("_", "-")
        sizes[name] = default if value is None else units.parse_count(value, what, maximum=1 << 24)
    return sizes


def _budget(options: dict[str, Any]) -> float | None:
    from calc import units

    value = options.get("budget")
    return None if value is None else units.parse_seconds(value, "--budget", minimum=1.0)


def _seed(options: dict[str, Any]) -> int:
    from calc import units

    value = options.get("seed")
    return 0 if value is None else units.parse_count(value, "--seed", minimum=0)


def _progress(options: dict[str, Any]) -> Any:
    """Progress on standard error: one line that is rewritten on a terminal, the milestones as plain lines elsewhere."""
    if options.get("quiet"):
        return lambda event: None
    on_terminal = sys.stderr.isatty()

    def tell(event: ProgressEvent) -> None:
        passing = event.kind in ("case", "prepare", "round", "saved")
        if not passing:
            print(("\r\x1b[K" if on_terminal else "") + str(event), file=sys.stderr, flush=True)
        elif on_terminal:
            count = f"[{event.done}/{event.total}] " if event.done is not None else ""
            print(f"\r\x1b[K{count}{event}"[:120], end="", file=sys.stderr, flush=True)

    return tell


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(measure)
