"""``reference/python-api.md`` from the docstrings of the public API and of the records that it returns."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from typing import Any

from calc import errors
from calc.errors import RoofcastError

_INTRO = """\
# Python API

This page is generated from the docstrings. `import calc` loads neither numpy, torch nor rich; each function imports what it needs.
See [Use roofcast from Python](../how-to/use-in-python.md) for examples.
"""

#: Records that the functions take or return, in the order in which a reader meets them.
_RECORDS = (
    "calc.serving.request.Workload",
    "calc.serving.deployment.DeploymentOptions",
    "calc.memory.budget.MemoryOptions",
    "calc.serving.deployment.Deployment",
    "calc.serving.estimate.Estimate",
    "calc.serving.estimate.Roofline",
    "calc.serving.phase.Phase",
    "calc.serving.phase.Totals",
    "calc.timing.step_time.Range",
    "calc.timing.step_time.StepTime",
    "calc.timing.step_time.OperatorTime",
    "calc.operators.operator.Operator",
    "calc.serving.request.Latency",
    "calc.serving.estimate.Fit",
    "calc.memory.budget.Capacity",
    "calc.memory.budget.Term",
    "calc.operators.parameters.Parameters",
    "calc.profiles.catalog.Loaded",
)


def page() -> str:
    """The whole page."""
    import calc

    parts = [_INTRO, "## Functions of `calc`\n"]
    for name in calc.__all__:
        thing = getattr(calc, name)
        if inspect.isfunction(thing):
            parts.append(f"### {name}\n\n```text\n{_signature(thing)}\n```\n\n{_doc(thing)}\n")
    parts.append(
        "## Records\n\nAll are frozen dataclasses. Times and sizes are numbers in SI base units, or numpy arrays in a sweep.\n"
    )
    parts += [_record(path) for path in _RECORDS]
    parts.append("## Errors\n\nAll errors that a user can cause are of one family, in `calc.errors`.\n")
    rows = [
        f"| `{name}` | {thing.exit_code} | {_inline(_doc(thing).splitlines()[0])} |"
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, RoofcastError)
    ]
    parts.append("| class | exit code of the command line | meaning |\n|---|---:|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _doc(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").replace("``", "`")


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _signature(function: Any) -> str:
    """The signature with annotations as they are written."""
    shown: list[str] = []
    keyword_only = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            shown.append("*")
            keyword_only = True
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{star}{parameter.name}: {parameter.annotation}{default}")
    one = f"{function.__name__}({', '.join(shown)}) -> {inspect.signature(function).return_annotation}"
    if len(one) <= 110:
        return one
    inner = "".join(f"    {s},\n" for s in shown)
    return f"{function.__name__}(\n{inner}) -> {inspect.signature(function).return_annotation}"


def _record(path: str) -> str:
    module, _, name = path.rpartition(".")
    cls = getattr(import_module(module), name)
    rows = []
    for field in dataclasses.fields(cls):
        default = ""
        if field.default is not dataclasses.MISSING:
            default = f"`{_default(field.default)}`"
        elif field.default_factory is not dataclasses.MISSING:
            default = f"`{getattr(field.default_factory, '__name__', 'made')}()`"
        rows.append((field.name, _type(field.type), default))
    lines = [f"### {name}", "", f"`{cls.__module__}.{name}`. {_inline(_doc(cls))}", ""]
    if any(default for _, _, default in rows):
        lines += ["| field | type | default |", "|---|---|---|", *(f"| `{n}` | {t} | {d} |" for n, t, d in rows)]
    else:
        lines += ["| field | type |", "|---|---|", *(f"| `{n}` | {t} |" for n, t, _ in rows)]
    properties = [(n, p) for n, p in vars(cls).items() if isinstance(p, property) and not n.startswith("_")]
    if properties:
        lines += ["", "| property | meaning |", "|---|---|"]
        lines += [f"| `{n}` | {_inline(_doc(p))} |" for n, p in properties]
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    return str(value.name) if hasattr(value, "name") else repr(value)


def _type(annotation: Any) -> str:
    return "`" + _inline(str(annotation)) + "`"
