"""``--verbose``: every profile that was read with its path and digest, what times rest on, and each default; standard output unchanged."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.support.cli import ROOT, answered, run

PAIR = ("llama-3.1-8b", "l40s")
DEVICE = ROOT / "hardware_profiles" / "nvidia" / "l40s.yaml"


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", *PAIR), ("roofline", *PAIR), ("capacity", *PAIR), ("request", *PAIR), ("hardware", "show", "l40s"),
        ("sweep", *PAIR), ("compare", " ".join(PAIR), " ".join(PAIR)),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_profiles_are_named_with_path_and_digest(words):
    told = run(*words, "--verbose")
    assert told.stdout == answered(*words).stdout
    digest = hashlib.sha256(DEVICE.read_bytes()).hexdigest()
    assert f"read: hardware l40s from {DEVICE} (sha256 {digest})\n" in told.stderr
    assert "read:" not in run(*words).stderr


def test_each_default_is_told_and_what_was_given_is_not():
    told = answered("estimate", *PAIR, "-b", "4", "--kv-cache-dtype", "fp8", "--verbose")
    defaults = dict(re.findall(r"(?m)^default: (\S+) (.+)$", told.stderr))
    assert defaults["input_len"] == "1024"
    assert defaults["engine"] == "vllm"
    assert (
        float(defaults["gpu_memory_utilization"]) == answered("capacity", *PAIR, "--json").json["inputs"]["gpu_memory_utilization"]
    )
    assert not defaults.keys() & {"batch_size", "kv_cache_dtype"}
    assert "times: effects fitted to published speeds of vllm" in told.stderr


def test_the_efficiency_file_is_named(tmp_path: Path):
    source = ROOT / "hardware_profiles" / "efficiency" / "default.yaml"
    folder = tmp_path / "efficiency"
    folder.mkdir()
    (folder / "l40s.yaml").write_bytes(source.read_bytes())
    own = run("estimate", *PAIR, "--verbose", env={"ROOFCAST_HOME": str(tmp_path)})
    assert f"from {folder / 'l40s.yaml'}\n" in own.stderr
    given = run("estimate", *PAIR, "--verbose", "--efficiency", str(source))
    assert f"from {source}\n" in given.stderr


def test_run_names_what_its_scenarios_read_once(tmp_path: Path):
    path = tmp_path / "s.yaml"
    one = "  - {{name: {}, model: llama-3.1-8b, hardware: l40s, expect: {{fits: true}}}}\n"
    path.write_text("scenarios:\n" + one.format("a") + one.format("b"), encoding="utf-8")
    told = run("run", str(path), "--verbose")
    assert told.code == 0, told.stderr
    assert told.stderr.count("read: hardware l40s") == 1


def test_quiet_and_verbose_contradict():
    outcome = run("estimate", *PAIR, "--quiet", "--verbose")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "contradict" in outcome.stderr
