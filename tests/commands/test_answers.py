"""Answers: the JSON contract key by key, human numbers, what does not fit, and what beats a warning."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.support.cli import Outcome, answered, run

MODEL, DEVICE = "llama-3.1-8b", "h100-sxm5-80gb"
PAIR = (MODEL, DEVICE)
ESTIMATE = ("estimate", *PAIR, "-b", "16", "-i", "2k", "--output-len", "256", "--json")
ROOFLINE = ("roofline", *PAIR, "--phase", "both", "--batch-size", "8", "--json")
CAPACITY = ("capacity", *PAIR, "-tp", "8", "--max-model-len", "32k", "--json")
LISTED = (
    ESTIMATE,
    ROOFLINE,
    CAPACITY,
    ("models", "list", "--json"),
    ("models", "show", MODEL, "--json"),
    ("hardware", "list", "--json"),
)

TIME = {"floor", "low", "expected", "high", "evidence"}
RATE = {"ceiling", "low", "expected", "high", "evidence"}
BYTES = {"weight_bytes", "activation_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes", "network_bytes"}
STEP = BYTES | {
    "tokens", "flops", "vector_flops", "bytes", "fusion_policy", "arithmetic_intensity", "arithmetic_intensity_weights_only",
    "arithmetic_intensity_weights_and_kv", "ridge_point", "bound", "time_s", "floor_overlapped_s", "tokens_per_s",
    "compute_utilization", "bandwidth_utilization",
}  # fmt: skip
OPERATOR = BYTES | {"name", "class", "layers", "count", "shape", "flops", "arithmetic_intensity", "bound", "time_s", "share"}
CAPACITY_KEYS = {
    "fits", "weights_bytes_per_gpu", "activation_bytes_per_gpu", "runtime_bytes_per_gpu", "graph_bytes_per_gpu",
    "kv_cache_bytes_per_gpu", "kv_bytes_per_token_per_gpu", "state_bytes_per_sequence_per_gpu", "block_tokens", "blocks", "kv_tokens",
    "max_concurrency", "max_context_tokens", "kv_bytes_per_sequence", "terms",
}  # fmt: skip
SHOW_KEYS = {
    "name", "parameters", "parameters_by_part", "parameters_text", "stored_elements", "active_parameters", "weights_bytes",
    "kv_bytes_per_token", "window_bytes_per_sequence_max", "state_bytes_per_sequence", "layers",
}  # fmt: skip


def results(*arguments: str) -> dict:
    return answered(*arguments).json["results"]


def values(node):
    """Every scalar of a JSON tree."""
    if isinstance(node, dict):
        for child in node.values():
            yield from values(child)
    elif isinstance(node, list):
        for child in node:
            yield from values(child)
    else:
        yield node


def ranges(node):
    """Every time and rate of a JSON tree."""
    if isinstance(node, dict):
        if "expected" in node and "evidence" in node:
            yield node
        for child in node.values():
            yield from ranges(child)
    elif isinstance(node, list):
        for child in node:
            yield from ranges(child)


# --- the envelope -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", LISTED, ids=lambda a: " ".join(a[:2]))
def test_envelope(arguments):
    outcome = answered(*arguments)
    document = outcome.json
    assert set(document) == {"schema", "version", "inputs", "profiles", "results", "warnings"}
    name, _, version = document["schema"].partition("/")
    assert name.startswith("roofcast.")
    assert version == "1"
    assert all(set(p) == {"kind", "name", "sha256"} for p in document["profiles"])
    assert all(len(p["sha256"]) == 64 and p["kind"] in ("model", "hardware") for p in document["profiles"])
    assert all(set(w) == {"code", "message"} for w in document["warnings"])
    assert outcome.stdout.endswith("\n")


@pytest.mark.parametrize("arguments", LISTED, ids=lambda a: " ".join(a[:2]))
def test_byte_counts_and_token_counts_are_whole_numbers(arguments):
    def walk(node, key=""):
        if isinstance(node, dict):
            for k, child in node.items():
                walk(child, k)
        elif isinstance(node, list):
            for child in node:
                walk(child, key)
        elif isinstance(node, float) and (
            key.endswith("_bytes") or key.endswith("_bytes_per_gpu") or key in ("blocks", "kv_tokens")
        ):
            assert not node.is_integer(), f"{key}: {node} is a whole number written as a float"

    walk(results(*arguments))


@pytest.mark.parametrize(("arguments", "schema"), [(ESTIMATE, "estimate"), (ROOFLINE, "roofline"), (CAPACITY, "capacity")])
def test_schema_names_the_command_and_its_version(arguments, schema):
    assert answered(*arguments).json["schema"] == f"roofcast.{schema}/1"


@pytest.mark.parametrize("arguments", [ESTIMATE, ROOFLINE, CAPACITY], ids=lambda a: a[0])
def test_both_profiles_are_named_with_their_digest(arguments):
    import hashlib
    from pathlib import Path

    import calc

    found = {p["kind"]: p for p in answered(*arguments).json["profiles"]}
    for kind, loaded in (("model", calc.load_model(MODEL)), ("hardware", calc.load_hardware(DEVICE))):
        assert found[kind]["name"] == loaded.profile.id
        assert found[kind]["sha256"] == hashlib.sha256(Path(loaded.path).read_bytes()).hexdigest()


# --- results of each command --------------------------------------------------------------------------------------------------


def test_estimate_results():
    found = results(*ESTIMATE)
    assert set(found) == {"prefill", "decode", "request", "memory", "capacity"}
    for phase in ("prefill", "decode"):
        assert set(found[phase]) == STEP | {"per_rank"}
    assert set(found["request"]) == {"ttft_s", "tpot_s", "e2e_s", "decode_share", "output_tokens_per_s"}
    assert {"fits", "capacity_bytes_per_gpu", "used_bytes_per_gpu", "terms"} <= set(found["memory"])
    assert set(found["capacity"]) >= CAPACITY_KEYS


def test_roofline_results():
    found = results(*ROOFLINE)
    assert {"prefill", "decode"} <= set(found)
    for phase in ("prefill", "decode"):
        assert set(found[phase]) == STEP | {"per_rank", "operators"}
        for operator in found[phase]["operators"]:
            assert set(operator) >= OPERATOR


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_roofline_answers_the_asked_phase_alone(phase):
    found = results("roofline", *PAIR, "--phase", phase, "--json")
    other = {"prefill": "decode", "decode": "prefill"}[phase]
    assert found[phase]
    assert not found.get(other)


def test_capacity_results():
    found = results(*CAPACITY)
    assert set(found) >= CAPACITY_KEYS
    assert set(found["kv_bytes_per_sequence"]) == {"ideal", "reserved", "read_per_step"}
    assert all({"name", "bytes", "evidence"} <= set(term) for term in found["terms"])
    assert found["kv_bytes_per_token_per_gpu"] == 32 * 1 * 2 * 128 * 2
    assert found["kv_bytes_per_sequence"]["ideal"] == 32768 * 131072
    assert found["max_concurrency"] == pytest.approx(found["kv_tokens"] / 32768, rel=1e-3)


def test_models_show_results():
    found = results("models", "show", MODEL, "--json")
    assert set(found) >= SHOW_KEYS
    assert found["parameters"] == found["parameters_text"] == 8030261248
    assert sum(found["parameters_by_part"].values()) == found["parameters"]
    assert found["kv_bytes_per_token"] == 131072
    assert found["weights_bytes"] == 2 * 8030261248
    assert found["state_bytes_per_sequence"] == found["window_bytes_per_sequence_max"] == 0


def test_models_list_results():
    models = results("models", "list", "--json")["models"]
    assert all({"id", "name", "parameters"} <= set(m) for m in models)
    assert "toy-12d2" in {m["id"] for m in models}
    assert len({m["id"] for m in models}) == len(models)


def test_hardware_list_results():
    devices = results("hardware", "list", "--json")["hardware"]
    assert all({"id", "name", "vendor"} <= set(d) for d in devices)
    assert DEVICE in {d["id"] for d in devices}
    assert len({d["id"] for d in devices}) == len(devices)


# --- what the figures mean ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [ESTIMATE, ROOFLINE], ids=lambda a: a[0])
def test_every_time_and_rate_is_an_ordered_range_with_its_evidence(arguments):
    found = list(ranges(results(*arguments)))
    assert found
    for item in found:
        if "ceiling" in item:
            assert set(item) == RATE
            assert item["low"] <= item["expected"] <= item["high"] <= item["ceiling"]
        else:
            assert set(item) == TIME
            assert 0 <= item["floor"] <= item["low"] <= item["expected"] <= item["high"]
        assert item["evidence"]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_step_is_the_sum_of_its_operators_times_their_count(phase):
    step = results(*ROOFLINE)[phase]
    for key in ("flops", *BYTES):
        assert step[key] == sum(o[key] * o["count"] for o in step["operators"])
    for key in ("floor", "low", "expected", "high"):
        assert step["time_s"][key] == pytest.approx(sum(o["time_s"][key] * o["count"] for o in step["operators"]))
    assert sum(o["share"] for o in step["operators"]) == pytest.approx(1)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_three_intensities_of_a_step(phase):
    step = results(*ROOFLINE)[phase]
    moved = sum(step[k] for k in BYTES - {"network_bytes"})
    assert step["bytes"] == moved
    assert step["arithmetic_intensity"] == pytest.approx(step["flops"] / moved)
    assert step["arithmetic_intensity_weights_and_kv"] == pytest.approx(
        step["flops"] / (step["weight_bytes"] + step["kv_read_bytes"])
    )
    holders = [o for o in step["operators"] if o["weight_bytes"] and o["flops"] and o["class"] != "attention"]
    by_hand = sum(o["flops"] * o["count"] for o in holders) / step["weight_bytes"]
    assert step["arithmetic_intensity_weights_only"] == pytest.approx(by_hand)


def test_prefill_counts_prompt_tokens_and_decode_output_tokens():
    found = results(*ESTIMATE)
    assert found["prefill"]["tokens"] == 16 * 2048
    assert found["decode"]["tokens"] == 16


def test_figures_of_a_step_are_summed_over_the_ranks_of_a_replica():
    one = results("roofline", *PAIR, "--json")
    four = results("roofline", *PAIR, "-tp", "4", "--json")
    for phase in ("prefill", "decode"):
        for key in ("kv_read_bytes", "kv_write_bytes"):
            assert four[phase][key] == one[phase][key]
            assert four[phase]["per_rank"][key] * 4 == four[phase][key]
        assert four[phase]["network_bytes"] > 0 == one[phase]["network_bytes"]


def test_request_latency_is_made_of_the_two_phases():
    found = results(*ESTIMATE)
    request = found["request"]
    for key in ("floor", "low", "expected", "high"):
        assert request["ttft_s"][key] == found["prefill"]["time_s"][key]
        assert request["tpot_s"][key] == found["decode"]["time_s"][key]
        assert request["e2e_s"][key] == pytest.approx(request["ttft_s"][key] + 255 * request["tpot_s"][key])
    share = 255 * request["tpot_s"]["expected"] / request["e2e_s"]["expected"]
    assert request["decode_share"] == pytest.approx(share)
    assert request["output_tokens_per_s"]["expected"] == pytest.approx(16 * 256 / request["e2e_s"]["expected"])


def test_context_defaults_to_input_plus_half_the_output():
    assert answered(*ESTIMATE).json["inputs"]["context_len"] == 2048 + 128


def test_defaults_are_echoed():
    inputs = answered("estimate", *PAIR, "--json").json["inputs"]
    expected = {
        "batch_size": 1,
        "input_len": 1024,
        "output_len": 256,
        "context_len": 1152,
        "engine": "vllm",
        "gpus": 1,
        "dtype": "bf16",
    }
    assert inputs | expected == inputs
    assert inputs["engine_version"]


# --- human numbers ------------------------------------------------------------------------------------------------------------------


def test_token_counts_in_k_and_m_are_binary():
    inputs = answered("estimate", *PAIR, "-i", "2k", "--output-len", "1K", "--context-len", "0.5k", "--json").json["inputs"]
    assert (inputs["input_len"], inputs["output_len"], inputs["context_len"]) == (2048, 1024, 512)
    long = answered("capacity", *PAIR, "--max-model-len", "1m", "--json").json
    assert long["results"]["kv_bytes_per_sequence"]["ideal"] == 131072 * (1 << 20)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1.5GiB", 3 << 29), ("1.5 GB", 1_500_000_000), ("2048MiB", 2 << 30), ("3000 MB", 3_000_000_000), ("2147483648", 2 << 30)],
)
def test_sizes_are_binary_or_decimal_as_they_say(text, size):
    assert results("capacity", *PAIR, "--kv-cache-memory", text, "--json")["kv_cache_bytes_per_gpu"] == size


def test_a_share_may_be_given_in_percent():
    a, b = (results("capacity", *PAIR, "--gpu-memory-utilization", s, "--json") for s in ("85%", "0.85"))
    assert a["kv_cache_bytes_per_gpu"] == b["kv_cache_bytes_per_gpu"]


def test_what_the_user_gave_is_echoed_resolved():
    inputs = answered("capacity", *PAIR, "--max-model-len", "32k", "--gpu-memory", "70GiB", "--json").json["inputs"]
    assert inputs.get("max_model_len") == 32768
    assert 70 << 30 in inputs.values()


# --- warnings that do not fail -------------------------------------------------------------------------------------------------------


def test_a_context_beyond_the_models_maximum_is_a_warning():
    outcome = answered("estimate", *PAIR, "-i", "200k", "--json")
    assert "context_beyond_model" in {w["code"] for w in outcome.json["warnings"]}
    assert outcome.json["results"]["prefill"]["time_s"]["expected"] > 0
    table = answered("estimate", *PAIR, "-i", "200k")
    assert "131,072" in table.stdout + table.stderr


def test_a_substituted_type_is_a_warning():
    outcome = run("estimate", MODEL, "t4", "-i", "128", "--output-len", "1", "--json", "-q", "awq")
    assert outcome.code == 0, outcome.stderr
    assert "dtype_substituted" in {w["code"] for w in outcome.json["warnings"]}
    assert outcome.json["inputs"]["dtype"] == "fp16"


def test_a_shadowed_profile_is_said_on_standard_error_and_not_in_the_answer(tmp_path):
    import calc

    source = calc.load_hardware(DEVICE).path.read_text(encoding="utf-8")
    (tmp_path / f"{DEVICE}.yaml").write_text(source + "# mine\n", encoding="utf-8")
    outcome = run("estimate", *PAIR, "--json", "--profiles-dir", str(tmp_path))
    assert outcome.code == 0
    assert "shadows" in outcome.stderr
    assert outcome.json["results"]["decode"]["time_s"]["expected"] > 0
    quiet = run("estimate", *PAIR, "--json", "--quiet", "--profiles-dir", str(tmp_path))
    assert quiet.stderr == ""


# --- what does not fit -----------------------------------------------------------------------------------------------------------------

TOO_MUCH = ("-b", "1000", "-i", "8k", "--output-len", "256")


@pytest.fixture(scope="module")
def too_much() -> Outcome:
    return run("estimate", *PAIR, *TOO_MUCH, "--json")


def test_a_workload_that_does_not_fit_exits_1_with_the_answer_and_null_times(too_much):
    assert too_much.code == 1
    found = too_much.json["results"]
    assert found["memory"]["fits"] is False
    items = list(ranges(found))
    assert len(items) >= 8
    for item in items:
        assert {v for k, v in item.items() if k != "evidence"} == {None}
    for phase in ("prefill", "decode"):
        assert found[phase]["flops"] > 0
        assert found[phase]["floor_overlapped_s"] is None
        assert found[phase]["compute_utilization"] is None
    assert found["request"]["decode_share"] is None


def test_every_range_of_what_does_not_fit_has_its_keys(too_much):
    found = too_much.json["results"]
    assert set(found["request"]["ttft_s"]) == TIME
    assert set(found["prefill"]["tokens_per_s"]) == RATE


def test_the_largest_batch_and_context_offered_really_fit(too_much):
    memory = too_much.json["results"]["memory"]
    batch, context = memory["largest_batch"], memory["largest_context"]
    assert 0 < batch < 1000
    assert run("estimate", *PAIR, "-b", str(batch), "-i", "8k", "--output-len", "256", "--json").code == 0
    assert run("estimate", *PAIR, "-b", str(batch + 1), "-i", "8k", "--output-len", "256", "--json").code == 1
    assert 0 < context < 8192 + 256
    assert run("estimate", *PAIR, "-b", "1000", "-i", str(context - 1), "--output-len", "1", "--json").code == 0
    assert run("estimate", *PAIR, "-b", "1000", "-i", str(context), "--output-len", "1", "--json").code == 1


def test_the_table_says_what_is_too_large_and_what_would_fit(too_much):
    memory = too_much.json["results"]["memory"]
    outcome = run("estimate", *PAIR, *TOO_MUCH)
    assert outcome.code == 1
    assert f"{memory['largest_batch']:,}" in outcome.stdout
    assert f"{memory['largest_context']:,}" in outcome.stdout
    assert "does not fit" in " ".join(outcome.stdout.split()).casefold()


@pytest.mark.parametrize("command", ["estimate", "roofline"])
def test_weights_that_do_not_fit_exit_1(command):
    outcome = run(command, "llama-3.1-70b", DEVICE, "--json")
    assert outcome.code == 1
    assert outcome.json["results"]["memory"]["fits"] is False
    assert all(item["expected"] is None for item in ranges(outcome.json["results"]))


def test_capacity_answers_whether_it_fits_and_fails_only_when_told_to():
    outcome = answered("capacity", "llama-3.1-70b", DEVICE, "--json")
    assert outcome.json["results"]["fits"] is False
    required = run("capacity", "llama-3.1-70b", DEVICE, "--json", "--require-fit")
    assert required.code == 1
    assert required.json["results"]["fits"] is False


# --- formats ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [a[:-1] for a in LISTED], ids=lambda a: " ".join(a[:2]))
def test_csv_is_a_table_of_one_header_and_rows_of_the_same_length(arguments):
    rows = list(csv.reader(io.StringIO(answered(*arguments, "--format", "csv").stdout)))
    assert len(rows) >= 2
    assert len({len(row) for row in rows}) == 1
    assert all(rows[0])
    assert len(set(rows[0])) == len(rows[0])


@pytest.mark.parametrize("arguments", [a[:-1] for a in LISTED], ids=lambda a: " ".join(a[:2]))
def test_markdown_tables_have_rows_of_the_same_width(arguments):
    text = answered(*arguments, "--format", "markdown").stdout
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) >= 3
    assert any(set(line) <= set("|-: ") for line in tables)


def test_json_is_the_same_as_format_json():
    assert answered(*ESTIMATE).stdout == answered(*ESTIMATE[:-1], "--format", "json").stdout


def test_the_suffix_of_the_output_file_gives_the_format(tmp_path):
    target = tmp_path / "answer.json"
    outcome = run(*ESTIMATE[:-1], "--output", str(target))
    assert outcome.code == 0
    assert outcome.stdout == ""
    assert json.loads(target.read_text(encoding="utf-8")) == answered(*ESTIMATE).json
    assert [p.name for p in tmp_path.iterdir()] == ["answer.json"]


def test_a_model_that_does_not_fit_writes_its_answer_to_the_file_too(tmp_path):
    target = tmp_path / "answer.json"
    assert run("estimate", *PAIR, *TOO_MUCH, "--output", str(target)).code == 1
    assert json.loads(target.read_text(encoding="utf-8"))["results"]["memory"]["fits"] is False


def test_profiles_may_be_given_as_paths():
    import calc

    model, hardware = calc.load_model(MODEL).path, calc.load_hardware(DEVICE).path
    by_path = answered("estimate", str(model), str(hardware), "--json").json
    by_name = answered("estimate", *PAIR, "--json").json
    assert by_path["results"] == by_name["results"]
    assert by_path["profiles"] == by_name["profiles"]


def test_no_answer_depends_on_where_it_is_asked(tmp_path):
    elsewhere = run(*ESTIMATE, cwd=tmp_path)
    assert elsewhere.stdout == answered(*ESTIMATE).stdout


def test_every_command_of_the_help_has_a_help_of_its_own():
    text = answered("--help").stdout
    commands = [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.strip() and line.startswith("  ")]
    assert {"estimate", "roofline", "capacity", "measure", "models", "hardware", "check", "schema", "env"} <= set(commands)


def test_a_batch_beyond_the_limit_of_sequences_is_not_called_a_lack_of_memory():
    words = ("estimate", "llama-3.1-8b", "h100-sxm5-80gb", "-b", "2000", "-i", "128", "--output-len", "32")
    found = run(*words, "--json")
    assert found.code == 1
    assert found.json["results"]["memory"]["too_large"] == "max_num_seqs"
    assert "at most 1,024 of 2,000 requests" in " ".join(run(*words).stdout.split())
