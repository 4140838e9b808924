"""``roofcast capacity``: does it fit, how many requests, and what would make more of them fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from calc.commands import options as opt
from calc.commands.engine_options import ENGINE

if TYPE_CHECKING:
    from calc.memory.budget import Capacity
    from calc.serving.deployment import DeploymentOptions

_GATES = (
    opt.text("concurrency", "--concurrency", help="Requests that must fit at once; answers what would do.", metavar="N"),
    opt.flag("require_fit", "--require-fit", help="Exit 1 when it does not fit."),
)
_LENGTHS = (
    opt.text("cached_len", "--cached-len", help="Prompt tokens that all requests share: stored once.", metavar="TOKENS"),
    opt.text("input_len", "--input-len", "-i", help="Prompt tokens, or percentiles: p50=1k,p95=8k.", metavar="TOKENS"),
    opt.text("output_len", "--output-len", help="Output tokens, or percentiles.", metavar="TOKENS"),
    opt.text("trace", "--trace", help="CSV of requests with columns input and output.", metavar="FILE"),
)


@opt.takes(_GATES, _LENGTHS, opt.DEPLOYMENT, ENGINE, opt.OUTPUT, opt.VERBOSE, opt.PICTURE, opt.EXPLAIN)
def capacity(model: opt.MODEL, hardware: opt.HARDWARE, **options: Any) -> None:
    """Weights, KV cache (ideal, reserved, read per step), tokens, blocks, concurrency and longest context, by the engine's law.

    With --concurrency also what would hold that many requests: utilisation, GPUs, KV format, quantisation.
    """
    import calc
    from calc.commands import output
    from calc.serving import remedies
    from calc.serving.deployment import resolve

    wanted = opt.count(options, "concurrency")
    asked = _asked(options)
    loaded, device = calc.load_model(model, options.get("profiles_dir")), calc.load_hardware(hardware, options.get("profiles_dir"))
    deployment = resolve(loaded, device, asked)
    output.settled(options, deployment)
    held = calc.capacity_deployment(deployment)
    found = None if wanted is None else remedies.find(loaded, device, asked, wanted, held.max_model_len)

    from calc.report import capacity as report
    from calc.report import explain, pictures, records, table

    lengths = _lengths(options, held)
    record = report.record(held, found, lengths)
    warnings = deployment.warnings + held.warnings
    output.emit(
        options,
        document=lambda: records.document("capacity", deployment, None, record, warnings),
        page=lambda: report.page(deployment, held, found, lengths),
        rows=lambda: [table.flatten(deployment.inputs | record)],
        picture=lambda: pictures.capacity(deployment, held, asked),
        explanation=lambda: explain.capacity(deployment, held),
    )
    if options.get("require_fit") and not (held.fits and record.get("concurrency_fits", True)):
        raise typer.Exit(1)


def _asked(options: dict[str, Any]) -> DeploymentOptions:
    """Deployment options; unequal devices say how many there are."""
    from calc import units

    asked = opt.deployment_options(options)
    cached = opt.count(options, "cached_len", minimum=0, maximum=units.MAX_TOKENS)
    asked = replace(asked, memory=replace(asked.memory, cached_tokens=cached or 0))
    return with_devices(asked)


def with_devices(asked: DeploymentOptions) -> DeploymentOptions:
    """One stage for each of the devices that were named."""
    from calc.errors import UsageError

    devices = asked.memory.devices
    if not devices:
        return asked
    stages = asked.pipeline_parallel_size or len(devices)
    if stages != len(devices):
        raise UsageError(f"{len(devices)} devices do not match {stages} pipeline stages", "name one device for each stage")
    return replace(asked, pipeline_parallel_size=stages)


def _lengths(options: dict[str, Any], held: Capacity) -> dict[str, Any] | None:
    """Concurrency of requests of mixed lengths; None when none are given."""
    if not any(options.get(name) for name in ("input_len", "output_len", "trace")):
        return None
    from calc.commands.lengths import traffic
    from calc.memory.capacity import mixed_concurrency
    from calc.serving.load.memory import room

    mixed = traffic(options.get("input_len"), options.get("output_len"), options.get("cached_len"), options.get("trace"))
    return {
        "mean_input_tokens": mixed.mean_input,
        "mean_output_tokens": mixed.mean_output,
        "longest_tokens": mixed.longest,
        "concurrency_mean": _finite(room(held, mixed, conservative=False)),
        "concurrency_peak": _finite(mixed_concurrency(held, mixed.at_full_length, mixed.prefix)),
    }


def _finite(requests: float) -> float | None:
    """None where memory does not limit them."""
    return requests if requests != float("inf") else None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(capacity)
