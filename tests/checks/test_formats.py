"""Each format is what its readers expect: SARIF and JUnit by their schemas, GitHub by its escapes, JSON by the envelope."""

import json
from io import StringIO
from pathlib import Path

import jsonschema
import pytest
import xmlschema

from calc.checks.finding import Finding
from calc.checks.runner import CheckReport, rules, run_checks
from calc.report import findings
from calc.version import VERSION
from tests.checks.editing import edited, source

HERE = Path(__file__).parent


@pytest.fixture
def report(tmp_path: Path) -> CheckReport:
    text = edited(source("h100-sxm5-80gb"), {"memory_bandwidth_gb_per_s": 3598, "peak_dense_tflops.int4": 3958})
    (tmp_path / "h100-sxm5-80gb.yaml").write_text(text, "utf-8")
    (tmp_path / "t4.yaml").write_text(source("t4"), "utf-8")
    return run_checks([tmp_path])


def odd(file: str = "a b,c:d%.yaml") -> CheckReport:
    finding = Finding("C7", "error", file, 3, 5, "x", "50 % of\nthis <&> \x1b[31m", 1, 2.5, 2.5, 'a "cause"', None)
    return CheckReport((finding,), 1, (file,), 0)


def test_text_tells_place_rule_numbers_cause_and_remedy(report: CheckReport) -> None:
    text = findings.text(report)
    assert "h100-sxm5-80gb.yaml:23:1: C7 error:" in text  # on one line, however long the path
    assert "C7 error: h100-sxm5-80gb: 3598 GB/s" in " ".join(text.split())
    assert all(len(line) <= 80 or line.endswith(" error:") for line in text.splitlines())
    assert "expected 3353.6, found 3598, ratio 1.073" in text
    assert "likely cause: GiB/s" in text
    assert "remedy: write null" in text
    assert text.endswith("2 files checked: 2 errors\n")


def test_text_without_findings() -> None:
    assert findings.text(CheckReport((), 3, (), 2)) == "3 files checked: no findings, 2 ignored with a reason\n"


def test_text_shows_control_characters() -> None:
    assert "\x1b" not in findings.text(odd())
    assert "\\x1b" in findings.text(odd())


def test_json_envelope(report: CheckReport) -> None:
    document = json.loads(findings.render("json", report, rules(), {"paths": ["x"]}))
    assert document["schema"] == "roofcast.check/1"
    assert document["version"] == VERSION
    assert document["inputs"] == {"paths": ["x"]}
    assert document["results"]["files"] == 2
    first = document["results"]["findings"][0]
    assert list(first) == [
        "rule", "severity", "file", "line", "column", "subject", "message", "expected", "found", "ratio", "cause", "remedy",
    ]  # fmt: skip
    assert (first["rule"], first["line"], first["column"]) == ("C7", 23, 1)


@pytest.mark.parametrize("which", ["found", "odd", "clean"])
def test_sarif_follows_its_schema(report: CheckReport, which: str) -> None:
    shown = {"found": report, "odd": odd(), "clean": CheckReport((), 0, (), 0)}[which]
    log = json.loads(findings.render("sarif", shown, rules()))
    jsonschema.Draft7Validator(json.loads((HERE / "sarif.schema.json").read_text())).validate(log)
    run = log["runs"][0]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert not set(uri) & set(" <>,")


@pytest.mark.parametrize("which", ["found", "odd", "clean"])
def test_junit_follows_its_schema(report: CheckReport, which: str) -> None:
    shown = {"found": report, "odd": odd(), "clean": CheckReport((), 0, (), 0)}[which]
    xml = findings.render("junit", shown, rules())
    schema = xmlschema.XMLSchema(str(HERE / "junit.xsd"))
    schema.validate(StringIO(xml))
    assert xml.count("<testcase") == len(shown.paths)
    assert xml.count("<failure") == len(shown.findings)


def test_github_commands_escape_what_would_end_them() -> None:
    line = findings.render("github", odd(), rules())
    assert line.count("\n") == 1
    assert line.startswith("::error file=a b%2Cc%3Ad%25.yaml,line=3,col=5,title=C7 x::50 %25 of%0Athis")


def test_every_format_is_offered(report: CheckReport) -> None:
    assert all(findings.render(f, report, rules()) for f in findings.FORMATS)


def test_rule_list_has_a_line_per_rule() -> None:
    assert len(findings.rule_list(rules()).splitlines()) == len(rules())
