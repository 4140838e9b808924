"""``measure`` from outside: what a terminal, a pipe and nobody sees of a run, and how it ends early. The device is a simulated one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calc.measure import run_reader
from tests.support.cli import ROOT, drained, environment, run, run_inside

#: The command with a device that lives in its own time and takes DELAY seconds of ours for each batch of samples.
PROGRAM = """
import sys, time
from pathlib import Path
from calc.commands import main
from calc.measure import session
from calc.measure.cases.operators import workload
from tests.measure import simulated_device as simulated

class Slow(simulated.SimulatedCase):
    def sample(self, repeats, count):
        time.sleep(DELAY)
        return super().sample(repeats, count)

class Device(simulated.Device):
    def prepare(self, case):
        super().prepare(case)
        return Slow(self, case)

def measure(model, *, output, progress, **_):
    tiny = simulated.tiny_model()
    work = workload(tiny, "bf16", input_len=256, only="gemm:*")
    return simulated.session(Device(noise=0.02), model=tiny, work=work, output=output, progress=progress).run(0, 5)

session.measure = measure
sys.argv = ["roofcast", "measure", "toy-12d2", *sys.argv[1:]]
main()
"""


def start(*arguments: str, delay: float = 0.0, **streams) -> subprocess.Popen:
    code = PROGRAM.replace("DELAY", str(delay))
    env = environment(TERM="xterm-256color", COLUMNS="100", LINES="20") | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, env=env, cwd=ROOT, **streams)


def until(words: bytes, read: Callable[[], bytes]) -> bytes:
    """What is read until the words come."""
    told = b""
    while words not in told:
        more = read()
        assert more, told.decode()
        told += more
    return told


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, what the terminal was sent) with standard error on a terminal."""
    reader, writer = os.openpty()
    process = start(*arguments, stderr=writer)
    os.close(writer)
    seen = drained(reader).decode()
    out = process.communicate(timeout=60)[0].decode()
    return process.returncode, out, seen


def test_a_terminal_gets_a_live_table_and_keeps_the_milestones():
    code, out, seen = on_a_terminal()
    assert code == 0
    assert "measured on Simulated" in out
    assert "\x1b" not in out
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    heading = next(line for line in plain.splitlines() if line.startswith("case "))
    assert heading.split() == ["case", "round", "median", "95", "%", "status"]
    assert re.search(r"round 2 of 5, case \d+ of \d+, about \d+ s left", plain)
    assert re.search(r"gate_up_proj/prefill/m256\S*\s+5/5\s+\d+ µs\s+\d+ µs - \d+ µs\s+ok", plain)
    assert re.search(r"\d+ cases and \d+ ceilings in 5 rounds", plain)
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1  # the cursor comes back
    assert "round 5 of 5 done" in plain.splitlines()


def test_a_pipe_gets_plain_lines():
    process = start(stderr=subprocess.PIPE)
    _, told = process.communicate(timeout=60)
    lines = told.decode().splitlines()
    assert process.returncode == 0
    assert "\x1b" not in told.decode()
    assert [line for line in lines if line.startswith("round")] == [f"round {n} of 5 done" for n in range(1, 6)]
    assert len(lines) < 12


def test_quiet_says_nothing():
    code, out, seen = on_a_terminal("--quiet")
    assert (code, seen) == (0, "")
    assert out


def test_no_color_takes_colour_from_the_table():
    assert not re.search(r"\x1b\[(?:\d+;)*3\d", on_a_terminal("--no-color")[2])


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path):
    path = tmp_path / "run.json"
    process = start("-o", str(path), delay=0.0005, stderr=subprocess.PIPE)
    process.stderr.readline()
    process.stderr.close()
    assert process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 0
    assert run_reader.load(path)[0]["complete"]


def test_a_run_file_that_cannot_be_written_is_no_success():
    """What reads the file next would take an older one for this run."""
    process = start("-o", "/dev/full", stderr=subprocess.PIPE)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"No space left" in told
    assert b"qkv_proj" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_a_signal_leaves_a_valid_named_file(tmp_path, number):
    path = tmp_path / "run.json"
    code, told = interrupted(number, "-o", str(path))
    assert code == 130
    assert f"interrupted: saved {path}" in told
    assert "Traceback" not in told
    written, _ = run_reader.load(path)
    assert not written["complete"]
    assert 2 <= written["settings"]["rounds_finished"] < 5
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_ctrl_c_without_a_file_says_that_nothing_was_saved():
    code, told = interrupted(signal.SIGINT)
    assert code == 130
    assert "nothing was saved (no -o)" in told


def test_ctrl_c_on_a_terminal_gives_the_cursor_back(tmp_path):
    path = tmp_path / "run.json"
    reader, writer = os.openpty()
    process = start("-o", str(path), delay=0.0005, stderr=writer)
    os.close(writer)
    seen = until(b"round 2 of 5 done", lambda: os.read(reader, 65536))
    process.send_signal(signal.SIGINT)
    seen += drained(reader)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1
    assert str(path).encode() in seen
    assert run_reader.load(path)


def interrupted(number: signal.Signals, *arguments: str) -> tuple[int, str]:
    """(exit code, standard error) of a run that gets a signal in its third round."""
    process = start(*arguments, delay=0.0005, stderr=subprocess.PIPE)
    told = until(b"round 2 of 5 done", process.stderr.readline)
    process.send_signal(number)
    rest = process.communicate(timeout=60)[1]
    return process.returncode, (told + rest).decode()


def test_an_ignored_signal_stays_ignored(tmp_path):
    path: Path = tmp_path / "run.json"
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{PROGRAM.replace('DELAY', '0.0005')}"
    env = environment() | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "-o", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT
    )
    until(b"round 1 of 5 done", process.stderr.readline)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_model_is_assumed_and_a_wrong_suite_refused():
    assumed, named = run("measure", "--list"), run("measure", "llama-3.1-8b", "--list")
    assert (assumed.code, assumed.stdout) == (0, named.stdout)
    for more in ((), ("--list",)):
        wrong = run("measure", "--suite", "quik", *more)
        assert (wrong.code, wrong.stdout) == (2, "")
        assert "unknown suite 'quik'" in wrong.stderr
        assert "quick, standard, full" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--device", "abacus"), 2, "unknown device 'abacus'"),
        (("--budget", "0"), 2, "--budget"),
        (("-o", "/nowhere/run.json"), 2, "cannot write /nowhere/run.json"),
        (("--only", "nothing:*"), 2, "no case matches"),
        (("--device", "xpu"), 4, "there is no xpu device here"),
    ],
)
def test_what_cannot_be_measured(options, code, words, capsys, monkeypatch):
    pytest.importorskip("torch")
    outcome = run_inside(capsys, monkeypatch, "measure", "toy-12d2", "--dtype", "bf16", "-q", "none", *options)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert words in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_the_answer_as_json():
    process = start("--json", "--quiet", stderr=subprocess.PIPE)
    out, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, b"")
    answer = json.loads(out)
    assert answer["schema"] == "roofcast.measure/1"
    results = answer["results"]
    assert results["noisy"] == []
    assert results["monitor"]["source"] == "simulated"
    assert "sm_clock_hz" in results["monitor"]["watched"]
    assert {p["phase"] for p in results["phases"]} == {"prefill", "decode"}
