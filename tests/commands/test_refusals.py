"""Refusals that are easily forgotten: each comes with a hint, and with nothing on standard output."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calc import units
from tests.support.cli import ROOT, environment, run, run_inside

MODEL, DEVICE = "llama-3.1-8b", "h100-sxm5-80gb"
PAIR = (MODEL, DEVICE)
PLAN = ("plan", MODEL, "--hardware", DEVICE, "--max-gpus", "1")
MAIN = [sys.executable, "-c", "from calc.commands import main; main()"]
ERRORS = ("UsageError", "ProfileError", "MeasurementError", "UnknownNameError", "NoAnswerError", "RoofcastError")


def refused(capsys, monkeypatch, code, *arguments):
    outcome = run_inside(capsys, monkeypatch, *arguments)
    assert outcome.code == code, outcome.stderr
    assert outcome.stdout == ""
    first = [line for line in outcome.stderr.splitlines() if not line.startswith(("warning", "notice"))]
    assert first[0].startswith("error: "), outcome.stderr
    assert first[1].startswith("hint: "), outcome.stderr
    return "\n".join(first)


def test_every_error_says_what_to_do():
    """No error is raised without a hint, in any module."""
    bare = []
    for path in sorted((ROOT / "calc").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(call, ast.Call) and getattr(call.func, "id", None) in ERRORS
            if named and len(call.args) < 2 and not any(k.arg == "hint" for k in call.keywords):
                bare.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert bare == []


def test_every_class_of_errors_has_a_hint_of_its_own():
    from calc import errors

    for name in ERRORS:
        assert getattr(errors, name)("it is wrong", None).hint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("estimate", *PAIR, "-tp", "4", "-dcp", "3"), "sizes that would: 1, 2, 4"),
        (("estimate", *PAIR, "-pp", "33"), "at most 32"),
        (("estimate", *PAIR, "--engine", "llama.cpp", "-tp", "16", "-pp", "3"), "16 x pipeline parallel size 3"),
        (("sweep", *PAIR, "-b", "4..1"), "1..4"),
        (("sweep", *PAIR, "-b", "1..4:*1"), "at least 2"),
        (("sweep", *PAIR, "-b", "1-4"), "write 1..4, or with a step"),
        (("sweep", *PAIR, "-b", "1,1k:4k"), "write 1k..4k, or with a step"),
        ((*PLAN, "--request-rate", "0"), "leave it out"),
        ((*PLAN, "-i", "p50=8k,p95=1k"), "p50=1k,p95=8k"),
        ((*PLAN, "-i", "p50=1k,p50=2k"), "stands twice"),
        (("compare", f"{MODEL} '{DEVICE}", " ".join(PAIR)), "close every quote"),
        (("estimate", *PAIR, "-o", "x.foo"), ".svg"),
        (("estimate", *PAIR, "-o", ""), "names no file"),
        (("estimate", *PAIR, "--host-memory-bandwidth", "0"), "1 MB"),
        (("estimate", *PAIR, "--cpu-offload-gb", "1e30"), "TiB"),
        (("estimate", *PAIR, "-xy", "row"), "-xy"),
        (("request", *PAIR, "--json", "-o", "x.png"), "names a picture"),
        (("request", *PAIR, "-f", "csv", "-o", "x.png"), "names a picture"),
        (("estimate", *PAIR, "--speculative-tokens", "3"), "--draft-model"),
        (
            ("estimate", *PAIR, "--speculative-tokens", "3", "--acceptance", "0.7", "--draft-model", "whisper-large-v3"),
            "another vocabulary",
        ),
        ((*PLAN, "--request-rate", "1", "--disaggregated", "--engine-args"), "leave one of them out"),
        ((*PLAN, "--request-rate", "1", "--disaggregated", "--engine", "llama.cpp"), "vllm, sglang"),
        (("measure", "--list", "--only", ","), "names no case"),
        (("measure", "--list", "--only", ""), "names no case"),
        (("measure", "--list", "--budget", "-5"), "--budget"),
        (("measure", "--list", "--budget", "nan"), "--budget"),
        (("measure", "--list", "--device", "nope"), "unknown device"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_refusal_comes_with_a_hint(arguments, words, capsys, monkeypatch):
    assert words in refused(capsys, monkeypatch, 2, *arguments)


@pytest.mark.parametrize("command", ["estimate", "roofline", "request"])
def test_what_does_not_fit_has_no_picture(command, tmp_path, capsys, monkeypatch):
    target = tmp_path / "picture.svg"
    assert "nothing to draw" in refused(capsys, monkeypatch, 1, command, "llama-3.1-405b", DEVICE, "-o", str(target))
    assert not target.exists()


def test_layers_on_the_gpu_in_the_words_of_llama_cpp(capsys, monkeypatch):
    """``all`` and -1 are every layer, its default (llama.cpp tools/server/README.md)."""
    asked = ("estimate", MODEL, "l4", "--engine", "llama.cpp", "-q", "q4_k_m", "--json")
    plain = run_inside(capsys, monkeypatch, *asked).json["results"]
    for word in ("all", "-1"):
        assert run_inside(capsys, monkeypatch, *asked, "-ngl", word).json["results"] == plain


def test_the_list_of_cases_goes_into_a_file(tmp_path):
    target = tmp_path / "cases.csv"
    outcome = run("measure", "--list", "-o", str(target))
    assert (outcome.code, outcome.stdout) == (0, "")
    assert target.read_text(encoding="utf-8").startswith("id,phase")


# --- files --------------------------------------------------------------------------------------------------------------------

TRACES = {
    "short.csv": ("input,output,cached\n10,5,3\n10,5,11\n", "short.csv:3: cached 11"),
    "endless.csv": ("input,output,arrival\n10,5,inf\n", "endless.csv:2: arrival"),
    "far.csv": ("input,output,arrival\n10,5,1e300\n10,5,-1e300\n", "far.csv:2: arrival"),
    "words.csv": ("input,output\nten,5\n", "words.csv:2"),
    "none.csv": ("input,output\n", "no requests"),
    "other.csv": ("a,b\n1,2\n", "no column 'input'"),
}


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_refused_with_its_line(name, tmp_path, capsys, monkeypatch):
    content, words = TRACES[name]
    (tmp_path / name).write_text(content)
    assert words in refused(capsys, monkeypatch, 3, *PLAN, "--trace", str(tmp_path / name))


@pytest.mark.parametrize("command", [(*PLAN, "--trace"), ("report",), ("fit",), ("run",), ("check",), ("estimate", MODEL)])
def test_pipes_and_endless_devices_are_refused_at_once(command, tmp_path):
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        outcome = run(*command, path)
        assert outcome.code in (1, 3), outcome.stderr
        assert "not a regular file" in outcome.stdout + outcome.stderr


def test_a_log_may_come_from_a_pipe_but_not_from_an_endless_device(capsys, monkeypatch):
    assert "not a regular file" in refused(capsys, monkeypatch, 3, "reconcile", "/dev/zero", *PAIR)
    command = "exec \"$0\" -c 'from calc.commands import main; main()' reconcile <(yes nothing | head -c 100000)"
    done = subprocess.run(["bash", "-c", command, sys.executable], env=environment(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 3
    assert b"no memory line of a start-up log in" in done.stderr


PROFILE = (ROOT / "model_profiles/roofcast/toy-12d2.yaml").read_text(encoding="utf-8")
BROKEN = {
    "single": PROFILE.replace("hidden_size: 4096", "hidden_size: -1"),
    "tab": "\tid: x\n",
    "twice": PROFILE + "\nid: again\n",
    "empty": "",
    "list": "- 1\n",
    "deep": "a: " + "[" * 100 + "]" * 100,
    "nul": "id: \0\n",
    "word": "just words",
    "huge-number": PROFILE.replace("hidden_size: 4096", "hidden_size: " + "9" * 5000),
    "alias": "a: &b 1\nc: *b\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_profile_comes_with_a_hint_and_a_short_message(name, tmp_path, capsys, monkeypatch):
    path = tmp_path / f"{name}.yaml"
    path.write_text(BROKEN[name], encoding="utf-8")
    text = refused(capsys, monkeypatch, 3, "estimate", str(path), DEVICE)
    assert max(map(len, text.splitlines())) < 400


@pytest.mark.parametrize("name", ["missing.yaml", "loop.yaml", "pipe.yaml"])
def test_a_profile_that_cannot_be_opened_comes_with_a_hint(name, tmp_path, capsys, monkeypatch):
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    text = refused(capsys, monkeypatch, 3, "estimate", str(tmp_path / name), DEVICE)
    assert ("no such file" in text) == (name == "missing.yaml")


def test_rates_that_no_machine_has_are_refused(tmp_path, capsys, monkeypatch):
    text = (ROOT / "hardware_profiles/nvidia/h100-sxm5-80gb.yaml").read_text(encoding="utf-8")
    path = tmp_path / "slow.yaml"
    lines = ["memory_bandwidth_gb_per_s: 1.0e-300" if s.startswith("memory_bandwidth_gb_per_s") else s for s in text.splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "memory_bandwidth_gb_per_s" in refused(capsys, monkeypatch, 3, "estimate", MODEL, str(path))


def test_shares_that_no_kernel_reaches_are_refused(tmp_path, capsys, monkeypatch):
    text = (ROOT / "hardware_profiles/efficiency/default.yaml").read_text(encoding="utf-8")
    path = tmp_path / "slow.yaml"
    path.write_text(text.replace("low: 0.192", "low: 1.0e-300"), encoding="utf-8")
    refused(capsys, monkeypatch, 3, *PLAN, "--efficiency", str(path))


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("fits: maybe", "cannot equal"),
        ("tpot_s: {at_most: -1}", "below 0"),
        ("tpot_s: {at_least: 20ms, at_most: 10ms}", "exclude each other"),
        ("tpot_s: {equals: 20ms, at_most: 10ms}", "exclude each other"),
    ],
)
def test_an_expectation_that_nothing_can_meet_is_invalid(expected, words, tmp_path, capsys, monkeypatch):
    path = tmp_path / "scenarios.yaml"
    path.write_text(f"scenarios:\n  - {{name: a, model: {MODEL}, hardware: {DEVICE}, expect: {{{expected}}}}}\n", encoding="utf-8")
    text = refused(capsys, monkeypatch, 3, "run", str(path))
    assert words in text
    assert "scenarios.yaml:2:" in text


def test_scenarios_take_the_longer_name_of_gpu_layers(tmp_path, capsys, monkeypatch):
    path = tmp_path / "scenarios.yaml"
    head = f"scenarios:\n  - name: a\n    model: {MODEL}\n    hardware: l4\n"
    path.write_text(head + "    deployment: {engine: llama.cpp, n_gpu_layers: all}\n    expect: {fits: true}\n", encoding="utf-8")
    assert run_inside(capsys, monkeypatch, "run", str(path)).code == 0
    path.write_text(
        head + "    deployment: {engine: llama.cpp, n_gpu_layers: 1, gpu_layers: 2}\n    expect: {fits: true}\n", encoding="utf-8"
    )
    assert "n_gpu_layers" in refused(capsys, monkeypatch, 3, "run", str(path))


# --- streams ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
@pytest.mark.parametrize("arguments", [("estimate", *PAIR), ("roofline", *PAIR, "--plot"), ("estimate", *PAIR, "--json")], ids=len)
def test_any_encoding_of_the_terminal_will_do(env, arguments):
    if "--plot" in arguments:
        pytest.importorskip("plotille")
    outcome = run(*arguments, env=env)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.isascii()
    assert "?" not in outcome.stdout
    if "--json" in arguments:
        assert outcome.json == run(*arguments).json


def test_a_full_disk_is_wrong_usage_with_a_hint():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MAIN, "estimate", *PAIR, "--quiet"], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert done.returncode == 2
    assert [line.partition(b":")[0] for line in done.stderr.splitlines()] == [b"error", b"hint"]


def test_an_interrupted_sweep_says_so_and_leaves_the_file(tmp_path):
    target = tmp_path / "sweep.csv"
    target.write_text("old")
    wide = ("-b", "1..256", "--input-len", "1k..32k:64", "--output-len", "128..1024:128")
    process = subprocess.Popen(
        [*MAIN, "sweep", MODEL, f"{DEVICE},l4,h200-sxm-141gb", *wide, "--quiet", "-o", str(target)],
        env=environment(),
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(p.name.endswith(".part") for p in tmp_path.iterdir()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted: no file was written or changed" in said
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.csv"]


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-300)
@example(1e300)
def test_no_number_fills_a_line(value):
    for shown in (units.format_number, units.format_seconds, units.format_bytes, units.format_traffic, units.format_flops):
        assert len(shown(value)) <= 26
    assert len(units.format_percent(value)) <= 26


# --- width --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("roofline", *PAIR, "--plot"), (*PLAN, "--request-rate", "1e-12"), ("estimate", *PAIR, "--request-rate", "1e-12")],
    ids=lambda a: a[0],
)
def test_nothing_is_wider_than_a_pipe(arguments):
    if "--plot" in arguments:
        pytest.importorskip("plotille")
    assert max(map(len, run(*arguments).stdout.splitlines())) <= 80


def test_a_launch_block_can_be_pasted():
    """Notes stay comments when they are wrapped, and no word of the command is cut."""
    from calc.report.plan.page import lines
    from calc.report.table import Column, Page, Table, plain
    from calc.serving.launch.command import Launch

    started = Launch(("vllm", "serve", "--config", "x" * 200), ("a note of many words " * 12,))
    block = plain(Page(tables=[Table((Column("", whole=True),), [[line] for line in lines(started)])]), 80).splitlines()
    assert len([line for line in block if line.startswith("# ")]) > 2
    commands = [line for line in block if not line.startswith("# ")]
    assert all(line.endswith(" \\") for line in commands[:-1])
    assert "x" * 200 in commands[-1]
