"""Bad input: an exit code that means something, one error line that names the place, nothing on standard output, never a traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.cli import ROOT, Outcome, run, run_inside

MODEL, DEVICE = "llama-3.1-8b", "h100-sxm5-80gb"
PAIR = (MODEL, DEVICE)
HUGE = "1e30"


def refused(outcome: Outcome, code: int) -> str:
    """Check the form of a failure; returns standard error."""
    assert "Traceback" not in outcome.stderr
    assert "fault of roofcast" not in outcome.stderr, outcome.stderr
    assert outcome.code == code, outcome.stderr
    assert outcome.stdout == ""
    lines = outcome.stderr.splitlines()
    assert sum(line.startswith("error:") for line in lines) == 1
    assert sum(line.startswith("hint:") for line in lines) <= 1
    return outcome.stderr


def fails(code: int, *arguments: str, **rest) -> str:
    return refused(run(*arguments, **rest), code)


@pytest.fixture
def fails_inside(capsys, monkeypatch):
    """As ``fails``, without a process of its own: for long tables of values."""
    return lambda code, *arguments: refused(run_inside(capsys, monkeypatch, *arguments), code)


# --- values -------------------------------------------------------------------------------------------------------------------

COUNTS = (
    "--batch-size",
    "--input-len",
    "--output-len",
    "--context-len",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--block-size",
    "--tensor-parallel-size",
    "--gpus",
)
SIZES = ("--gpu-memory", "--kv-cache-memory", "--weights-memory", "--activation-memory")
WORDS = {"negative": "-1", "zero": "0", "not a number": "nan", "infinite": "inf", "huge": HUGE, "a word": "many", "empty": ""}


@pytest.mark.parametrize("option", [*COUNTS, *SIZES])
@pytest.mark.parametrize("kind", WORDS)
def test_a_count_or_size_out_of_range_is_refused_by_name(fails_inside, option, kind):
    assert option in fails_inside(2, "estimate", *PAIR, option, WORDS[kind])


@pytest.mark.parametrize("kind", WORDS)
def test_a_batch_out_of_range_is_refused_in_a_process_of_its_own(kind):
    assert "--batch-size" in fails(2, "estimate", *PAIR, "-b", WORDS[kind])


@pytest.mark.parametrize("value", ["-0.1", "0", "1.01", "9", "90", "nan", "inf", HUGE, "much", ""])
def test_a_utilisation_outside_zero_to_one_is_refused(fails_inside, value):
    assert "--gpu-memory-utilization" in fails_inside(2, "estimate", *PAIR, "--gpu-memory-utilization", value)


@pytest.mark.parametrize("value", ["1.5", "32q", "12XB", "1,000.5", "0x10", "1 2", "--", "٣٢q", "1e-3"])
def test_a_batch_that_is_no_whole_number_is_refused(fails_inside, value):
    assert "batch-size" in fails_inside(2, "estimate", *PAIR, f"--batch-size={value}")


@pytest.mark.parametrize("value", ["80 XiB", "eighty GiB", "80GiBs", "1e999"])
def test_a_size_without_a_known_unit_is_refused(fails_inside, value):
    assert "--gpu-memory" in fails_inside(2, "estimate", *PAIR, "--gpu-memory", value)


@pytest.mark.parametrize("command", ["roofline", "capacity"])
def test_other_commands_refuse_the_same_values(command):
    assert "--max-model-len" in fails(2, command, *PAIR, "--max-model-len", "-5")


# --- splits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "divides"), [("3", "4"), ("5", "4"), ("7", "8"), ("6", "8")])
def test_a_tensor_parallel_size_that_does_not_divide_says_what_does(size, divides):
    text = fails(2, "estimate", *PAIR, "-tp", size)
    assert size in text
    assert divides in text.partition("hint:")[2].replace(",", " ").split()


def test_more_pipeline_stages_than_layers_are_refused():
    assert "32" in fails(2, "estimate", *PAIR, "-pp", "33")


def test_gpus_that_do_not_match_the_sizes_say_what_fits():
    assert "--gpus 2" in fails(2, "estimate", *PAIR, "--gpus", "3", "-tp", "2")


def test_gpus_beyond_the_scale_up_domain_say_how_to_split():
    assert "-pp" in fails(2, "estimate", *PAIR, "--gpus", "9")


# --- words --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("estimate", *PAIR, "--engine", "vlm"), "vllm"),
        (("estimate", *PAIR, "--dtype", "bf17"), "bf16"),
        (("estimate", *PAIR, "--quantization", "fp9"), "fp8"),
        (("estimate", *PAIR, "--kv-cache-dtype", "fp9"), "fp8"),
        (("estimate", *PAIR, "--format", "jsno"), "json"),
        (("roofline", *PAIR, "--phase", "decod"), "decode"),
        (("estimate", "lama-3.1-8b", DEVICE), "llama-3.1-8b"),
        (("estimate", MODEL, "h100-sxm5-80g"), "h100-sxm5-80gb"),
        (("models", "show", "toy-12d"), "toy-12d2"),
        (("hardware", "show", "h100-sxm5-80g"), "h100-sxm5-80gb"),
        (("schema", "modl"), "model"),
        (("estimat", *PAIR), "estimate"),
        (("estimate", *PAIR, "--batchsize", "3"), "--batch-size"),
        (("estimate", *PAIR, "--fusion", "fusd"), "fused"),
    ],
    ids=lambda value: " ".join(value[:1] + value[3:]) if isinstance(value, tuple) else value,
)
def test_an_unknown_word_is_refused_with_the_nearest_known_one(arguments, near):
    assert near in fails(2, *arguments)


def test_a_type_that_the_device_lacks_lists_what_it_has():
    text = fails(2, "estimate", MODEL, "t4", "--dtype", "bf16")
    assert "fp16" in text.partition("hint:")[2]


@pytest.mark.parametrize(
    "arguments", [("estimate",), ("estimate", MODEL), ("estimate", *PAIR, "surplus"), ("estimate", *PAIR, "-b")]
)
def test_missing_and_surplus_arguments_are_refused(arguments):
    fails(2, *arguments)


@pytest.mark.parametrize("arguments", [(), ("models",), ("hardware",)])
def test_without_a_command_the_help_is_readable(arguments):
    """Wrong usage, so nothing on standard output; but help is lines, not one long error."""
    outcome = run(*arguments)
    assert outcome.code in (0, 2)
    assert outcome.stdout == "" or outcome.code == 0
    text = outcome.stdout + outcome.stderr
    assert "Commands:" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_json_and_another_format_contradict_each_other():
    fails(2, "estimate", *PAIR, "--json", "--format", "csv")


def test_an_ambiguous_model_lists_its_candidates(tmp_path):
    source = (ROOT / "model_profiles/roofcast/toy-12d2.yaml").read_text(encoding="utf-8")
    for word in ("chat", "instruct"):
        name = f"twofold-{word}"
        (tmp_path / f"{name}.yaml").write_text(source.replace("id: toy-12d2", f"id: {name}"), encoding="utf-8")
    text = fails(2, "estimate", "twofold", DEVICE, "--profiles-dir", str(tmp_path))
    assert "twofold-chat" in text
    assert "twofold-instruct" in text


# --- files --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path) -> Path:
    source = (ROOT / "model_profiles/roofcast/toy-12d2.yaml").read_text(encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("id: [unclosed\n", encoding="utf-8")
    (tmp_path / "empty.yaml").write_text("", encoding="utf-8")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "wrong.yaml").write_text(source.replace("hidden_size: 4096", "hiden_size: -3"), encoding="utf-8")
    (tmp_path / "device.yaml").write_bytes((ROOT / "hardware_profiles/nvidia/h100-sxm5-80gb.yaml").read_bytes())
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with (tmp_path / "gigantic.yaml").open("wb") as file:
        file.truncate(1 << 40)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["missing.yaml", "broken.yaml", "empty.yaml", "binary.yaml", "wrong.yaml", "device.yaml", "folder.yaml", "config.json"]
)
def test_a_file_that_is_no_model_profile_is_invalid_input(files, name):
    assert name in fails(3, "estimate", str(files / name), DEVICE)


def test_a_gigantic_file_is_refused_at_once(files):
    assert "gigantic.yaml" in fails(3, "estimate", str(files / "gigantic.yaml"), DEVICE)


def test_a_device_that_never_ends_is_refused():
    assert "/dev/zero" in fails(3, "estimate", "/dev/zero", DEVICE)


def test_every_fault_of_a_profile_is_told_with_file_line_and_column(files):
    text = fails(3, "estimate", str(files / "wrong.yaml"), DEVICE)
    assert "wrong.yaml:7:1" in text
    assert "hidden_size" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_an_unreadable_file_is_refused(files):
    (files / "broken.yaml").chmod(0)
    fails(3, "estimate", str(files / "broken.yaml"), DEVICE)


def test_an_unreadable_efficiency_file_is_refused(files):
    fails(3, "estimate", *PAIR, "--efficiency", str(files / "missing.yaml"))
    fails(3, "estimate", *PAIR, "--efficiency", str(files / "broken.yaml"))


@pytest.mark.parametrize("target", ["/proc/answer.json", "/dev/null/answer.json", "{}/none/answer.json", "{}/folder.yaml"])
def test_a_place_that_cannot_be_written_is_refused(files, target):
    place = target.format(files)
    assert Path(place).name in fails(2, "estimate", *PAIR, "--format", "json", "--output", place)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    fails(2, "estimate", *PAIR, "--output", str(tmp_path / "answer.json"))


def test_an_output_suffix_that_means_nothing_is_refused(tmp_path):
    assert ".json" in fails(2, "estimate", *PAIR, "--output", str(tmp_path / "answer.xyz"))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_an_existing_output_file_whole(tmp_path):
    kept = tmp_path / "answer.json"
    kept.write_text("earlier", encoding="utf-8")
    fails(2, "estimate", *PAIR, "-b", "-1", "--output", str(kept))
    assert kept.read_text(encoding="utf-8") == "earlier"


def test_a_missing_folder_of_profiles_is_refused():
    fails(3, "estimate", *PAIR, "--profiles-dir", "/no/such/folder")
    fails(3, "estimate", *PAIR, env={"ROOFCAST_PROFILES": "/no/such/folder"})


def test_a_full_disk_is_an_error_and_no_traceback():
    import subprocess
    import sys

    from tests.support.cli import environment

    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from calc.commands import main; main()", "estimate", *PAIR],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
            check=False,
        )
    text = done.stderr.decode()
    assert done.returncode not in (0, -1)
    assert text.startswith("error:")
    assert "Traceback" not in text
    assert "Exception ignored" not in text
    assert "fault of roofcast" not in text


def test_debugging_shows_the_traceback():
    outcome = run("estimate", *PAIR, "-b", "-1", env={"ROOFCAST_DEBUG": "1"})
    assert "Traceback" in outcome.stderr
    assert outcome.stdout == ""


def test_a_broken_profile_elsewhere_in_the_folder_does_not_matter(files):
    shutil.rmtree(files / "folder.yaml")
    outcome = run("estimate", *PAIR, "--json", "--profiles-dir", str(files))
    assert outcome.code == 0, outcome.stderr


def test_a_file_that_fails_is_named_and_is_not_the_answer(capsys):
    from calc.commands import _failed

    assert _failed(PermissionError(13, "Permission denied", "x.yaml")) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: x.yaml: Permission denied\nhint: ")
