"""Pictures: what they say without colour, that they draw, and that a page needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest

import calc
from calc.report import pictures
from calc.report.pictures import draw, labels, terminal, vega
from calc.report.pictures.picture import Bars, Chart, Picture, Stack
from calc.report.pictures.theme import THEMES
from calc.serving.chunking import chunked_prefill
from calc.serving.deployment import DeploymentOptions
from calc.serving.life import life
from calc.serving.load.objectives import Demand, Objectives
from calc.serving.load.traffic import uniform
from calc.serving.plan.search import Question, plan
from calc.serving.request import Workload
from tests.support.cli import ROOT, run, run_inside


def made() -> dict[str, Picture]:
    options = DeploymentOptions(tensor_parallel_size=4)
    deployment = calc.deploy("llama-3.1-70b", "h100-sxm5-80gb", options)
    work = Workload(16, 2048, 256)
    estimate = calc.estimate_deployment(deployment, work)
    hardware = tuple(calc.load_hardware(h) for h in ("l40s", "h100-sxm5-80gb"))
    question = Question(calc.load_model("llama-3.1-8b"), hardware, uniform(1024, 256), Objectives(1.0, 0.04), Demand(4.0))
    chunked = chunked_prefill(deployment, work, 1024)
    return {
        "request": pictures.request(deployment, work, life(deployment, work), chunked, None),
        "estimate": pictures.estimate(deployment, estimate),
        "roofline": pictures.roofline(deployment, calc.roofline_deployment(deployment, work, ("prefill", "decode"))),
        "capacity": pictures.capacity(deployment, estimate.capacity, options),
        "plan": pictures.plan(plan(question)),
    }


NAMES = ("capacity", "estimate", "plan", "request", "roofline")


@pytest.fixture(scope="module")
def drawn() -> dict[str, Picture]:
    return made()


def test_pictures_come_out_alike_again(drawn):
    """A name that a first call overwrites fails here."""
    assert tuple(sorted(drawn)) == NAMES
    assert made() == drawn


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("theme", sorted(THEMES))
def test_every_picture_draws(drawn, name, theme):
    svg = draw.draw(drawn[name], "svg", theme).decode("utf-8")
    assert svg.startswith("<svg")
    assert THEMES[theme].ground in svg
    for panel in drawn[name].panels:
        axes = (panel.x, panel.y) if isinstance(panel, Chart) else (panel.axis,)
        for axis in axes:
            assert axis.title.split(" (")[0].split(",")[0] in svg
    assert draw.draw(drawn[name], "png", theme).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_axes_carry_units_and_nothing_depends_on_colour(drawn, name):
    for panel in drawn[name].panels:
        assert panel.title
        assert panel.caption
        if isinstance(panel, Chart):
            assert all(re.search(r"\(.+\)|per second|at once", a.title) for a in (panel.x, panel.y))
            shown = [s for s in panel.series if not s.ceiling]
            if all(s.tone is None for s in shown):
                named = [any(m.label for m in s.marks) for s in shown]
                assert all(named)  # each is named beside its marks
        elif isinstance(panel, Bars):
            assert "(" in panel.axis.title
            assert all(b.label and b.text for b in panel.bars)
        else:
            assert isinstance(panel, Stack)
            if panel.axis.title.startswith("memory"):
                assert sum(s.value for s in panel.shares) == pytest.approx(79.19, abs=0.01)
            assert all(s.name and s.text for s in panel.shares)


@pytest.mark.parametrize("name", NAMES)
def test_labels_do_not_overlap(drawn, name):
    for chart in (panel for panel in drawn[name].panels if isinstance(panel, Chart)):
        labels_stand_apart(chart)


def labels_stand_apart(chart: Chart) -> None:
    size = (740, 430)
    xs, ys = vega._extent(chart, "x"), vega._extent(chart, "y")
    boxes = []
    for label in labels.placed(chart, xs, ys, size):
        across = labels._pixel(label.x, chart.x, xs, size[0]) + label.dx
        down = size[1] - labels._pixel(label.y, chart.y, ys, size[1]) + label.dy
        width = labels._LETTER * len(label.text)
        left = across if label.align == "left" else across - width
        boxes.append((left, left + width, down))
        assert left >= -20
        assert left + width <= size[0] + 1
    for (a, b, y), (c, d, z) in combinations(boxes, 2):
        assert b < c or d < a or abs(y - z) >= labels._LINE - 0.01


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_self_contained(drawn, name):
    page = draw.draw(drawn[name], "html").decode("utf-8")
    loaded: list[tuple[str, str | None]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            loaded.extend((tag, value) for name, value in attrs if name in ("src", "href", "srcset", "data"))

    Tags().feed(page)
    assert loaded == []
    assert not re.search(r"@import|url\(\s*['\"]?https?:|from\s+['\"]https?:", page)
    specs = json.loads(re.search(r"const pictures = (\{.*\});\n", page)[1].replace("<\\/", "</"))
    assert set(specs) == {"light", "dark"}
    assert "window.vegaEmbed=" in page
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_needs_no_colour(drawn, name):
    shown = terminal.text(drawn[name], 80)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 120
    for panel in drawn[name].panels:
        assert panel.title in shown


def test_the_timeline_of_a_request_adds_up_and_its_band_holds_the_line(drawn):
    timeline, latency, without = drawn["request"].panels
    assert [s.name.split(",")[0] for s in timeline.shares] == ["chunk 1", "chunk 2", "chunk 3", "decode"]
    assert timeline.limits[0].value == pytest.approx(sum(s.value for s in timeline.shares[:-1]))
    band, line = latency.bands[0], latency.series[0]
    assert band.x == tuple(m.x for m in line.marks)
    assert all(low <= m.y <= high for low, m, high in zip(band.low, line.marks, band.high, strict=True))
    cached, uncached = (s.marks for s in without.series)
    assert cached[-1].y < uncached[-1].y


def test_a_request_of_one_token_is_its_prefill():
    deployment = calc.deploy("llama-3.1-8b", "h100-sxm5-80gb")
    work = Workload(1, 512, 1, cached_len=128)
    (only,) = pictures.request(deployment, work, life(deployment, work), None, None).panels
    assert [s.name for s in only.shares] == ["prefill, 384 tokens"]
    assert "128 are found in the prefix cache" in only.caption


def test_commands_draw_by_suffix_and_in_the_terminal(tmp_path: Path, capsys, monkeypatch):
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<!DOCTYPE html>")):
        target = tmp_path / f"picture{suffix}"
        outcome = run_inside(capsys, monkeypatch, "roofline", "llama-3.1-8b", "l40s", "-o", str(target))
        assert (outcome.code, outcome.stdout) == (0, ""), outcome.stderr
        assert target.read_bytes().startswith(start)
    shown = run("estimate", "llama-3.1-8b", "l40s", "--plot")
    assert shown.code == 0
    assert "Time of a decode step" in shown.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("compare", "llama-3.1-8b l40s", "llama-3.1-8b t4", "-o", "x.svg"), 2, "draws no picture"),
        (("estimate", "llama-3.1-8b", "l40s", "--plot", "--json"), 2, "--plot draws in the terminal"),
        (("estimate", "llama-3.1-8b", "l40s", "-o", "x.svg", "--theme", "drak"), 2, "did you mean dark"),
        (("roofline", "llama-3.1-70b", "l40s", "-o", "x.svg"), 1, "nothing to draw"),
    ],
)
def test_what_cannot_be_drawn_says_so(words, code, message, tmp_path: Path):
    outcome = run(*words, cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (code, ""), outcome.stderr
    assert message in outcome.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("module", "words"), [("vl_convert", ("-o", "x.png")), ("plotille", ("--plot",))])
def test_a_missing_library_names_the_extra(module, words, tmp_path: Path):
    (tmp_path / f"{module}.py").write_text("raise ImportError\n", encoding="utf-8")
    outcome = run("roofline", "llama-3.1-8b", "l40s", *words, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "pip install 'roofcast[plot]'" in outcome.stderr
