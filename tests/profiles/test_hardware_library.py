"""The accelerator library: every profile loads, follows its schema, and is found by the names that drivers report, and no other."""

from pathlib import Path

import jsonschema
import pytest

from calc.errors import UnknownNameError
from calc.profiles import catalog, reader
from calc.profiles.hardware import HardwareProfile
from calc.profiles.json_schema import json_schema

FILES = [p for p in catalog.profile_files(catalog.bundled_folder("hardware")) if p.parent.name != "efficiency"]
HEADER = "# yaml-language-server: $schema=../../docs/reference/schema/hardware.schema.json\nid: "
VALIDATOR = jsonschema.Draft202012Validator(json_schema("hardware"))

# Names as torch.cuda.get_device_name, NVML and rocm-smi give them → part.
REPORTED = {
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA L40S": "l40s",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A40": "a40",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA GB200": "gb200",
    "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA GB300": "gb300",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA H200 NVL": "h200-nvl-141gb",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA GH200 144G HBM3e": "gh200-144gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "NVIDIA H20": "h20-96gb",
    "NVIDIA H20-3e": "h20-3e-141gb",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-blackwell-server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-blackwell-workstation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-pro-6000-blackwell-maxq",
    "AMD Instinct MI250X": "mi250x-gcd",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI355X": "mi355x",
    "TPU v5 lite": "tpu-v5e",
}
# Names of parts that are not in the library, of no part, or of several: never taken for a similar one.
REFUSED = [
    "NVIDIA RTX A4000", "NVIDIA RTX A3000 Laptop GPU", "NVIDIA A100", "A100", "H100", "NVIDIA H100", "NVIDIA H100 80GB", "L4 24GB",
    "NVIDIA L40S-48GB", "MI250", "AMD Instinct", "NVIDIA GH200", "GH200 480GB", "480GB", "Orin", "AMD Radeon Graphics",
    "NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 3060", "Apple M3 Max", "NVIDIA RTX 6000", "RTX PRO 6000", "NVIDIA", "Ascend910B3", "",
]  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_profile_loads_and_stands_where_it_belongs(path: Path) -> None:
    loaded = catalog.load_file(path, "hardware")
    profile = loaded.profile
    assert profile.id == path.stem
    assert path.parent.name == profile.vendor.lower()
    assert path.read_text("utf-8").startswith(HEADER)
    assert profile.sources
    assert profile.unit_of_account


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_profile_follows_the_schema_that_editors_use(path: Path) -> None:
    VALIDATOR.validate(reader.parse_yaml(path.read_bytes(), path.name).data)


def test_the_library_is_whole() -> None:
    assert len(FILES) >= 111
    assert {p.parent.name for p in FILES} == {"amd", "apple", "aws", "generic", "google", "huawei", "intel", "nvidia"}


@pytest.mark.parametrize(("name", "part"), REPORTED.items(), ids=REPORTED)
def test_reported_names_find_their_part(name: str, part: str) -> None:
    for spelling in (name, name.lower(), f"  {name.upper().replace(' ', '  ')} "):
        assert catalog.find(spelling, "hardware")[0].id == part


@pytest.mark.parametrize("name", REFUSED, ids=lambda n: n or "empty")
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UnknownNameError):
        catalog.find(name, "hardware")


def test_a_refusal_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refused:
        catalog.find("NVIDIA L40X", "hardware")
    assert "did you mean" in (refused.value.hint or "")
    assert "NVIDIA L40" in (refused.value.hint or "")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_name_of_a_profile_finds_it(path: Path) -> None:
    profile: HardwareProfile = catalog.load_file(path, "hardware").profile
    for name in (profile.id, profile.name, *profile.aliases):
        assert catalog.find(name, "hardware")[0].id == profile.id


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_shared_names_are_refused(path: Path) -> None:
    profile: HardwareProfile = catalog.load_file(path, "hardware").profile
    for name in profile.shared_names:
        with pytest.raises(UnknownNameError):
            catalog.find(name, "hardware")
