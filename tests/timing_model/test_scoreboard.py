"""The scoreboard of speeds: its contract, its bars on the shipped effects, names, stand-ins and records that are skipped."""

from __future__ import annotations

import copy
import json
from functools import cache

import pytest
import yaml

from benchmarks import speed
from benchmarks.speed_model import first_token, spellings
from benchmarks.speed_model.cases import KINDS, build
from benchmarks.speed_model.cross_validation import folds, predict
from calc.operators.parameters import count_parameters
from calc.profiles import catalog
from calc.timing.calibrated import DEVICE_UNSEEN, ENGINE_UNSEEN
from calc.timing.efficiency import effect_files

records = cache(spellings.records)


def test_no_record_of_a_listed_device_is_predicted_for_a_stand_in():
    listed = {d.id for d in catalog.entries("hardware")}
    stand_ins = {d.id for d in map(spellings.device, records()) if d is not None and "unlisted" in d.unit_of_account}
    assert stand_ins
    assert not stand_ins & listed


@pytest.fixture(scope="module")
def board():
    return speed.scoreboard()


def test_the_board_has_the_fields_that_readers_expect(board):
    assert {"n", "scored", "skipped", "by_group", "overall", "records"} <= board.keys()
    assert board["n"] == len(records())
    assert set(board["overall"]) == set(KINDS)
    for scores in board["overall"].values():
        assert {"median_ape", "p90_ape", "bias", "coverage", "median_width", "mape", "n"} <= scores.keys()
    for row in board["records"]:
        assert {"id", "quantity", "predicted", "low", "high", "reported", "error"} <= row.keys()
        assert row["low"] <= row["predicted"] <= row["high"]
        assert row["error"] == pytest.approx(row["predicted"] / row["reported"] - 1)
    json.dumps(board)


def test_nine_in_ten_records_of_every_kind_are_scored_and_the_rest_say_why(board):
    for kind in KINDS:
        asked = [r for r in records() if r["kind"] == kind and not r.get("suspect") and r["engine"] != "tt-metal"]
        assert board["overall"][kind]["n"] >= 0.9 * len(asked)
    assert all(row["why"] for row in board["skipped"])


def test_no_record_that_is_not_suspect_beats_its_floor(board):
    assert board["beats_floor"] == []


def test_the_shipped_effects_describe_the_records_they_were_fitted_on(board):
    """Far inside of the bars for records that a fit has not seen; a slip in an operator's bytes or in a profile shows here."""
    most = {
        "decode": (0.04, 0.02),
        "prefill": (0.07, 0.05),
        "serving": (0.10, 0.06),
        "gemm": (0.08, 0.06),
        "bandwidth": (0.03, 0.03),
    }
    for kind, (mean, median) in most.items():
        assert board["overall"][kind]["mape"] < mean
        assert board["overall"][kind]["median_ape"] < median
    for kind in ("decode", "prefill"):
        assert board["ranking"][kind]["right"] > 0.98
        assert board["ranking"][kind]["right"] >= board["ranking"][kind]["right_by_floor"]


# --- records that nobody has seen ------------------------------------------------------------------------------------------------


def _one(kind="decode", **changes):
    record = copy.deepcopy(next(r for r in records() if r["kind"] == kind and r["engine"].startswith("llama.cpp CUDA")))
    record.update(changes)
    return record


def _predicted(record):
    (case,), _ = build([record])
    return predict(case, effect_files())


def test_an_unlisted_device_is_predicted_from_the_rates_of_its_record():
    known = _one(gpu="RTX 4090")
    assert _predicted(known).level != DEVICE_UNSEEN
    unlisted = _one(gpu="GeForce RTX 5099", roofline={"peak_tflops_per_gpu": 300.0, "mem_gb_per_s_per_gpu": 2000.0})
    found = _predicted(unlisted)
    assert found.level == DEVICE_UNSEEN
    assert found.case.setting.hardware.memory_bandwidth_gb_per_s == 2000.0
    assert found.low_s < found.predicted_s < found.high_s
    (without,) = build([_one(gpu="GeForce RTX 5099", roofline={})])[1]
    assert "rates not stated" in without.why


def test_an_unlisted_model_is_a_decoder_of_its_size():
    for billions in (0.3, 1.5, 8.0, 70.0, 405.0):
        profile = spellings.model({"model": "Nobody's-Model", "params_b": billions})
        assert profile is not None
        assert _parameters(profile) == pytest.approx(billions * 1e9, rel=0.06)
    mixture = spellings.model({"model": "Nobody's-MoE", "params_b": 30.0, "active_params_b": 3.0})
    assert mixture is not None
    assert _parameters(mixture) == pytest.approx(30e9, rel=0.1)
    (skipped,) = build([_one(model="Nobody's-Model", params_b=None)])[1]
    assert "size not stated" in skipped.why


def _parameters(profile):
    return count_parameters(profile).total


def test_an_unknown_engine_keeps_its_name_and_falls_back():
    found = _predicted(_one(engine="Somebody's Engine"))
    assert found.case.setting.engine == "somebody-s-engine"
    assert found.level == ENGINE_UNSEEN


def test_answers_are_not_used_to_predict():
    one = _one()
    other = _one(measured={"tokens_per_s": 1.0}, notes="changed", suspect=False)
    assert _predicted(one).predicted_s == _predicted(other).predicted_s


def test_a_record_of_an_unknown_kind_or_without_a_time_is_skipped_with_its_reason():
    _, skipped = build([_one(kind="decode") | {"kind": "training"}, _one(measured={"mfu": 0.5})])
    assert [s.why for s in skipped] == ["unknown kind training", "neither a time nor a rate was measured"]


@pytest.mark.parametrize("scheme", ["cell", "device", "model", "engine"])
def test_folds_keep_groups_together_and_hold_every_case_once(scheme):
    cases, _ = build(records())
    parts = folds(cases, scheme)
    assert sorted(i for part in parts for i in part) == list(range(len(cases)))
    where = {}
    for number, part in enumerate(parts):
        for i in part:
            assert where.setdefault(cases[i].groups[scheme], number) == number


def test_a_file_of_records_can_be_named_and_cross_validated(tmp_path, capsys):
    path = tmp_path / "few.yaml"
    path.write_text(yaml.safe_dump([r for r in records() if r["kind"] == "bandwidth"]))
    assert speed.main(["--records", str(path), "--cross-validate", "device"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["overall"]) == ["bandwidth"]
    assert printed["overall"]["bandwidth"]["median_ape"] < 0.08


def test_first_tokens_of_closed_loops_are_told_by_engine():
    found = first_token.told(records())
    assert found.keys() == {"vllm", "sglang", "tensorrt-llm"}
    assert all(one.ratio > 0.5 for own in found.values() for one in own)  # none waits less than half of what is expected
    assert all(one.held for engine in ("vllm", "tensorrt-llm") for one in found[engine])
    said = first_token.section(records())
    assert all(f"| {engine} | {len(own)} |" in said for engine, own in found.items())
    overloaded = [dict(r, measured=r["measured"] | {"ttft_ms": 1e9}) for r in records() if r["measured"].get("ttft_ms")]
    assert first_token.told(overloaded) == {}
