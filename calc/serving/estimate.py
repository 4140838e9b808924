"""The main job: does it fit, how fast are prefill and decode, what limits each; and the refusal of speed for what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calc.errors import UsageError
from calc.memory.budget import Capacity, Term
from calc.memory.kv_cache import largest_context
from calc.operators import work
from calc.operators.step import is_encoder_only
from calc.serving.critical import CriticalPoints, critical_points
from calc.serving.deployment import Deployment, Warnings
from calc.serving.flow import warnings as flow_warnings
from calc.serving.offload import host_link, host_stream_s, streaming_pays_tokens
from calc.serving.phase import Phase, evaluate
from calc.serving.request import Latency, Workload, latency
from calc.serving.sensitivity import Change, sensitivity
from calc.serving.speculation import Draft, Speculation, refused, speculate
from calc.serving.speculative_round import Round, speculative_round
from calc.timing import extrapolation, paths
from calc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from calc.serving.load.objectives import Demand
    from calc.serving.load.steady_state import ServedLoad


@dataclass(frozen=True)
class Fit:
    """Whether a workload fits. When it does not, ``too_large`` names the term (or ``max_num_seqs``), and the largest batch (at this
    length) and the longest context (at this batch) that do fit are offered.

    ``missing_bytes_per_gpu`` of weights would then have to stay in host memory: ``host_stream_s`` is what every step would take to
    read them over the host link, and from ``host_hidden_tokens`` in a step on its products take longer than that. None: not known.
    ``max_num_seqs`` would let as many run as were asked for; None: not needed, or more than the engine can run."""

    fits: bool
    capacity_bytes_per_gpu: int
    used_bytes_per_gpu: int
    terms: tuple[Term, ...]
    too_large: str | None = None
    largest_batch: int | None = None
    largest_context: int | None = None
    missing_bytes_per_gpu: int | None = None
    host_stream_s: float | None = None
    host_hidden_tokens: float | None = None
    max_num_seqs: int | None = None


@dataclass(frozen=True)
class Estimate:
    """Everything that one screen answers; ``load`` where a demand was stated and speed is answered."""

    workload: Workload
    prefill: Phase
    decode: Phase | None
    request: Latency
    fit: Fit
    capacity: Capacity
    warnings: Warnings
    speculation: Speculation | None = None
    round: Round | None = None  # where drafts are asked for
    load: ServedLoad | None = None

    def __repr__(self) -> str:
        ttft, tpot = (format_seconds(t.expected) for t in (self.request.ttft_s, self.request.tpot_s))
        return f"<Estimate: TTFT {ttft}, TPOT {tpot}, {'fits' if self.fit.fits else 'does not fit'}>"

    @property
    def holds(self) -> bool:
        """Whether the workload fits and the load that was asked about, if any, is carried."""
        return self.fit.fits and (self.load is None or self.load.carried is not False)


@dataclass(frozen=True)
class Roofline:
    """The asked phases, operator by operator."""

    workload: Workload
    prefill: Phase | None
    decode: Phase | None
    fit: Fit
    critical: CriticalPoints | None
    warnings: Warnings
    sensitivity: dict[str, tuple[Change, ...]] = field(default_factory=dict)  # by phase
    round: Round | None = None  # where drafts are asked for and decode is shown


def too_large(held: Capacity, sequences: int) -> str:
    """What keeps more than ``sequences`` requests from running: weights, the engine's limit of sequences, or the cache."""
    if not held.loaded:
        return "weights"
    return "max_num_seqs" if held.sequence_limit is not None and sequences >= held.sequence_limit else "kv_cache"


