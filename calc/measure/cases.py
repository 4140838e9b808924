"""What there is to measure: the operators of the prediction, one case per distinct shape. Data only; needs neither torch nor a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from calc.errors import UnknownNameError, UsageError
from calc.measure import attention_cases, composites
from calc.measure.grid import Grid
from calc.numerics import cache_format, canonical_dtype, weight_format
from calc.operators import work as step_work
from calc.operators.numbers import NumberPlan
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.profiles.model import Heads, ModelProfile

DTYPES = ("bf16", "fp16", "fp32")
PHASES = ("prefill", "decode")
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}

_ELEMENTWISE = {
    "rope": "rope",
    "qk_norm": "qk_norm",
    "qk_norm_rope": "qk_norm_rope",
    "kv_cache_write": "kv_cache_write",
    "act_and_mul": "gated_activation",
    "activation": "activation",
    "experts_activation": "gated_activation",
    "shared_activation": "gated_activation",
}
_NORMS = ("rms_norm", "layer_norm", "final_norm")


@dataclass(frozen=True, slots=True)
class Case:
    """One operation with shape and dtype in one phase, and the kernel that stands for it.

    ``flops`` and ``bytes`` are those of the operator: one call on one rank, bytes under the fusion policy. ``calls`` is how many such
    calls a step holds (0: of the grid, in no step of the comparison). ``parameters`` is what the kernel needs beyond the shape. ``id``
    is stable: it joins run, prediction and report.
    """

    id: str
    operation: str
    op_class: str
    phase: str
    kernel: str
    shape: dict[str, Any]
    dtype: str
    flops: float
    bytes: float
    calls: int = 1
    parameters: dict[str, Any] = field(default_factory=dict)
    tensor_parallel_size: int = 1
    parts: tuple[tuple[Case, int], ...] = ()  # of a composite: cases and how often each is called


@dataclass(frozen=True, slots=True)
class Entry:
    """An operator of a phase with the id of the case that measures it, or the reason why none does."""

    phase: str
    operator: Operator
    case_id: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """All operators of both phases in order, and the distinct cases among them."""

    entries: tuple[Entry, ...]
    cases: tuple[Case, ...]
    dtype: str

    @property
    def not_measured(self) -> tuple[str, ...]:
        """``phase operation: reason`` of every operator that no case stands for."""
        return tuple(dict.fromkeys(f"{e.phase} {e.operator.name}: {e.reason}" for e in self.entries if e.case_id is None))


def parse_dtype(name: str) -> str:
    """A dtype that can be measured. Raises UsageError with what there is."""
    try:
        found = canonical_dtype(name)
    except UnknownNameError:
        found = ""
    if found not in DTYPES:
        raise UsageError(f"dtype {name!r} cannot be measured", "there are: auto, " + ", ".join(DTYPES))
    return found


def model_dtype(model: ModelProfile) -> str:
    """The 16-bit type of the checkpoint (bf16 where it is stored in something else)."""
    try:
        found = canonical_dtype(model.storage.dtype)
    except UnknownNameError:
        return "bf16"
    return found if found in ("fp16", "bf16") else "bf16"


def number_plan(dtype: str) -> NumberPlan:
    """Weights, activations and cache all in one plain type: what this form of the measurement runs."""
    return NumberPlan(compute=dtype, default=weight_format(dtype), keys=cache_format(dtype), values=cache_format(dtype))


def workload(
    model: ModelProfile,
    dtype: str,
    *,
    batch_size: int = 1,
    input_len: int = 512,
    context_len: int = 1024,
    tensor_parallel_size: int = 1,
    only: str | Iterable[str] | None = None,
    grid: Grid | None = None,
) -> Workload:
    """Operators of a prefill of ``input_len`` tokens and of a decode step at ``context_len`` keys, and their cases on one rank.

    ``grid`` adds cases of other sizes, which no step of the comparison holds (``calls`` 0). ``only`` keeps cases by pattern (see
    ``selects``). Raises UsageError for sizes below 1, a sharding that does not divide, or a
    pattern that selects nothing.
    """
    sizes = {"batch size": batch_size, "input length": input_len, "context length": context_len}
    for what, value in (*sizes.items(), ("tensor parallel size", tensor_parallel_size)):
        if value < 1:
            raise UsageError(f"{what} must be at least 1, not {value}")
    steps = (step_work.prefill(batch_size, input_len), step_work.decode(batch_size, context_len))
    sharding, numbers = Sharding(tensor=tensor_parallel_size), number_plan(dtype)
    cases: dict[str, Case] = {}
    entries: list[Entry] = []
    for step in steps:
        for operator in step_operators(model, sharding, numbers, step):
            made = _case(operator, step.phase, model, dtype, tensor_parallel_size)
            if isinstance(made, str):
                entries.append(Entry(step.phase, operator, None, made))
                continue
            known = cases.get(made.id)
            if known and known.parameters != made.parameters:  # same shape, another mask or rotary width
                made = replace(made, id=f"{made.id}/{operator.layers}")
                known = cases.get(made.id)
            cases[made.id] = replace(known, calls=known.calls + made.calls) if known else made
            entries.append(Entry(step.phase, operator, made.id))
    for step, classes in grid.steps(context_len) if grid else ():
        for operator in step_operators(model, sharding, numbers, step):
            if classes and operator.op_class not in classes:
                continue
            made = _case(operator, step.phase, model, dtype, tensor_parallel_size)
            if isinstance(made, Case):
                cases.setdefault(made.id, replace(made, calls=0))
    for whole in composites.composites(entries, cases) if grid and grid.composites else ():
        cases[whole.id] = whole
    return _filtered(Workload(tuple(entries), tuple(cases.values()), dtype), only)


def list_cases(
    model: ModelProfile, *, dtype: str = "auto", only: str | Iterable[str] | None = None, grid: Grid | None = None, **sizes: int
) -> Workload:
    """What ``measure`` would time, without torch or a device. ``auto`` stands for the checkpoint's 16-bit type here, since the trial
    that decides on a CPU needs the device. ``sizes`` as for ``workload``."""
    chosen = model_dtype(model) if dtype == "auto" else parse_dtype(dtype)
    return workload(model, chosen, only=only, grid=grid, **sizes)


def selects(pattern: str, case: Case) -> bool:
    """Whether a pattern names a case: ``class:operation`` or ``class:phase`` with wildcards (``gemm:*``, ``attention:decode``), an
    operation, a phase, a class, or a whole id."""
    if fnmatchcase(case.id, pattern):
        return True
    head, colon, tail = pattern.partition(":")
    if not colon:
        return any(fnmatchcase(word, pattern) for word in (case.operation, case.phase, case.op_class))
    return fnmatchcase(case.op_class, head) and any(fnmatchcase(word, tail) for word in (case.operation, case.phase))


def _filtered(work: Workload, only: str | Iterable[str] | None) -> Workload:
    if not only:
        return work
    patterns = [p.strip() for p in (only.split(",") if isinstance(only, str) else only) if p.strip()]
    for pattern in patterns:
        if not any(selects(pattern, c) for c in work.cases):
            known = sorted({f"{c.op_class}:{c.operation}" for c in work.cases})
            raise UsageError(f"no case matches {pattern!r}", "there are: " + ", ".join(known))
    kept = tuple(c for c in work.cases if any(selects(p, c) for p in patterns))
    ids = {c.id for c in kept}
    entries = tuple(
        e if e.case_id in ids or e.case_id is None else Entry(e.phase, e.operator, None, "not selected") for e in work.entries
    )
    return Workload(entries, kept, work.dtype)


def _case(operator: Operator, phase: str, model: ModelProfile, dtype: str, tensor: int) -> Case | str:
    """The case of an operator, or why there is none."""
    chosen = _kernel(operator, model)
    if isinstance(chosen, str):
        return chosen
    kernel, shape, parameters = chosen
    sizes = "/".join(f"{key}{value}" for key, value in shape.items())
    return Case(
        id=f"{operator.op_class}:{operator.name}/{phase}/{sizes}/{dtype}/tp{tensor}",
        operation=operator.name,
        op_class=operator.op_class,
        phase=phase,
        kernel=kernel,
        shape=shape,
        dtype=dtype,
        flops=float(operator.flops),
        bytes=float(operator.bytes),
        calls=operator.count,
        parameters=parameters,
        tensor_parallel_size=tensor,
    )


Chosen = tuple[str, dict[str, Any], dict[str, Any]]


def _kernel(operator: Operator, model: ModelProfile) -> Chosen | str:
    """(kernel, shape, parameters) of an operator, or the reason why it has no kernel."""
    op_class, name, shape = operator.op_class, operator.name, operator.shape
    if op_class == "collective":
        return "collectives need several devices"
    if operator.flops <= 0 and operator.bytes <= 0:
        return "moves nothing and computes nothing under this fusion policy"
    if op_class == "gemm" and {"m", "n", "k"} <= shape.keys():
        sizes: dict[str, Any] = {key: int(shape[key]) for key in ("m", "n", "k", "copies") if key in shape}
        return ("grouped_gemm" if "copies" in sizes else "gemm"), sizes, {}
    if op_class == "experts" and {"m", "n", "k", "active"} <= shape.keys():
        active = max(1, round(float(shape["active"])))
        sizes = {"rows": max(active, round(float(shape["m"] * shape["active"]))), "active": active}
        return "experts", sizes | {key: int(shape[key]) for key in ("n", "k")}, {}
    if op_class == "recurrent":
        return _recurrent(operator)
    if op_class == "attention":
        return attention_cases.kernel(operator, model)
    rows: dict[str, Any] = {key: round(float(shape[key])) for key in ("m", "n") if key in shape}
    if len(rows) < 2:
        return f"no kernel for class {op_class} yet"
    if op_class == "norm" and name in _NORMS:
        return ("layer_norm" if model.norm.kind == "layer" else "rms_norm"), rows, {"bias": model.norm.bias}
    if op_class == "embedding" and name == "embedding":
        return "embedding", rows, {"rows": model.embedding_rows or model.vocab_size or 0}
    kernel = _ELEMENTWISE.get(name) if op_class == "elementwise" else None
    if kernel in ("rope", "qk_norm", "qk_norm_rope"):
        heads = _rotated_heads(operator, model)
        if heads is None:
            return "its head size is not known"
        return kernel, rows, {"head_dim": heads.head_dim, "rotary_dim": heads.rotary_dim or heads.head_dim}
    return (kernel, rows, {}) if kernel else f"no kernel for class {op_class} yet"


def _recurrent(operator: Operator) -> Chosen | str:
    """Recurrent mixers that plain torch can stand in for."""
    sizes: dict[str, Any] = {key: int(value) for key, value in operator.shape.items()}
    form = str(operator.detail.get("form", ""))
    if sizes.get("tokens", 0) % sizes.get("sequences", 1):
        return "requests of unequal length have no kernel yet"
    if operator.name == "causal_conv1d":
        return "conv1d", sizes, {}
    if operator.name == "ssd_scan" and form in ("stepwise", "chunked"):
        return "ssd_scan", sizes, {"form": form}
    if operator.name == "gated_delta_rule" and form == "stepwise":
        return "delta_step", sizes, {}
    return f"no kernel for {operator.name} in {form or 'this'} form yet"


def _rotated_heads(operator: Operator, model: ModelProfile) -> Heads | None:
    """The attention whose queries and keys an element-wise operator turns: the first of its layer whose heads divide the width."""
    kind = model.layer_kinds.get(operator.layers)
    width = operator.shape["n"]
    found = (m for m in kind.mixers if isinstance(m, Heads) and width % m.head_dim == 0) if kind else iter(())
    return next(found, None)
