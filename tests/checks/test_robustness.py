"""No valid or broken profile makes a rule fail: whatever stands in a file ends as findings."""

import random
from pathlib import Path

import msgspec
import pytest
import yaml

from calc.checks.runner import run_checks
from calc.profiles.catalog import bundled_folder, profile_files

HARDWARE = [p for p in profile_files(bundled_folder("hardware")) if p.parent.name != "efficiency"]
MODELS = profile_files(bundled_folder("model"))


def disturbed(data: object, luck: random.Random) -> object:
    """The data with keys dropped, nulled and figures scaled."""
    if isinstance(data, dict):
        kept = {k: disturbed(v, luck) for k, v in data.items() if luck.random() > 0.03}
        return {k: (None if luck.random() < 0.03 else v) for k, v in kept.items()}
    if isinstance(data, list):
        return [disturbed(v, luck) for v in data if luck.random() > 0.05]
    if isinstance(data, bool) or not isinstance(data, (int, float)) or luck.random() > 0.2:
        return data
    factor = luck.choice([0, 0.001, 0.5, 0.93, 1.074, 2, 8, 1000, -1])
    return type(data)(data * factor)


@pytest.mark.parametrize("seed", range(8))
def test_disturbed_profiles_end_as_findings(tmp_path: Path, seed: int) -> None:
    luck = random.Random(seed)
    for path in [*luck.sample(HARDWARE, 30), *luck.sample(MODELS, min(10, len(MODELS)))]:
        data = disturbed(yaml.safe_load(path.read_text("utf-8")), luck)
        (tmp_path / path.name).write_bytes(msgspec.yaml.encode(data))
    report = run_checks([tmp_path])
    assert report.files >= 35
    assert all(f.line >= 1 and f.column >= 1 and f.message for f in report.findings)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"- 1\n", b"&a 1\n", b"x: *a\n", b"{" * 5000, b"a: 1\n---\nb: 2\n", b"id: 1\nstack: 3\n"]
)
def test_other_contents_are_findings(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    assert {f.rule for f in run_checks([path]).findings} == {"S1"}
