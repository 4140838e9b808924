"""Run files that somebody edited and signed anew: each is refused with the place, or it is answered; nothing else."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from random import Random

import pytest

from calc.errors import ProfileError, RoofcastError
from calc.measure import run_file, run_reader
from calc.measure.comparing.differences import differences
from calc.measure.comparing.evaluation import evaluate, gate
from calc.measure.fitting import fit as fitting
from calc.measure.fitting.fitted_profile import fit_runs
from calc.profiles.writer import efficiency_yaml
from calc.report import differences as differences_report
from calc.report import table
from calc.report.measured import html_page
from calc.report.measured import summary as report
from tests.measure.test_chain import hardware
from tests.measure.test_report import measured

SAMPLED = 25  # places an edit; all of them take minutes
QUICK = partial(fitting.fit, bootstrap=5)  # draws of an interval, which refuse nothing
WRONG = (None, -1, 0, 1e300, "x", [], {}, [None], {"m": None}, True)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("run") / "run.json", hardware=hardware(bf16=5.0))[0]


def places(node, place=()):
    """Every place of a run once per kind: of a list only the first and the last element."""
    if place:
        yield place
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*place, key))
    elif isinstance(node, list):
        for index in sorted({0, len(node) - 1} if node else ()):
            yield from places(node[index], (*place, index))


def edited(run, place, value):
    """A copy with one value replaced, signed anew; only the containers on the way are copied."""
    made = top = copy.copy(run)
    for key in place[:-1]:
        made[key] = copy.copy(made[key])
        made = made[key]
    made[place[-1]] = value
    return top | {"digest": run_file.digest(top)}


def without(run, place):
    made = copy.deepcopy(run)
    node = made
    for key in place[:-1]:
        node = node[key]
    del node[place[-1]]
    return made | {"digest": run_file.digest(made)}


def answer(run, good, monkeypatch):
    """All that fit and report make of a run; the file itself is left out for speed."""
    monkeypatch.setattr(run_file, "content", lambda path: b"")
    monkeypatch.setattr(run_file, "parsed", lambda raw, path: run)
    monkeypatch.setattr(fitting, "fit", QUICK)
    loaded, content_hash = run_reader.load(Path("run.json"))
    record = evaluate(loaded, content_hash)
    table.plain(report.page(record, gate(record, 0.1)))
    report.rows(record)
    html_page.html(record)
    both = differences(loaded, good)
    differences_report.html(both, ("a", "b"))
    table.plain(differences_report.page(both))
    efficiency_yaml(fit_runs([loaded], [content_hash]))


def small(run):
    """The run with few cases, so that many edits are quick; what stays agrees with itself."""
    kept = [c for c in run["cases"] if c["class"] != "composite"][::6] + [c for c in run["cases"] if c["class"] == "composite"][:1]
    ids = {c["id"] for c in kept}
    rows = [o for o in run["operators"] if o["case_id"] in ids]
    chosen = [c for c in run["ceilings"] if c["chosen"]]
    made = run | {"cases": kept, "operators": rows or run["operators"][:1], "ceilings": chosen}
    ids_of_rows = {o["case_id"] for o in made["operators"]}
    made["cases"] = kept + [c for c in run["cases"] if c["id"] in ids_of_rows - ids]
    return made | {"digest": run_file.digest(made)}


def fault_of(run, good, monkeypatch):
    """What was raised, None for an answer."""
    try:
        answer(run, good, monkeypatch)
    except Exception as fault:
        return fault
    return None


@pytest.mark.parametrize("value", WRONG, ids=json.dumps)
def test_any_value_is_refused_with_its_place_or_answered(good, value, monkeypatch):
    run = small(good)
    for place in Random(json.dumps(value)).sample(sorted(places(run), key=str), SAMPLED):
        fault = fault_of(edited(run, place, value), run, monkeypatch)
        assert fault is None or (isinstance(fault, RoofcastError) and fault.hint), (place, fault)
        assert not isinstance(fault, ProfileError) or str(fault).startswith("run.json"), (place, fault)


def test_any_missing_key_is_refused_or_answered(good, monkeypatch):
    run = small(good)
    for place in Random(1).sample(sorted(places(run), key=str), SAMPLED):
        fault = fault_of(without(run, place), run, monkeypatch)
        assert fault is None or (isinstance(fault, RoofcastError) and fault.hint), (place, fault)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("environment", "device"), "gpu"),
        (("ceilings", 0, "value_interval"), -1),
        (("cases", 0, "shape", "m"), [None]),
        (("operators", 0, "bytes_by_kind"), {"weight": 1.0}),
    ],
)
def test_what_reports_use_is_checked_before(good, place, value, monkeypatch):
    with pytest.raises(ProfileError, match=place[0]):
        answer(edited(good, place, value), good, monkeypatch)
