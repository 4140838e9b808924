"""Ignore comments: reason required, exact line, unused ones reported."""

from pathlib import Path

import pytest

from tests.checks.editing import check_text, edited, fired, source

WRONG = edited(source("l4"), {"memory_bandwidth_gb_per_s": 3350})
LINE = "memory_bandwidth_gb_per_s: 3350"


def with_comment(comment: str, where: str = "after") -> str:
    assert LINE in WRONG
    return WRONG.replace(LINE, f"{LINE}  {comment}" if where == "after" else f"{comment}\n{LINE}")


@pytest.mark.parametrize("where", ["after", "above"])
@pytest.mark.parametrize(
    "comment", ["# roofcast: ignore[C7] why", "#roofcast:ignore[c7, C8] why", "# roofcast: ignore[C7,C20]  why"]
)
def test_a_reason_silences_the_rule_on_its_line(tmp_path: Path, comment: str, where: str) -> None:
    found = fired(check_text(tmp_path, {"l4": with_comment(comment, where)}, select=["C7"]))
    assert found == set()


def test_comments_may_stand_in_a_row(tmp_path: Path) -> None:
    text = with_comment("# roofcast: ignore[C7] why\n# and an ordinary comment\n", "above")
    assert fired(check_text(tmp_path, {"l4": text})) == set()


def test_a_comment_without_reason_silences_nothing(tmp_path: Path) -> None:
    assert fired(check_text(tmp_path, {"l4": with_comment("# roofcast: ignore[C7]")})) == {"C7", "I1"}


@pytest.mark.parametrize(
    "rest", ["ignore[C99] why", "ignore[] why", "ignore C7 why", "silence", "ignore[S1] why", "ignore[I2] why"]
)
def test_comments_that_say_nothing_are_findings(tmp_path: Path, rest: str) -> None:
    assert fired(check_text(tmp_path, {"l4": with_comment(f"# roofcast: {rest}")})) == {"C7", "I1"}


def test_a_comment_on_another_line_is_unused(tmp_path: Path) -> None:
    text = WRONG.replace("memory_capacity_gb: 24", "memory_capacity_gb: 24  # roofcast: ignore[C7] why")
    found = check_text(tmp_path, {"l4": text})
    assert fired(found) == {"C7", "I2"}


def test_an_unused_comment_is_a_finding_unless_its_rule_did_not_run(tmp_path: Path) -> None:
    text = source("l4").replace("tdp_w: 72", "tdp_w: 72  # roofcast: ignore[C20] why")
    assert fired(check_text(tmp_path, {"l4": text})) == {"I2"}
    assert fired(check_text(tmp_path, {"l4": text}, select=["C7"])) == set()
    assert fired(check_text(tmp_path, {"l4": text}, ignore=["C20"])) == set()


def test_one_of_two_rules_unused(tmp_path: Path) -> None:
    found = check_text(tmp_path, {"l4": with_comment("# roofcast: ignore[C7, C13] why")})
    assert [(f.rule, f.message) for f in found] == [("I2", "nothing to ignore for C13")]


def test_text_within_a_value_is_no_comment(tmp_path: Path) -> None:
    text = source("l4") + "  - 'see `x# roofcast: ignore[C7]`'\n"
    assert fired(check_text(tmp_path, {"l4": text})) == set()
