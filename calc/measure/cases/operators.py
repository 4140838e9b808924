"""What there is to measure: the operators of the prediction, one case per distinct shape. Data only; needs neither torch nor a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from msgspec import structs

from calc.errors import UsageError
from calc.measure.cases import composites
from calc.measure.cases import kernel_choice as case_kernels
from calc.measure.cases.formats import formats_for, model_dtype, number_plan, parse_dtype
from calc.measure.cases.grid import Grid
from calc.operators import work as step_work
from calc.operators.numbers import NumberPlan
from calc.operators.operator import Operator
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.operators.work import Work
from calc.profiles.model import ModelProfile

PHASES = ("prefill", "decode")
#: Tokens kept before drawing: the default of Hugging Face's GenerationConfig.
TOP_K = 50


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


@dataclass(frozen=True, slots=True)
class Made:
    """What all cases of a run share."""

    dtype: str
    numbers: NumberPlan
    sharding: Sharding


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
    formats: Mapping[str, str] | None = None,
) -> Workload:
    """Operators of a prefill of ``input_len`` tokens and of a decode step at ``context_len`` keys, and their cases on one rank.

    ``grid`` adds cases of other sizes and draws, which no step of the comparison holds (``calls`` 0). ``formats`` are quantised weight
    formats by tensor role (``formats.formats_for``); all else is in ``dtype``. ``only`` keeps cases by pattern (see ``selects``).
    Raises UsageError for sizes below 1, a sharding that does not divide, or a pattern that selects nothing.
    """
    sizes = {"batch size": batch_size, "input length": input_len, "context length": context_len}
    for what, value in (*sizes.items(), ("tensor parallel size", tensor_parallel_size)):
        if value < 1:
            raise UsageError(f"{what} must be at least 1, not {value}", "sizes are whole numbers above 0")
    steps = (step_work.prefill(batch_size, input_len), step_work.decode(batch_size, context_len))
    made_as = Made(dtype, number_plan(dtype, formats), Sharding(tensor=tensor_parallel_size))
    cases: dict[str, Case] = {}
    entries: list[Entry] = []
    for step in steps:
        for operator in step_operators(model, made_as.sharding, made_as.numbers, step):
            made = _case(operator, step, model, dtype, tensor_parallel_size)
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
        for operator in step_operators(model, made_as.sharding, made_as.numbers, step):
            if classes and operator.op_class not in classes:
                continue
            made = _case(operator, step, model, dtype, tensor_parallel_size)
            if isinstance(made, Case):
                cases.setdefault(made.id, replace(made, calls=0))
    for extra in _beside(model, steps, grid, made_as) if grid else ():
        cases[extra.id] = extra
    for whole in composites.composites(entries, cases) if grid and grid.composites else ():
        cases[whole.id] = whole
    return _filtered(Workload(tuple(entries), tuple(cases.values()), dtype), only)


def list_cases(
    model: ModelProfile,
    *,
    dtype: str = "auto",
    only: str | Iterable[str] | None = None,
    grid: Grid | None = None,
    quantization: str | None = None,
    kind: str = "cpu",
    **sizes: int,
) -> Workload:
    """What ``measure`` would time on a ``kind`` of device, without torch or a device. ``auto`` stands for the checkpoint's 16-bit type
    here, since the trial that decides on a CPU needs the device. ``quantization`` None: see ``formats.formats_for``. ``sizes`` as for
    ``workload``."""
    chosen = model_dtype(model) if dtype == "auto" else parse_dtype(dtype)
    return workload(model, chosen, only=only, grid=grid, formats=formats_for(model, quantization, kind), **sizes)


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


def _case(operator: Operator, step: Work, model: ModelProfile, dtype: str, tensor: int) -> Case | str:
    """The case of an operator, or why there is none."""
    chosen = case_kernels.choose(operator, model, step)
    if isinstance(chosen, str):
        return chosen
    kernel, shape, parameters = chosen
    own = operator.compute_dtype if kernel.startswith("scaled_") else dtype
    sizes = "/".join(f"{key}{value}" for key, value in shape.items())
    return Case(
        id=f"{operator.op_class}:{operator.name}/{step.phase}/{sizes}/{own}/tp{tensor}",
        operation=operator.name,
        op_class=operator.op_class,
        phase=step.phase,
        kernel=kernel,
        shape=shape,
        dtype=own,
        flops=float(operator.flops),
        bytes=float(operator.bytes),
        calls=operator.count,
        parameters=parameters,
        tensor_parallel_size=tensor,
    )


def _beside(model: ModelProfile, steps: Iterable[Work], grid: Grid, made: Made) -> list[Case]:
    """Cases of the two steps that are in neither's sum."""
    found = _skewed(model, steps, grid.skews, made)
    return found + _sampling(model, steps, made) if grid.sampling else found


def _skewed(model: ModelProfile, steps: Iterable[Work], skews: Iterable[float], made: Made) -> list[Case]:
    """Expert products under routing by Zipf's law, beside the balanced ones; in no step of the comparison."""
    found: dict[str, Case] = {}
    for skew in skews:
        tilted = structs.replace(model, routing_skew=skew)
        for step in steps:
            experts = (o for o in step_operators(tilted, made.sharding, made.numbers, step) if o.op_class == "experts")
            for operator in experts:
                case = _case(operator, step, tilted, made.dtype, made.sharding.tensor)
                if isinstance(case, Case) and case.shape["rows"] > case.shape["active"]:  # else each has one row in any draw
                    found[case.id] = replace(case, id=f"{case.id}/zipf{skew:g}", calls=0)
    return list(found.values())


def _sampling(model: ModelProfile, steps: Iterable[Work], made: Made) -> list[Case]:
    """What samplers begin with, on the whole vocabulary: outside of the operators, which end with logits."""
    if not (model.vocab_size and model.has_lm_head):
        return []
    found: dict[str, Case] = {}
    for step in steps:
        rows, top = int(step.logit_rows), min(TOP_K, model.vocab_size)
        moved = 4.0 * rows * (model.vocab_size + top)
        sizes = {"m": rows, "n": model.vocab_size}
        name = f"sampling:softmax_topk/{step.phase}/m{rows}/n{model.vocab_size}/{made.dtype}/tp{made.sharding.tensor}"
        case = Case(name, "softmax_topk", "sampling", step.phase, "sampling", sizes, made.dtype, 0.0, moved, 0, {"top": top})
        found[name] = replace(case, tensor_parallel_size=made.sharding.tensor)
    return list(found.values())
