"""The public Python API: typed, lazy, the same figures as the command line, and arrays through the same arithmetic as numbers."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

import calc
from calc.commands import options
from calc.errors import SHORT_NAMES, ProfileError, RoofcastError, UnknownNameError, UsageError
from calc.operators import work
from calc.profiles import catalog
from calc.serving.deployment import DeploymentOptions
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from tests.support.cli import ROOT, answered, environment
from tests.support.profiles import attention, decoder, deployment, device, llama

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")


# --- lazy -----------------------------------------------------------------------------------------------------------------------


def loaded_after(program: str) -> set[str]:
    watched = ("rich", "yaml", "numpy", "torch", "msgspec", "typer")
    text = f"import sys\n{program}\nprint(*[m for m in {watched!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, env=environment(), cwd=ROOT, check=True)
    return set(done.stdout.decode().split())


def test_importing_calc_loads_no_library():
    assert loaded_after("import calc") == set()


def test_an_estimate_loads_neither_numpy_nor_torch_nor_rich_nor_typer():
    assert not loaded_after(f"import calc; calc.estimate(*{PAIR!r})") & {"numpy", "torch", "rich", "typer"}


def test_every_public_name_is_there_and_documented():
    for name in calc.__all__:
        found = getattr(calc, name)
        if callable(found):
            assert (found.__doc__ or "").strip(), f"{name} has no documentation"
            assert found.__annotations__.get("return"), f"{name} says not what it returns"
    assert {"load_model", "load_hardware", "estimate", "roofline", "capacity"} <= set(calc.__all__)
    assert calc.__version__


# --- answers --------------------------------------------------------------------------------------------------------------------


def test_loading_gives_typed_profiles():
    model, hardware = calc.load_model(PAIR[0]), calc.load_hardware(PAIR[1])
    assert model.profile.hidden_size == 4096
    assert model.profile.num_hidden_layers == 32
    assert hardware.profile.bandwidth_bytes_per_s == 3.35e12
    assert model.kind == "model"
    assert len(model.sha256) == 64


def test_estimate_answers_as_the_command_line_does():
    found = calc.estimate(*PAIR, batch_size=16, input_len=2048, output_len=256)
    shown = answered("estimate", *PAIR, "-b", "16", "-i", "2k", "--output-len", "256", "--json").json["results"]
    for phase in ("prefill", "decode"):
        ours, theirs = getattr(found, phase), shown[phase]
        assert ours.time_s.expected == theirs["time_s"]["expected"]
        assert ours.totals.flops == theirs["flops"]
        assert ours.totals.bytes == theirs["bytes"]
        assert ours.bound == theirs["bound"]
    assert found.fit.fits == shown["memory"]["fits"]
    assert found.capacity.kv_tokens == shown["capacity"]["kv_tokens"]
    assert found.request.e2e_s.expected == shown["request"]["e2e_s"]["expected"]


def test_roofline_and_capacity_answer_as_the_estimate_does():
    whole = calc.estimate(*PAIR, batch_size=4)
    lines = calc.roofline(*PAIR, batch_size=4)
    assert lines.decode.time_s == whole.decode.time_s
    assert lines.prefill.time_s == whole.prefill.time_s
    assert lines.decode.operators
    assert calc.capacity(*PAIR).weights_bytes_per_gpu == whole.capacity.weights_bytes_per_gpu


def test_a_plan_answers_as_the_command_line_does():
    found = calc.plan(PAIR[0], ["l40s", PAIR[1]], request_rate=2.0, tpot_s=0.03)
    shown = answered(
        "plan", PAIR[0], "--hardware", f"l40s,{PAIR[1]}", "--request-rate", "2", "--tpot-slo", "30ms", "--json"
    ).json["results"]["answers"]  # fmt: skip
    assert [a.usd_per_hour for a in found.answers] == [a["usd_per_hour"] for a in shown]
    assert found.answers[0].tpot_s.expected == shown[0]["tpot_s"]["expected"]
    drafts = calc.plan(
        *PAIR, speculative_tokens=(0, 2), acceptance=0.9, draft_model="ngram", goal="tpot", max_gpus=1, quantization="fp8"
    )
    assert drafts.answers[0].option.draft.tokens == 2
    assert drafts.answers[0].deployment.inputs["quantization"] == "fp8"


def test_a_load_is_part_of_an_estimate():
    assert calc.estimate(*PAIR).load is None
    assert calc.estimate(*PAIR, concurrency=8).load.answer.request_rate > 0
    assert not calc.estimate(*PAIR, request_rate=1e4).holds


def test_roofline_of_one_phase_leaves_the_other_out():
    assert calc.roofline(*PAIR, phases=("decode",)).prefill is None
    assert calc.roofline(*PAIR, phases=("prefill",)).decode is None


def test_results_are_immutable():
    found = calc.estimate(*PAIR)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.fit = None
    with pytest.raises(AttributeError):
        calc.load_model(PAIR[0]).profile.hidden_size = 1


def test_options_of_every_group_are_accepted():
    found = calc.estimate(
        *PAIR, tensor_parallel_size=2, quantization="fp8", gpu_memory_utilization=0.8, max_model_len=4096, batch_size=2
    )
    assert found.capacity.gpu_memory_utilization == 0.8
    assert found.capacity.max_model_len == 4096
    assert found.workload.batch_size == 2


def test_a_settled_deployment_can_be_asked_again_and_again():
    settled = calc.deploy(*PAIR, DeploymentOptions(tensor_parallel_size=2))
    times = [calc.estimate_deployment(settled, Workload(batch_size=b)).decode.time_s.expected for b in (1, 2, 1)]
    assert times[0] == times[2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: calc.load_model("lama-3.1-8b"), UnknownNameError),
        (lambda: calc.load_hardware("h1000"), UnknownNameError),
        (lambda: calc.load_model("./missing.yaml"), ProfileError),
        (lambda: calc.estimate(*PAIR, batchsize=3), UsageError),
        (lambda: calc.plan(*PAIR, batchsize=3), UsageError),
        (lambda: calc.plan(*PAIR, request_rate=-1.0), UsageError),
        (lambda: calc.plan(*PAIR, request_rate=1.0, concurrency=1), UsageError),
        (lambda: calc.plan(*PAIR, input_len=0), UsageError),
        (lambda: calc.plan(*PAIR, goal="costs"), UsageError),
        (lambda: calc.plan(*PAIR, speculative_tokens=2, acceptance=1.5), UsageError),
        (lambda: calc.plan(*PAIR, tpot_s=-1.0), UsageError),
        (lambda: calc.estimate(*PAIR, tensor_parallel_size=3), UsageError),
        (lambda: calc.estimate(*PAIR, engine="vlm"), UsageError),
        (lambda: calc.estimate(*PAIR, dtype="fp12"), UsageError),
    ],
)
def test_faults_of_the_user_raise_the_errors_of_one_family(call, error):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, RoofcastError)
    assert caught.value.message


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda: calc.estimate(*PAIR, input_len="2k"), "input_len must be a whole number, not '2k'", "did you mean 2048?"),
        (lambda: calc.estimate(*PAIR, input_len=2.5), "a whole number, not 2.5", "lengths in tokens"),
        (lambda: calc.estimate(*PAIR, batch_size=True), "a whole number, not True", ""),
        (lambda: calc.capacity(*PAIR, gpu_memory_bytes="80GiB"), "gpu_memory_bytes must be a whole number", "sizes are in bytes"),
        (lambda: calc.estimate(*PAIR, gpu_memory_utilization="90%"), "must be a number, not '90%'", ""),
        (lambda: calc.estimate(*PAIR, acceptance="0.5", speculative_tokens=2), "acceptance must be a number", "did you mean 0.5?"),
        (lambda: calc.estimate(*PAIR, concurrency=1.5), "concurrency must be a whole number", ""),
        (lambda: calc.plan(*PAIR, ttft_s="1s"), "ttft_s must be a number", "times in seconds"),
        (lambda: calc.plan(*PAIR, request_rate="2"), "request_rate must be a number", "did you mean 2.0?"),
        (lambda: calc.plan(*PAIR, top=1.5), "top must be a whole number", ""),
        (lambda: calc.plan(*PAIR, prices={"l40s": "2"}), "price of l40s must be a number", ""),
        (lambda: calc.plan(*PAIR, speculative_tokens="2"), "speculative_tokens must be a whole number", ""),
        (lambda: calc.estimate(*PAIR, tp=2), "unknown option 'tp'", "did you mean tensor_parallel_size?"),
        (lambda: calc.plan(*PAIR, pp=2), "unknown option 'pp'", "did you mean pipeline_parallel_size?"),
        (lambda: calc.plan(*PAIR, ttft_slo=1), "unknown option 'ttft_slo'", "did you mean ttft_s?"),
        (lambda: calc.estimate(*PAIR, ttft_s=1.0), "unknown option 'ttft_s'", "`calc.plan` takes it"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_meant(call, message, hint):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_numbers_of_numpy_are_numbers():
    found = calc.estimate(*PAIR, input_len=np.int64(2048), gpu_memory_utilization=np.float64(0.8))
    assert found.workload.input_len == 2048


def test_short_names_are_those_of_the_command_line():
    flags = {f.lstrip("-"): p.name for p in (*options.DEPLOYMENT, *options.WORK) for f in p.annotation.__metadata__[0].param_decls}
    assert {short: flags[short] for short in SHORT_NAMES} == SHORT_NAMES


def test_what_people_print_is_short():
    found = calc.plan(*PAIR, request_rate=1.0)
    for thing in (
        calc.estimate(*PAIR),
        found.answers[0],
        found.answers[0].option,
        found.answers[0].deployment,
        calc.load_model(PAIR[0]),
    ):
        assert len(repr(thing)) < 150
    assert len(repr(found)) < 1500
    assert "h100-sxm5-80gb" in repr(found.answers[0])
    assert "TPOT" in repr(calc.estimate(*PAIR))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"input_len": 0},
        {"input_len": -5},
        {"output_len": 0},
        {"context_len": -1},
        {"cached_len": -1},
        {"tensor_parallel_size": 0},
        {"tensor_parallel_size": -2},
        {"pipeline_parallel_size": 0},
        {"gpus": 0},
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": -1.0},
        {"gpu_memory_utilization": math.nan},
        {"max_model_len": 0},
        {"max_model_len": -1},
        {"block_size": 0},
        {"kv_cache_bytes": -1},
    ],
    ids=str,
)
def test_figures_that_make_no_sense_are_refused_in_the_api_too(options):
    with pytest.raises(RoofcastError):
        calc.estimate(*PAIR, **options)


# --- every shipped model -----------------------------------------------------------------------------------------------------------


def test_every_shipped_model_answers_on_a_large_node():
    """Where it fits there are ordered times; where it does not, there are none. No figure is ever not a number."""
    for entry in catalog.entries("model"):
        found = calc.estimate(entry.id, "b200-sxm")
        for phase in (found.prefill, found.decode):
            if phase is None:
                continue
            time = phase.time_s
            if found.fit.fits:
                assert 0 < time.floor <= time.low <= time.expected <= time.high < math.inf, entry.id
            else:
                assert time.expected is None, entry.id
            assert all(not math.isnan(v) for v in dataclasses.asdict(phase.totals).values()), entry.id


# --- arrays ------------------------------------------------------------------------------------------------------------------------

BATCHES = [1, 2, 7, 64, 500]
CONTEXTS = [1, 15, 1024, 4097, 131072]
MIXED = decoder(
    hidden=512,
    layers=6,
    mixers=[attention(8, 2, 64), attention(8, 2, 64, "sliding", window=1000), attention(8, 2, 64, "chunked", chunk=300)],
    width=1024,
    vocab=1000,
)
TOTALS = ("flops", "vector_flops", "weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "network_bytes", "bytes")


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("model", [llama("8b"), MIXED], ids=["llama", "mixed"])
@pytest.mark.parametrize("phase", [work.decode, work.prefill], ids=["decode", "prefill"])
def test_a_grid_of_arrays_equals_numbers_one_by_one(model, phase, tp):
    settled = deployment(model, device(), tensor_parallel_size=tp)
    batch, context = np.array(BATCHES)[:, None], np.array(CONTEXTS)[None, :]
    grid = evaluate(settled, phase(batch, context))
    for i, b in enumerate(BATCHES):
        for j, c in enumerate(CONTEXTS):
            single = evaluate(settled, phase(b, c))
            for name in TOTALS:
                ours = np.broadcast_to(getattr(grid.totals, name), (len(BATCHES), len(CONTEXTS)))[i, j]
                assert ours == pytest.approx(getattr(single.totals, name), rel=1e-12), name
            for name in ("floor", "low", "expected", "high"):
                assert getattr(grid.time_s, name)[i, j] == pytest.approx(getattr(single.time_s, name), rel=1e-12), name
            assert grid.timed.floor_overlapped_s[i, j] == pytest.approx(single.timed.floor_overlapped_s, rel=1e-12)
            assert grid.tokens_per_s.expected[i, j] == pytest.approx(single.tokens_per_s.expected, rel=1e-12)
            assert grid.arithmetic_intensity[i, j] == pytest.approx(single.arithmetic_intensity, rel=1e-12)


def test_a_prefix_hit_may_vary_over_an_array():
    settled = deployment(MIXED, device())
    hits = np.array([0, 1, 500, 999, 1000, 2000])
    grid = evaluate(settled, work.prefill(3, 1000, hits))
    for i, hit in enumerate(hits.tolist()):
        assert grid.time_s.expected[i] == pytest.approx(evaluate(settled, work.prefill(3, 1000, hit)).time_s.expected, rel=1e-12)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint32, np.float64])
@pytest.mark.parametrize(("batch", "length"), [(1, 131072), (8, 131072), (1024, 16384), (1 << 16, 1 << 16)])
def test_arrays_of_any_number_type_never_wrap_around(kind, batch, length):
    """A long prompt has more pairs than 32 bits hold, a large batch of it more FLOP than 64."""
    settled = deployment(llama("405b"), device())
    exact = evaluate(settled, work.prefill(batch, length))
    grid = evaluate(settled, work.prefill(np.array([batch], dtype=kind), np.array([length], dtype=kind)))
    for name in TOTALS:
        found = np.broadcast_to(getattr(grid.totals, name), (1,))[0]
        assert float(found) == pytest.approx(float(getattr(exact.totals, name)), rel=1e-9), name
    assert float(grid.time_s.floor[0]) == pytest.approx(exact.time_s.floor, rel=1e-9)


def test_a_large_grid_is_one_evaluation():
    """A thousand batches by a hundred contexts of Llama 70B."""
    settled = deployment(llama("70b"), device())
    batch, context = np.arange(1, 1001)[:, None], np.arange(1, 101)[None, :] * 1000
    grid = evaluate(settled, work.decode(batch, context))
    assert grid.time_s.expected.shape == (1000, 100)
    assert np.isfinite(grid.time_s.expected).all()
    assert (np.diff(grid.time_s.expected, axis=1) > 0).all()
