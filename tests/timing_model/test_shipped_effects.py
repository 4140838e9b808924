"""The effect files that ship: data with an origin, small, and what the fit gives on the shipped records."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from benchmarks import fit_efficiency
from benchmarks.speed_model.cases import build
from benchmarks.speed_model.export import effects_of, export, rounded
from benchmarks.speed_model.regression import Design, fit
from benchmarks.speed_model.spellings import SPEEDS, records
from benchmarks.speed_model.structure import SPECS
from calc.timing.calibrated import DEVICE_UNSEEN, ENGINE_UNSEEN, KNOWN
from calc.timing.efficiency import effect_files, effects_folder

FILES = effect_files()


def test_there_is_one_shared_file_and_one_for_each_engine():
    assert {"shared", "kernels", "llama.cpp", "vllm", "tensorrt-llm", "sglang"} <= FILES.keys()
    for identifier in FILES:
        assert (effects_folder() / fit_efficiency.file_name(identifier)).is_file()


@pytest.mark.parametrize("identifier", sorted(FILES))
def test_files_are_small_and_name_the_records_they_were_fitted_on(identifier):
    path = effects_folder() / fit_efficiency.file_name(identifier)
    assert path.stat().st_size <= fit_efficiency.MAX_BYTES
    assert FILES[identifier].records_sha256 == hashlib.sha256(SPEEDS.read_bytes()).hexdigest()
    assert "benchmarks.fit_efficiency" in FILES[identifier].origin


@pytest.mark.parametrize("identifier", sorted(FILES))
def test_every_effect_has_five_digits_a_deviation_and_a_count(identifier):
    for name, term in FILES[identifier].terms.items():
        assert name in SPECS
        effects = [e for level in term.levels.values() for e in level.effects.values()]
        for value, deviation, n in effects:
            assert rounded(value) == value
            assert rounded(deviation) == deviation > 0
            assert n > 0


def test_ranges_of_every_kind_are_calibrated_at_every_level():
    for calibration in FILES["shared"].kinds.values():
        assert calibration.ranges.keys() == {KNOWN, DEVICE_UNSEEN, ENGINE_UNSEEN}
        assert all(min(pair) > 0 for pair in calibration.ranges.values())


def _bandwidths():
    cases, _ = build(r for r in records() if r["kind"] == "bandwidth")
    return [case for case in cases if case.is_scored]


def test_a_fit_is_the_same_to_five_digits_in_any_order_of_the_records():
    cases = _bandwidths()
    found = []
    for order in (cases, cases, cases[::-1]):
        design = Design(order)
        files = export(design, order, fit(design, rounds=4))
        found.append(json.loads(fit_efficiency.text(files["shared"])))
    assert found[0] == found[1]
    assert not fit_efficiency._differs(found[0], found[2])


def test_a_planted_bandwidth_comes_out():
    """Twelve devices that stream at 70 % of their datasheet: the fit says 1/0.7, with little doubt."""
    cases = _bandwidths()
    for case in cases:
        case.__dict__["measured_s"] = case.floor_s / 0.7
    design = Design(cases)
    model = cases[0].model
    files = export(design, cases, fit(design, rounds=4))
    found = model(effects_of(files, cases[0].setting))
    assert found.factor("bandwidth.stream") == pytest.approx(1 / 0.7, rel=0.01)
    assert np.isfinite(found.expectation(cases[0].sizes).deviation)


@pytest.mark.slow
def test_the_shipped_files_are_what_the_fit_gives():
    assert fit_efficiency.main(["--check"]) == 0
