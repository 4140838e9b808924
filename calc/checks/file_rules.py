"""What holds for every file: schema (S1), file name (S2), ignore comments (I1 to I3)."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.finding import Problem
from calc.checks.registry import declare, rule
from calc.checks.subject import Subject

declare(
    "S1", "error",
    sentence="A file is YAML that its schema accepts.",
    arithmetic="All faults of a file at once, each with line and column: unknown and missing keys, wrong types, duplicate keys, "
    "values out of bounds (a rate of 0: an unsupported dtype is null), contradictions within the file. Other rules "
    "run on valid files only.",
    example="memory_bandwith_gb_per_s: unknown key; did you mean memory_bandwidth_gb_per_s?",
)  # fmt: skip
declare(
    "I1", "error",
    sentence="An ignore comment names existing rules and gives its reason.",
    arithmetic="`# roofcast: ignore[C7] reason` at the end of a line covers that line; on a line of its own, the next line.",
    example="`# roofcast: ignore[C7]` alone: why is the figure right all the same?",
)  # fmt: skip
declare(
    "I2", "warning",
    sentence="An ignore comment silences something.",
    arithmetic="A comment whose rules find nothing on its line is a leftover; with --select, comments of rules not run are left "
    "alone.",
    example="`# roofcast: ignore[C13] …` after the PCIe figure has been mended.",
)  # fmt: skip


@rule(
    "S2", "error", "file", "identity",
    sentence="The file is named after the id.",
    arithmetic="file name = id + .yaml, lower case with hyphens, so that a name finds its file without reading the others.",
    example="id: h100-sxm in h100.yaml.",
)  # fmt: skip
def file_name(subject: Subject) -> Iterator[Problem]:
    """S2."""
    if subject.id != subject.path.stem:
        yield Problem(
            ("id",),
            f"id {subject.id} in a file named {subject.path.name}",
            expected=subject.path.stem,
            found=subject.id,
            cause="a copied file",
            remedy=f"name the file {subject.id}.yaml, or mend the id",
        )