def enough_sequences(deployment: Deployment, held: Capacity, wanted: int) -> int | None:
    """The least ``max_num_seqs``, of each group of ranks, with which the engine runs ``wanted`` requests at once; None where it does
    already, or where it cannot be told to."""
    if held.sequence_limit is None or held.sequence_limit >= wanted:
        return None
    each = -(-wanted // deployment.sharding.data_ranks)
    slots = deployment.engine.capacity(deployment.question(max_model_len=held.max_model_len, max_num_seqs=None)).most_slots
    return each if slots is None or slots >= each else None


def capacity(deployment: Deployment) -> Capacity:
    """What the deployment's engine makes of its memory."""
    return deployment.engine.capacity(deployment.question())


def check_fit(deployment: Deployment, workload: Workload) -> tuple[Fit, Capacity]:
    """Hold the workload's final context against the engine's law. Capacity is answered at the workload's own length unless
    ``max_model_len`` was given."""
    length = deployment.memory.max_model_len or workload.final_context
    question = deployment.question(max_model_len=length)
    law = deployment.engine
    held = law.capacity(question)
    sequences = law.sequences(question, held, workload.final_context)
    requests = -(-workload.batch_size // deployment.sharding.data_ranks)  # of the rank that has most
    needed = int(float(held.ruling.pool.cache.ideal_bytes(workload.final_context)) * requests)
    used = held.fixed_bytes_per_gpu + needed
    terms = (*held.terms, Term("kv_cache_needed", needed, "ideal bytes of the workload"))
    if held.loaded and sequences >= workload.batch_size:
        return Fit(True, held.capacity_bytes_per_gpu, used, terms), held
    longest = largest_context(lambda c: law.sequences(question, held, c) >= workload.batch_size) if held.loaded else 0
    reason, missing = too_large(held, sequences), held.ruling.missing_bytes(held.share, needed)
    streamed, hidden = _streaming(deployment, missing, held.weights_bytes_per_gpu)
    largest = sequences if held.loaded else 0
    most = enough_sequences(deployment, held, workload.batch_size)
    return Fit(False, held.capacity_bytes_per_gpu, used, terms, reason, largest, longest, missing, streamed, hidden, most), held


def _streaming(deployment: Deployment, missing_bytes: int, weights_bytes: int) -> tuple[float | None, float | None]:
    """Seconds a step to stream ``missing_bytes`` of weights from the host, and the tokens in a step from which products hide them (of
    dense weights, which every token is multiplied with)."""
    link = host_link(deployment.hardware.profile)
    if not link or not 0 < missing_bytes < weights_bytes:  # no more than the weights can be left to the host
        return None, None
    numbers, ceilings = deployment.numbers, deployment.ceilings
    weight = numbers.weight("feed_forward")
    peak = ceilings.peak(paths.dtype(numbers.compute_for("feed_forward"), weight.name, ceilings.paths))
    is_dense = not deployment.model.profile.has_experts
    hidden = streaming_pays_tokens(peak, link, weight.nominal_bits / 8) if peak and is_dense else None
    return float(host_stream_s(missing_bytes, link)), hidden


def estimate(deployment: Deployment, workload: Workload, draft: Draft | None = None, demand: Demand | None = None) -> Estimate:
    """Both phases, the request, the memory and the capacity of one workload; with ``draft`` speculative decoding beside it, with
    ``demand`` the steady state of requests of these lengths."""
    fit, held = check_fit(deployment, workload)
    batch = workload.batch_size
    prefill = evaluate(deployment, work.prefill(batch, workload.input_len, workload.cached_len), answer_speed=fit.fits)
    decode = drafted = speculation = load = None
    if not is_encoder_only(deployment.model.profile):
        decode = evaluate(deployment, work.decode(batch, workload.decode_context), answer_speed=fit.fits)
        drafted = speculative_round(deployment, workload, draft, answer_speed=fit.fits)
    request = latency(deployment, workload, prefill, decode)
    warnings = deployment.warnings + held.warnings + _length_warnings(deployment, workload)
    warnings += _beyond_fit(deployment, prefill, decode)
    if draft is not None and decode is not None:
        speculation, further = _speculation(deployment, workload, draft, request, held)
        warnings += further
    if demand is not None:
        if decode is None:
            name = deployment.model.profile.id
            raise UsageError(f"{name} is an encoder: it has no steady state of decode", "ask for a batch alone")
        from calc.serving.load.steady_state import served_load  # needs arrays, which a single workload does not

        load = served_load(deployment, workload, demand, draft)
    return Estimate(workload, prefill, decode, request, fit, held, warnings, speculation, drafted, load)


def _speculation(
    deployment: Deployment, workload: Workload, draft: Draft, request: Latency, held: Capacity
) -> tuple[Speculation, Warnings]:
    """Speculation where model and draft fit together; refused with a warning where only the model does."""
    warnings: Warnings = draft.deployment.warnings if draft.deployment and not draft.part_of_model else ()
    if request.tpot_s.expected is None or (draft.deployment and not draft.deployment.has_rates):
        return refused(draft), warnings
    together = draft.beside(deployment, held, workload.final_context, workload.batch_size)
    if together is not deployment and not check_fit(together, workload)[0].fits:
        size = draft.bytes_per_gpu(workload.final_context, workload.batch_size)
        message = f"{draft.name} takes {format_bytes(size)} per GPU and does not fit beside the model: no speed is given"
        return refused(draft), (*warnings, ("draft_does_not_fit", message))
    return speculate(deployment, workload, draft, request.ttft_s), warnings


def roofline(deployment: Deployment, workload: Workload, phases: tuple[str, ...]) -> Roofline:
    """Operator lists of the asked phases."""
    if "prefill" not in phases:  # a decode question is about its own context
        workload = replace(workload, input_len=1, output_len=1, context_len=workload.decode_context)
    elif "decode" not in phases:
        workload = replace(workload, output_len=1, context_len=None)
    fit, held = check_fit(deployment, workload)
    prefill = decode = None
    if "prefill" in phases:
        step = work.prefill(workload.batch_size, workload.input_len, workload.cached_len)
        prefill = evaluate(deployment, step, answer_speed=fit.fits)
    if "decode" in phases:
        decode = evaluate(deployment, work.decode(workload.batch_size, workload.decode_context), answer_speed=fit.fits)
    warnings = deployment.warnings + held.warnings + _length_warnings(deployment, workload)
    warnings += _beyond_fit(deployment, prefill, decode)
    timed = {name: phase for name, phase in (("prefill", prefill), ("decode", decode)) if phase is not None and phase.timed}
    changes = {name: sensitivity(deployment, phase.work, phase.time_s) for name, phase in timed.items()}
    points = critical_points(deployment) if decode else None
    drafted = speculative_round(deployment, workload, answer_speed=fit.fits) if decode else None
    return Roofline(workload, prefill, decode, fit, points, warnings, changes, drafted)


def _beyond_fit(deployment: Deployment, *phases: Phase | None) -> Warnings:
    """What of the timed operators a user's efficiency file never saw."""
    timed = [o for phase in phases if phase is not None and phase.timed for o in phase.operators]
    return extrapolation.warnings(timed, deployment.efficiency)


def _length_warnings(deployment: Deployment, workload: Workload) -> Warnings:
    found = flow_warnings(deployment, workload.batch_size)
    found += deployment.beyond_model(workload.final_context)
    if deployment.memory.max_model_len and workload.final_context > deployment.memory.max_model_len:
        limit = deployment.memory.max_model_len
        found += (("context_beyond_limit", f"{workload.final_context:,} tokens exceed --max-model-len {limit:,}"),)
    if workload.cached_len >= workload.input_len:
        found += (("cached_len_clipped", "the last prompt token is always recomputed: the cached part is shortened to input - 1"),)
    return found
