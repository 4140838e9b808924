"""Pages in a terminal, in Markdown and in CSV: as wide as they may be, as many cells as columns, and nothing that steers a terminal."""

from __future__ import annotations

import csv
import io
import re

from hypothesis import given
from hypothesis import strategies as st

from calc.report.table import Column, Page, Table, csv_text, flatten, markdown, plain

WORDS = st.text(st.characters(categories=["L", "N"], max_codepoint=0x7E) | st.just(" "), max_size=60)
HOSTILE = st.text(st.sampled_from("ab|\n\r\t\x1b\x07\u2028\\"), max_size=12)


@given(rows=st.lists(st.tuples(WORDS, st.integers(0, 10**6)), min_size=1, max_size=5), width=st.integers(40, 200))
def test_lines_keep_within_the_width(rows, width):
    table = Table((Column("name"), Column("figure", right=True)), [[a, str(b)] for a, b in rows])
    text = plain(Page(["a headline " * 9], [table], ["a note " * 20]), width)
    assert max(map(len, text.splitlines())) <= width


def test_a_narrow_page_leaves_out_what_matters_least_and_says_so():
    columns = (Column("name"), Column("a" * 30, priority=1), Column("b" * 30, priority=2))
    text = plain(Page([], [Table(columns, [["x", "1", "2"]])]), 60)
    assert "a" * 30 in text.splitlines()[0]
    assert f"(not shown at 60 columns: {'b' * 30})" in text


@given(cell=HOSTILE)
def test_no_cell_breaks_a_table_or_steers_a_terminal(cell):
    page = Page([cell], [Table((Column("a"), Column("b")), [[cell, "end"]])], [cell])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028]", plain(page, 80) + markdown(page))
    row = next(line for line in markdown(page).splitlines() if line.startswith("| ") and line.endswith(" end |"))
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 3


@given(
    values=st.lists(
        st.fixed_dictionaries({"a": WORDS | st.just('1,"2"\n3') | st.none(), "b": st.floats(allow_nan=False)}),
        min_size=1,
        max_size=4,
    )
)
def test_csv_reads_back(values):
    read = list(csv.DictReader(io.StringIO(csv_text(values), newline="")))
    assert [r["a"] for r in read] == [v["a"] or "" for v in values]
    assert [float(r["b"]) for r in read] == [v["b"] for v in values]


def test_records_become_one_row():
    nested = {"a": {"b": 1}, "terms": [{"name": "weights", "bytes": 2}, {"name": "cache", "bytes": None}], "tags": ["x", "y"]}
    assert flatten(nested) == {"a.b": 1, "terms.weights.bytes": 2, "terms.cache.bytes": None, "tags": "x;y"}
