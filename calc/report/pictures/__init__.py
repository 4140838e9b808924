"""Pictures: one declarative description each, drawn in a terminal or as PNG, SVG and self-contained HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calc.memory.budget import Capacity
    from calc.report.pictures.picture import Picture
    from calc.serving.chunking import ChunkedPrefill
    from calc.serving.deployment import Deployment, DeploymentOptions
    from calc.serving.estimate import Estimate, Roofline
    from calc.serving.life import Life
    from calc.serving.plan.search import Plan
    from calc.serving.request import Workload
    from calc.serving.speculation import Speculation


def estimate(deployment: Deployment, result: Estimate) -> Picture:
    """Step times of both phases by operator, and the memory of a GPU."""
    from calc.report.pictures.memory import memory_bar
    from calc.report.pictures.picture import Picture
    from calc.report.pictures.step_time import step_bars

    bars = step_bars(deployment, {"prefill": result.prefill, "decode": result.decode})
    return Picture((*bars, memory_bar(deployment, result.capacity)))


def roofline(deployment: Deployment, result: Roofline) -> Picture | None:
    """Operators under the ceilings of the device."""
    from calc.report.pictures.ceilings import picture

    return picture(deployment, result)


def capacity(deployment: Deployment, held: Capacity, options: DeploymentOptions) -> Picture:
    """The memory of a GPU, and the requests that fit at each length in each cache format."""
    from calc.report.pictures.memory import concurrency, memory_bar
    from calc.report.pictures.picture import Picture
    from calc.serving.curves import concurrency_curves

    chart = concurrency(deployment, list(concurrency_curves(deployment, options)))
    return Picture((memory_bar(deployment, held), *([chart] if chart else [])))


def request(
    deployment: Deployment, workload: Workload, life: Life, chunked: ChunkedPrefill | None, speculation: Speculation | None
) -> Picture:
    """The timeline of a request, the latency of each token, and what it would be without a cache."""
    from calc.report.pictures.life import picture

    return picture(deployment, workload, life, chunked, speculation)


def plan(found: Plan) -> Picture | None:
    """Throughput against latency, with the objectives and the answers."""
    from calc.report.pictures.frontier import picture

    return picture(found)
