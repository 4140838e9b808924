from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import ProfileError
from calc.measure import run_file, run_reader
from calc.measure.cases.operators import workload
from tests.measure.simulated_device import Device, session, tiny_model


def test_round_trip_and_contract(tmp_path):
    path = tmp_path / "run.json"
    result = session(Device(), output=path).run(0, 20)
    run = run_file.parsed(run_file.content(path), path)
    assert run["schema"] == "roofcast.run/1"
    assert run["complete"]
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    assert {c["phase"] for c in run["cases"]} == {"prefill", "decode"}
    for case, measured in zip(run["cases"], result.cases, strict=True):
        assert case["flops"] > 0 or case["bytes"] > 0
        assert case["time_s"] == measured.time_s
        assert case["interval_method"] == "t-log-rounds"
        assert [r["median_s"] for r in case["rounds"]] == [r.median_s for r in measured.rounds]
        assert case["status"] in ("ok", "noisy", "unreliable", "failed")
    assert {c["name"] for c in run["ceilings"]} >= {"matmul", "read", "copy", "launch"}
    assert sum(c["chosen"] for c in run["ceilings"]) == len(result.ceilings)
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_written_after_every_round(tmp_path, monkeypatch):
    kept = []
    whole = run_file.write
    monkeypatch.setattr(
        run_file, "write", lambda run, path: (kept.append((run["complete"], run["settings"].copy())), whole(run, path))
    )
    session(Device(), output=tmp_path / "run.json").run(0, 30)
    assert [complete for complete, _ in kept] == [False] * 5 + [True]
    assert [s["rounds_finished"] for _, s in kept] == [1, 2, 3, 4, 5, 5]


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    path.write_text('{"schema": "roofcast.run/1", "old": true}')

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = session(Device(), output=path).run(0, 20)
    assert result.output is None
    assert [w.code for w in result.warnings].count("W_NOT_SAVED") == 1
    assert "No space left" in next(w.message for w in result.warnings if w.code == "W_NOT_SAVED")
    assert json.loads(path.read_text())["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_an_interrupted_write_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    run_file.write({"schema": run_file.SCHEMA, "n": 1}, path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_file.write({"schema": run_file.SCHEMA, "n": 2}, path)
    assert run_file.parsed(run_file.content(path), path)["n"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_not_a_number_never_reaches_a_file(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        run_file.write({"schema": run_file.SCHEMA, "x": float("nan")}, tmp_path / "run.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "run.json:1:1: no run file"),
        (b"{", "run.json:1:2: no run file"),
        (b'{\n "schema": "roofcast.run/1",\n "x": tru', "run.json:3:7: no run file"),
        (b'{\n "x": "\xff"}', "run.json:2:8: no run file: not UTF-8"),
        (b'{"x": [1,\n NaN]}', "run.json:1:10: no run file: NaN is no number"),
        (b'{"x": -Infinity}', "-Infinity is no number"),
        (b'{"x": ' + b"9" * 5000 + b"}", "run.json:1:7: no run file: a number with too many digits"),
        (b'{\n "model": {"name": "\\ud83d\\ude00 \\ud83d"}}', "run.json:2:34: no run file: \\ud83d is half a sign"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "is no run file"),
        (b'{"cases": []}', "is no run file"),
        (b'{"schema": ["roofcast.run/1"]}', "is no run file: schema"),
        (b'{"schema": "roofcast.run/9"}', "schema: 'roofcast.run/9' is of another version"),
        (b'{"schema": "roofcast.run/1"}', "operators: missing"),
    ],
    ids=range(14),
)
def test_foreign_files_are_refused_with_the_place(tmp_path, content, words):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError) as fault:
        run_reader.load(path)
    assert fault.value.exit_code == 3
    assert words in fault.value.message
    assert "\n" not in fault.value.message


def test_files_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with (tmp_path / "huge.json").open("wb") as huge:
        huge.truncate(run_file.MAX_RUN_BYTES + 1)
    refused = {"missing.json": "no such file", ".": "is a folder", "pipe.json": "not a regular file", "huge.json": "at most"}
    for name, words in refused.items():
        with pytest.raises(ProfileError, match=words) as fault:
            run_reader.load(tmp_path / name)
        assert fault.value.hint
    with pytest.raises(ProfileError, match="not a regular file"):
        run_reader.load(Path("/dev/zero"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The text of a good run file of few cases."""
    path = tmp_path_factory.mktemp("run") / "run.json"
    work = workload(tiny_model(), "bf16", only="attention:*")
    session(Device(), work=work, output=path).run(0, 3)
    run_reader.load(path)
    return path.read_text()


@given(st.data())
def test_no_prefix_of_a_run_file_is_one(written, tmp_path_factory, data):
    cut = data.draw(st.integers(0, len(written.rstrip()) - 1))
    path = tmp_path_factory.getbasetemp() / "cut.json"
    path.write_text(written[:cut])
    with pytest.raises(ProfileError, match=r"cut\.json:\d+:\d+: "):
        run_reader.load(path)


def places(value, path=()):
    """Every place of a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


ODD = (
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.just([])
    | st.just({})
)


@given(st.data())
def test_an_edited_file_is_refused(written, tmp_path_factory, data):
    """Whatever is put in whatever place: a fault with a place, never another exception."""
    run = json.loads(written)
    place = data.draw(st.sampled_from([p for p in places(run) if p]))
    holder = run
    for key in place[:-1]:
        holder = holder[key]
    before = holder[place[-1]]
    after = data.draw(ODD.filter(lambda new: json.dumps(new) != json.dumps(before)))
    holder[place[-1]] = after
    path = tmp_path_factory.getbasetemp() / "edited.json"
    path.write_text(json.dumps(run))
    with pytest.raises(ProfileError) as fault:
        run_reader.load(path)
    assert fault.value.message


def test_the_place_of_a_fault(written, tmp_path):
    path = tmp_path / "run.json"
    for change, words in (
        (lambda run: run["cases"][1].update(time_s=-1), "cases[1].time_s: Expected `float` > 0"),
        (lambda run: run["cases"][0]["rounds"][1].update(median_s=5.0), "cases[0].rounds[1].median_s: not the median"),
        (lambda run: run["settings"].update(seed=9), "digest: the file was edited"),
    ):
        run = json.loads(written)
        change(run)
        path.write_text(json.dumps(run))
        with pytest.raises(ProfileError) as fault:
            run_reader.load(path)
        assert words in fault.value.message
