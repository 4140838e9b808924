"""Charts as SVG: they parse whatever a label says, and an axis keeps every value within its ends."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from calc.report import svg

VALUES = st.lists(st.floats(1e-9, 1e15), min_size=1, max_size=6)


@given(values=VALUES)
@example(values=[1.5e-05])  # the lower end is a step, and falls short of it by rounding
def test_every_value_lies_on_its_axis_in_order(values):
    low, high = svg.span(values)
    axis = svg.Axis(low, high, 0, 100, "")
    places = [axis.at(v) for v in sorted(values)]
    assert places == sorted(places)
    assert -1e-6 <= places[0] <= places[-1] <= 100 + 1e-6
    assert all(low <= t <= high for t in axis.ticks())


@given(words=st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("<>&\"'"), max_size=20))
def test_a_chart_parses_whatever_it_says(words):
    chart = svg.Chart(words, *svg.axes((1, 10), (1, 10), (words, words)))
    chart.marker(2, 2, "circle", "dot", words)
    chart.text(5, 5, words)
    root = ElementTree.fromstring(chart.svg())
    assert root.get("aria-label") == words
