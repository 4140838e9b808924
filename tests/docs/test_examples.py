"""Every command and script shown in README and docs is run, and prints what the page shows."""

from pathlib import Path

import pytest

from docs import examples
from tests.support.cli import python

PAGES = [p for p in examples.pages() if examples.examples(p)]


def run(example: examples.Example, folder: Path) -> tuple[int, list[str]]:
    """As ``examples.run``, from a warm interpreter."""
    _, code, *words = example.arguments
    done = python(code, *words, cwd=folder, env=examples.SETTINGS | {"ROOFCAST_HOME": str(folder / ".none")}, merged=True)
    return done.code, done.stdout.splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(examples.ROOT).as_posix())
def test_page_shows_what_the_program_prints(page: Path, tmp_path: Path) -> None:
    found = examples.faults(page, tmp_path, run)
    report = [f"{e.label}: {why}\n" + "\n".join(printed) for e, why, printed in found]
    assert not found, "\n\n".join([*report, "`python -m docs.build` refreshes the outputs shown"])


def test_readme_and_tutorial_hold_examples() -> None:
    names = {p.relative_to(examples.ROOT).as_posix() for p in PAGES}
    assert {"README.md", "docs/tutorial/first-estimate.md"} <= names


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("a", "b"), ["a", "b"], True),
        (("a", "b"), ["a", "c"], False),
        (("a",), ["a", "b"], False),
        (("a", "…"), ["a"], True),
        (("a", "…"), ["a", "b", "c"], True),
        (("a", "…", "d"), ["a", "b", "c", "d"], True),
        (("a", "…", "d"), ["a", "b", "c"], False),
        (("time … ms",), ["time 3.4 ms"], True),
        (("time … ms",), ["time 3.4 s"], False),
        (("(n) *",), ["(n) *"], True),
        ((), ["a"], False),
        (None, ["a"], True),
    ],
)
def test_gaps_stand_for_anything_and_nothing_else_does(shown, printed, same) -> None:
    assert examples.matches(shown, printed) is same


def test_files_are_written_before_the_commands_that_read_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```text note.txt\nhello\n```\n\n```python\nprint(open('note.txt').read().strip())\n```\n\n```text\nhello\n```\n",
        encoding="utf-8",
    )
    assert examples.faults(page, tmp_path) == []


def test_a_stale_output_is_found_and_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nfor i in range(4):\n    print(i)\n```\n\n```text\n9\n…\n9\n```\n\nend\n", encoding="utf-8")
    monkeypatch.setattr(examples, "ROOT", tmp_path)
    assert [why for _, why, _ in examples.faults(page, tmp_path)] == ["prints something else"]
    assert examples.refresh(page, tmp_path) == []
    assert examples.faults(page, tmp_path) == []
    assert page.read_text(encoding="utf-8").endswith("```text\n0\n…\n3\n```\n\nend\n")
