"""The kernels of a composite's parts, run one after another as one call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from calc.measure.cases.operators import Case
from calc.measure.kernels import kernel as kernels
from calc.measure.kernels.kernel import Kernel
from calc.measure.kernels.workspace import Workspace
from calc.measure.runner import OutOfMemory

_MOST_CALLS = 64


def build(case: Case, space: Workspace) -> Kernel:
    """The kernels of the parts, called in turn; their own checks stand for the whole."""
    made: list[tuple[Kernel, int]] = []
    total = 0
    for part, calls in case.parts:
        made.append((kernels.build(part, space), calls))
        total += space.activation_bytes
        if total > space.limit_bytes:
            raise OutOfMemory("the activations of a layer together exceed a quarter of the free memory")
    space.activation_bytes = total  # each part counted anew
    count = min(_MOST_CALLS, max(len(kernel.calls) for kernel, _ in made))

    def run(turn: int) -> Any:
        result = None
        for kernel, calls in made:
            for call in range(calls):
                result = kernel.calls[(turn * calls + call) % len(kernel.calls)]()
        return result

    @contextmanager
    def around() -> Iterator[None]:
        with ExitStack() as stack:
            for kernel, _ in made:
                stack.enter_context(kernel.around())
            yield

    return Kernel(
        [partial(run, turn) for turn in range(count)],
        None,
        f"{sum(n for _, n in made)} kernels in turn, data does not flow between them",
        sum(kernel.launches * calls for kernel, calls in made),
        sum(kernel.operand_bytes for kernel, _ in made),
        around,
    )
