"""The shipped profiles are clean or carry a reasoned ignore, and checking all of them is quick."""

from calc.checks.architectures import tables
from calc.checks.runner import run_checks
from calc.profiles.catalog import bundled_folder, profile_files


def test_shipped_hardware_is_clean() -> None:
    report = run_checks([bundled_folder("hardware")])
    assert [f"{f.file}:{f.line} {f.rule} {f.message}" for f in report.findings] == []
    assert report.files >= 111


def test_ignores_are_few_and_reasoned() -> None:
    report = run_checks([bundled_folder("hardware")])
    comments = [
        line
        for path in profile_files(bundled_folder("hardware"))
        for line in path.read_text("utf-8").splitlines()
        if "roofcast: ignore" in line
    ]
    assert report.ignored == len(comments) <= 8
    assert all(len(line.partition("]")[2].strip()) > 30 for line in comments)


def test_every_figure_of_the_tables_has_a_source() -> None:
    assert all(family.sources for family in tables().families)


def test_successions_and_names_speak_of_shipped_parts() -> None:
    shipped = {p.stem for p in profile_files(bundled_folder("hardware"))}
    assert {part for line in tables().successions for part in line.parts} <= shipped
    assert {part.id for part in tables().device_names.values()} - shipped == {"rtx-a4000"}
