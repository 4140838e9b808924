"""A round of drafts operator by operator: its steps are those that speculation averages; without drafts there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.operators import work
from calc.operators.parameters import next_token_weights
from calc.serving import estimate as serving
from calc.serving.deployment import DeploymentOptions, MemoryOptions
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from calc.serving.speculation import draft_for, speculate
from calc.timing.step_time import NO_TIME
from tests.support.cli import answered
from tests.support.profiles import attention, decoder, deployment, device, loaded

SMALL = decoder(hidden=512, layers=4, mixers=attention(8, 2, 64), width=2048, vocab=32000, id="small")
JOINING = [
    {"name": "joining_proj", "elements": 2 * 512 * 512, "kind": "matrix"},
    {"name": "joining_norms", "elements": 1536, "kind": "vector"},
]
PREDICTING = decoder(
    hidden=512, layers=4, mixers=attention(8, 2, 64), width=2048, vocab=32000, id="predicting",
    next_token_layers={"count": 1, "layers": ["kind0"], "extras": JOINING},
)  # fmt: skip


def drafting(tokens: int, model=PREDICTING, **options):
    return deployment(model, device(), memory=MemoryOptions(speculative_tokens=tokens), **options)


def figures(phase):
    return phase.totals, phase.time_s, [(o.name, o.count, o.flops, o.bytes) for o in phase.operators]


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 64), prompt=st.integers(1, 2048), output=st.integers(1, 64))
def test_no_drafts_are_plain_decode_to_the_last_operator(batch, prompt, output):
    workload = Workload(batch, prompt, output)
    plain = serving.roofline(deployment(PREDICTING, device()), workload, ("prefill", "decode"))
    none = serving.roofline(drafting(0), workload, ("prefill", "decode"))
    assert none.round is plain.round is None
    assert figures(none.decode) == figures(plain.decode)


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 64), context=st.integers(2, 4096), drafts=st.integers(1, 8))
def test_a_round_is_its_drafts_and_one_check_of_all_of_them(batch, context, drafts):
    target = drafting(drafts)
    found = serving.roofline(target, Workload(batch, 1, 1, context_len=context), ("decode",)).round
    assert found.verify.work.tokens == batch * (1 + drafts)
    assert figures(found.verify) == figures(evaluate(target, work.decode(batch, context + drafts, 1 + drafts)))
    assert found.time_s.expected == pytest.approx(found.verify.time_s.expected + drafts * found.draft.time_s.expected)
    assert found.time_s.floor <= found.time_s.low <= found.time_s.expected <= found.time_s.high


def test_the_steps_are_those_that_speculation_averages():
    target = drafting(3)
    workload = Workload(4, 1000, 2)  # one decode step: the mean is that step
    found = serving.roofline(target, replace(workload, context_len=1001), ("decode",)).round
    mean = speculate(target, workload, draft_for(target, (0.5,)), NO_TIME)
    assert found.draft.time_s.expected == pytest.approx(mean.draft_s.expected)
    assert found.verify.time_s.expected == pytest.approx(mean.verify_s.expected)
    assert found.time_s.expected == pytest.approx(mean.round_s.expected)


def test_a_draft_step_reads_every_weight_of_the_next_token_layers_and_the_head():
    found = serving.roofline(drafting(1), Workload(1, 8, 1), ("decode",)).round.draft
    own = sum(2 * h.weight.elements * h.count for h in next_token_weights(PREDICTING))
    head, final_norm = 2 * 512 * 32000, 2 * 512
    assert found.totals.weight_bytes == own + head + final_norm
    assert {"joining_proj", "joining_norms", "qkv_proj", "lm_head"} <= {o.name for o in found.operators}


def test_weights_of_the_joining_matrix_multiply_every_token_of_the_draft():
    found = serving.roofline(drafting(2), Workload(5, 8, 1), ("decode",)).round.draft
    (joining,) = [o for o in found.operators if o.name == "joining_proj"]
    assert joining.flops == 2 * 5 * 2 * 512 * 512


def test_a_model_without_next_token_layers_shows_the_check_alone():
    found = serving.roofline(drafting(2, SMALL), Workload(1, 8, 1), ("decode",)).round
    assert found.draft is None
    assert found.time_s == found.verify.time_s


def test_a_named_draft_model_and_lookups_are_shown_too():
    target = drafting(2)
    workload = Workload(1, 64, 8)
    named = serving.estimate(target, workload, draft_for(target, (0.5,), loaded(SMALL))).round
    assert {o.layers for o in named.draft.operators} >= {"kind0"}
    assert serving.estimate(target, workload, draft_for(target, (0.5,), looked_up=True)).round.draft is None


def test_what_does_not_fit_has_no_time():
    target = deployment(PREDICTING, device(memory_reported_mib=64.0), memory=MemoryOptions(speculative_tokens=2), engine="ideal")
    found = serving.roofline(target, Workload(), ("decode",))
    assert not found.fit.fits
    assert found.round.time_s == NO_TIME


@pytest.mark.parametrize("command", ["roofline", "estimate"])
def test_answers_show_the_round_only_where_drafts_are_asked_for(command):
    asked = (command, "deepseek-v3", "h200-sxm-141gb", "-tp", "8", "--json")
    plain, drafted = (answered(*asked, "--speculative-tokens", n).json["results"] for n in ("0", "2"))
    assert not {"draft", "verify", "round_s"} & plain.keys()
    assert drafted["decode"] == plain["decode"]
    assert drafted["round_s"]["expected"] == pytest.approx(
        drafted["verify"]["time_s"]["expected"] + 2 * drafted["draft"]["time_s"]["expected"]
    )
    assert ("operators" in drafted["draft"]) == (command == "roofline")


def test_the_table_and_the_rows_name_draft_and_check():
    asked = ("roofline", "deepseek-v3", "h200-sxm-141gb", "-tp", "8", "--speculative-tokens", "2", "--phase", "decode")
    page = answered(*asked).stdout
    assert "speculative round" in page
    assert "2 times a round" in page
    rows = answered(*asked, "-f", "csv").stdout.splitlines()
    assert {r.split(",")[0] for r in rows[1:]} == {"decode", "draft", "verify"}


def test_the_model_s_extras_outside_its_layers_are_work():
    found = calc.roofline("gemma-3n-e4b-it", "h100-sxm5-80gb")
    (projection,) = [o for o in found.decode.operators if o.name == "per_layer_projection"]
    assert projection.flops == 2 * 18350080
    assert "per_layer_embedding" not in {o.name for o in found.decode.operators}


def test_python_takes_speculative_tokens_too():
    found = calc.roofline_deployment(
        calc.deploy(
            "deepseek-v3", "h200-sxm-141gb", DeploymentOptions(tensor_parallel_size=8, memory=MemoryOptions(speculative_tokens=1))
        ),
        Workload(),
        ("decode",),
    )
    assert 0 < found.round.draft.time_s.expected < found.decode.time_s.expected
