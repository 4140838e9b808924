"""``roofcast models``: the library of models."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calc.commands import options as opt
from calc.commands import profile_file

_CONTEXT = opt.text(
    "context_len", "--context-len", help="Show the cache at this context. Default: the model's maximum.", metavar="TOKENS"
)
_FORMATS = tuple(p for p in opt.DEPLOYMENT if p.name in ("quantization", "kv_cache_dtype"))
_FAMILY = opt.text("family", "--family", help="Only models of this model_type.", metavar="TYPE")


@opt.takes(_FAMILY, opt.PROFILES_DIR, opt.OUTPUT)
def list_models(**options: Any) -> None:
    """All models with parameters, layers and cache per token."""
    from calc.commands import output
    from calc.report import library, records

    rows = library.model_rows(options.get("profiles_dir"), options.get("family"))
    output.emit(
        options,
        document=lambda: records.envelope("models-list", {}, [], {"models": rows}, ()),
        page=lambda: library.models_page(rows),
        rows=lambda: rows,
    )


@opt.takes(_CONTEXT, _FORMATS, opt.PROFILES_DIR, opt.OUTPUT, opt.VERBOSE)
def show(model: opt.MODEL, **options: Any) -> None:
    """One model: layers by kind, parameters by part, weight bytes, and the three KV numbers."""
    import calc
    from calc import units
    from calc.commands import output
    from calc.memory.model_facts import describe
    from calc.report import model as report
    from calc.report import records, table

    loaded = calc.load_model(model, options.get("profiles_dir"))
    output.notices(options, loaded)
    context = options.get("context_len")
    length = None if context is None else units.parse_count(context, "--context-len", maximum=units.MAX_TOKENS)
    facts = describe(loaded.profile, options.get("quantization"), options.get("kv_cache_dtype") or "bf16", length)
    output.emit(
        options,
        document=lambda: records.envelope("models-show", {"model": loaded.name}, [loaded], report.record(facts), facts.warnings),
        page=lambda: report.page(facts),
        rows=lambda: [table.flatten(report.record(facts))],
    )


@opt.takes(profile_file.OUTPUT, profile_file.FORCE)
def import_model(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="config.json or its folder, a .gguf file, or hf:org/name[@revision].")
    ],
    **options: Any,
) -> None:
    """Make a profile from a model's own files; it loads to the same numbers."""
    import sys

    from calc.commands import output
    from calc.profiles import sources, writer

    target = profile_file.path(options)
    profile, warnings = sources.import_source(source)
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)
    output.write(writer.model_yaml(profile), None if target is None else str(target))


@opt.takes(profile_file.OUTPUT, profile_file.FORCE)
def new(identifier: Annotated[str, typer.Argument(metavar="ID", help="Its id: lower case with hyphens.")], **options: Any) -> None:
    """Start a profile by hand: a commented file, each figure to fill in a null or TODO that `roofcast check` names."""
    from calc.profiles import template

    profile_file.new(identifier, template.model_text(identifier), options)


@opt.takes(opt.PROFILES_DIR, opt.OUTPUT, opt.VERBOSE)
def diff(
    one: Annotated[str, typer.Argument(metavar="A", help="A model.")],
    two: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    **options: Any,
) -> None:
    """What differs between two models: shapes, parameters, cache."""
    import calc
    from calc.commands import output
    from calc.report import model_diff as report
    from calc.report import records

    first, second = (calc.load_model(m, options.get("profiles_dir")) for m in (one, two))
    output.notices(options, first, second)
    differences = report.differences(first.profile, second.profile)
    output.emit(
        options,
        document=lambda: records.envelope(
            "models-diff", {"one": first.name, "two": second.name}, [first, second], {"differences": differences}, ()
        ),
        page=lambda: report.page(first.profile.name, second.profile.name, differences),
        rows=lambda: differences,
    )


def register(app: typer.Typer) -> None:
    """Add the sub-application."""
    models = typer.Typer(help="The library of models: list, show, import, diff, new.", no_args_is_help=True, rich_markup_mode=None)
    models.command("list")(list_models)
    models.command("show")(show)
    models.command("import")(import_model)
    models.command("diff")(diff)
    models.command("new")(new)
    app.add_typer(models, name="models")
