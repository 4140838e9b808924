"""Steps about how a phase is cut over ranks: requests of a rank, copies of tokens, pipeline stages at work, messages behind compute."""

from __future__ import annotations

from calc.formula import formula_of
from calc.operators.operator import Operator
from calc.operators.token_copies import destinations
from calc.report.explain import places
from calc.report.explain.step import Step, Value
from calc.serving.deployment import Deployment
from calc.serving.phase import Phase
from calc.timing.overlap import overlapped
from calc.timing.pipeline import pipeline_speedup, prompt_micro_batches, round_s_per_pass_s


def parallel_steps(deployment: Deployment, phase: Phase) -> list[Step]:
    """Everything that a single device does not have; nothing for one."""
    steps = [*_requests(deployment, phase), *_pipeline(deployment, phase)]
    for name in ("dispatch", "combine"):
        steps += [_copies(o) for o in phase.operators if o.name == name][:1]
    return steps + _hidden(deployment, phase)


def _requests(deployment: Deployment, phase: Phase) -> list[Step]:
    if not deployment.sharding.is_wide:
        return []
    parts = int(phase.flow.micro_batches)
    values = (
        Value("requests", float(phase.work.sequences), "requests", "--batch-size"),
        Value("micro_batches", parts),
        Value("data_ranks", deployment.sharding.data_ranks, "", "--data-parallel-size with --enable-expert-parallel"),
    )
    text = "ceil(ceil(requests / micro_batches) / data_ranks)"
    return [Step("requests of the fullest rank, which sets the time", text, values, float(phase.flow.rank.sequences), "requests")]


def _pipeline(deployment: Deployment, phase: Phase) -> list[Step]:
    stages, found = deployment.setting.stages, phase.flow
    if stages <= 1:
        return []
    cut = Value("stages", stages, "", "layers over those of the largest stage, --pipeline-parallel-size")
    if phase.work.phase == "decode":
        values = (
            Value("micro_batches", float(found.micro_batches), "", "a stage works on one of them, each request is in one"),
            cut,
        )
        name = "a round of all micro-batches over one pass through all stages"
        by = places.name(round_s_per_pass_s)
        return [Step(name, formula_of(round_s_per_pass_s), values, float(found.stretch), "", by)]
    size = deployment.setting.micro_batch
    pieces = float(prompt_micro_batches(found.rank.tokens, size))
    source = f"{found.rank.tokens:,.0f} new tokens of a rank by {size:,}: --max-num-batched-tokens, else a usual one"
    at_once, by = float(found.stages_at_once), places.name(pipeline_speedup)
    values = (Value("micro_batches", pieces, "", source), cut)
    return [Step("stages at work at once", formula_of(pipeline_speedup), values, at_once, "", by)]


def _copies(operator: Operator) -> Step:
    """Bytes that one rank sends in one call."""
    assert operator.collective is not None
    shape, ranks = operator.shape, operator.collective.ranks
    reached = float(operator.detail["ranks_per_token"])
    values = (
        Value("tokens", float(shape["tokens"]), "", "a rank's own, mean over the ranks"),
        Value(
            "bytes_per_copy", float(shape["bytes_per_copy"]), "B", "fp8 with scales where the experts multiply in fp8, else 16 bit"
        ),
        Value("ranks_per_token", reached, "", f"{places.name(destinations)}: ranks that hold any of a token's experts"),
        Value("ranks", ranks, "", "tensor x data parallel size"),
    )
    text = "tokens * bytes_per_copy * ranks_per_token * (ranks - 1) / ranks"
    name = f"one call of {operator.name} on one rank ({operator.detail['copies']})"
    return Step(name, text, values, float(operator.network_bytes), "B", evidence="uniform routing")


def _hidden(deployment: Deployment, phase: Phase) -> list[Step]:
    timed = phase.timed
    if timed is None or timed.hidden_s is None or timed.time_s.expected is None:
        return []
    hidden, expected = float(timed.hidden_s["expected"]), float(timed.time_s.expected)
    values = (Value("operators_s", expected + hidden, "s", "sum over operators"), Value("hidden_s", hidden, "s"))
    share = f"--overlap {deployment.overlap.share:g}; the floor and the low end hide {deployment.overlap.best:g}"
    by = places.name(overlapped)
    return [Step("messages behind compute, layer by layer", "operators_s - hidden_s", values, expected, "s", by, share)]
