"""``roofcast reconcile``: a start-up log against the prediction, term by term."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands.engine_options import ENGINE

if TYPE_CHECKING:
    from calc.memory.engines.logs import StartUpLog
    from calc.serving.deployment import Deployment, DeploymentOptions

_OUTPUT = (
    *(p for p in opt.OUTPUT if p.name != "output"),
    opt.text(
        "overrides",
        "--output",
        "-o",
        help="Write a scenario file with the printed terms in place of the predicted.",
        metavar="FILE",
    ),
)
#: Of a log only the start is read (calc.memory.engines.logs); a file beyond this is none.
MAX_LOG_BYTES = 1 << 40
#: Options that are flags: their text becomes a truth value.
_FLAGS = ("enforce_eager", "no_prefix_caching", "enable_prefix_caching", "enable_expert_parallel", "swa_full")


@opt.takes(opt.DEPLOYMENT, ENGINE, _OUTPUT, opt.VERBOSE)
def reconcile(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="Start-up log of vLLM, SGLang, llama.cpp or TensorRT-LLM; - for standard input.")
    ],
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Default: as the log names it.")] = None,
    hardware: Annotated[str | None, typer.Argument(metavar="[HARDWARE]", help="Default: as the log names it.")] = None,
    **options: Any,
) -> None:
    """Reads an engine's start-up log, compares it with the prediction, names the term that is off.

    What the command line does not say is taken from the log.
    """
    from calc.commands import output
    from calc.serving import reconcile as serving

    found = _read(log)
    deployment = _deployment(found, model, hardware, options)
    output.settled(options, deployment)
    result = serving.reconcile(deployment, found)
    written = serving.overrides(found)
    if options.get("overrides") is not None:
        output.write(_scenario(deployment, found, written), options["overrides"])

    from calc.report import reconcile as report
    from calc.report import records

    inputs = records.inputs(deployment, None) | {"log": log, "from_log": found.settings}
    profiles = [deployment.model, deployment.hardware]
    output.emit(
        {name: value for name, value in options.items() if name != "overrides"},
        document=lambda: records.envelope(
            "reconcile", inputs, profiles, report.record(found, result, written), deployment.warnings
        ),
        page=lambda: report.page(deployment, found, result),
        rows=lambda: report.rows(result),
    )


def _read(name: str) -> StartUpLog:
    import sys
    from pathlib import Path

    from calc.memory.engines.logs import read_log
    from calc.profiles import reader

    if name == "-":
        return read_log(sys.stdin.buffer, "standard input")
    with reader.open_file(Path(name).expanduser(), MAX_LOG_BYTES, "name a log, or - for standard input", pipes=True) as stream:
        return read_log(stream, name)


def _deployment(found: StartUpLog, model: str | None, hardware: str | None, options: dict[str, Any]) -> Deployment:
    """The deployment of the command line, completed from the log."""
    import calc
    from calc.serving.deployment import resolve
    from calc.serving.logged import checkpoint_format, device_of

    given = {name: value for name, value in options.items() if value not in (None, False)}
    logged = {k: v for k, v in found.settings.items() if k not in ("model", "hardware")}
    merged = logged | given
    for name in _FLAGS:
        merged[name] = str(merged.get(name, False)).lower() == "true"
    merged["engine"] = given.get("engine", found.engine)
    _from_figures(found, merged)
    profiles_dir = options.get("profiles_dir")
    loaded = calc.load_model(_named(model, found.settings.get("model"), "MODEL"), profiles_dir)
    device = device_of(found, hardware or found.settings.get("hardware"), lambda name: calc.load_hardware(name, profiles_dir))
    if "quantization" not in given:
        form, said = _format(logged.get("quantization"))
        merged["quantization"] = checkpoint_format(loaded.profile, form)
        loaded = replace(loaded, notices=loaded.notices + said)
    asked = _with_gpus(opt.deployment_options(merged))
    if device.path is None and found.value("gpu_memory") is None:  # stands for what was free: the runtime is taken already
        asked = replace(asked, memory=replace(asked.memory, runtime_bytes=asked.memory.runtime_bytes or 0))
    return resolve(loaded, device, asked)


def _from_figures(found: StartUpLog, merged: dict[str, Any]) -> None:
    """Settings that engines print among their figures."""
    share = found.value("utilization")
    if share is not None:
        merged.setdefault("gpu_memory_utilization", f"{share.value:g}")


def _format(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """A weight format that the log names, and what to say where it is none that the library knows."""
    from calc.numerics import weight_format_names

    if text is None or text.lower() in weight_format_names():
        return text and text.lower(), ()
    return None, (f"the log's weight format {text} is not known: weights as of the checkpoint",)


def _with_gpus(asked: DeploymentOptions) -> DeploymentOptions:
    """A log names the GPUs that a process sees, of which it may use fewer."""
    split = (asked.tensor_parallel_size, asked.pipeline_parallel_size)
    return replace(asked, gpus=None) if any(split) else asked


def _named(given: str | None, logged: str | None, what: str) -> str:
    from calc.errors import UsageError

    name = given or logged
    if not name:
        raise UsageError(f"the log does not name the {what.lower()}", f"say it: roofcast reconcile LOG {what} HARDWARE")
    return name


def _scenario(deployment: Deployment, found: StartUpLog, written: dict[str, Any]) -> str:
    """A scenario file that ``roofcast run`` judges: the deployment with the printed terms, held to the printed tokens."""
    import json

    from calc.errors import UsageError
    from calc.profiles.scenario import DeploymentSpec

    if deployment.hardware.path is None:
        raise UsageError("a scenario needs a device of the library", "name it: roofcast reconcile LOG MODEL HARDWARE -o FILE")
    known = set(DeploymentSpec.__struct_fields__)
    settings = {
        k: v for k, v in found.settings.items() if k in known and k not in ("enable_prefix_caching", "enable_expert_parallel")
    }
    inputs = {k: v for k, v in deployment.inputs.items() if k in known and k.endswith("_size") and v != 1}
    chosen = settings | inputs | {"engine": deployment.engine.NAME} | written
    if "engine_generation" in found.settings and found.settings["engine_generation"] == "v0" and "engine_version" in chosen:
        chosen["engine_version"] = f"{chosen['engine_version']}-v0"
    chosen.pop("quantization", None)
    lines = ["scenarios:", "  - name: from-log", f"    model: {deployment.model.name}", f"    hardware: {deployment.hardware.name}"]
    lines += ["    deployment:", *(f"      {key}: {json.dumps(value)}" for key, value in chosen.items())]
    tokens = found.value("kv_tokens")
    wanted = f"capacity.kv_tokens: {{equals: {tokens.value:.0f}, within: 0.5%}}" if tokens else "capacity.fits: true"
    return "\n".join([*lines, "    expect:", f"      {wanted}"]) + "\n"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reconcile)
