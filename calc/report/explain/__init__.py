"""Explanations: for each headline number its formula, the values put in and where each came from.

Values come from the records that the answer is made of, formulas stand beside the code that computes (``calc.formula``), and a step
whose formula does not give its value is never shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calc.memory.budget import Capacity
    from calc.report.explain.step import Section
    from calc.serving.deployment import Deployment
    from calc.serving.estimate import Estimate, Roofline
    from calc.serving.plan.apart import Apart
    from calc.serving.plan.search import Plan


def estimate(deployment: Deployment, result: Estimate) -> list[Section]:
    """Both phases, the request, and the memory."""
    from calc.report.explain.memory import memory_section
    from calc.report.explain.phases import phase_section, request_section

    phases = [phase_section(deployment, p, n) for n, p in (("prefill", result.prefill), ("decode", result.decode)) if p is not None]
    load = []
    if result.load and result.load.answer:
        from calc.report.explain.answers import steady_state

        load = [steady_state(result.load.answer)]
    return [*phases, request_section(result.workload, result.request), *load, memory_section(deployment, result.capacity)]


def roofline(deployment: Deployment, result: Roofline) -> list[Section]:
    """The asked phases."""
    from calc.report.explain.phases import phase_section
    from calc.report.roofline import steps

    return [phase_section(deployment, p, n) for n, p in steps(result) if p is not None]


def capacity(deployment: Deployment, held: Capacity) -> list[Section]:
    """The memory."""
    from calc.report.explain.memory import memory_section

    return [memory_section(deployment, held)]


def plan(found: Plan, separate: list[Apart] | None = None) -> list[Section]:
    """The best answer: its steady state, replicas and bill, and its memory; prefill and decode apart where that was asked for. Nothing
    where there is no answer."""
    from calc.report.explain.answers import sections
    from calc.report.explain.apart import section
    from calc.report.explain.memory import memory_section

    apart = [section(separate[0])] if separate else []
    if not found.answers:
        return apart
    best = found.answers[0]
    return [*sections(best), memory_section(best.deployment, best.option.held), *apart]
