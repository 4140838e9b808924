"""Reports for build servers: whatever a name or a path holds, they read back as they were written."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from calc.report import ci
from calc.report.scenario import github, junit
from calc.serving.scenario import Verdict

ANY = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('%,:\r\n<>&"\x01\x0b\ufffe'), max_size=20)
COMMAND = re.compile(r"::error file=([^,:]*),line=(\d+),col=(\d+),title=([^,:]*)::(.*)")


def unescaped(value: str) -> str:
    for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        value = value.replace(code, character)
    return value


@given(file=ANY, title=ANY, text=ANY)
def test_a_workflow_command_is_one_line_that_reads_back(file, title, text):
    written = ci.github([ci.Annotation("error", file, 3, 4, title, text)])
    assert written.endswith("\n")
    match = COMMAND.fullmatch(written[:-1])
    assert match
    assert [unescaped(match[i]) for i in (1, 4, 5)] == [file, title, text]


@given(group=ANY, name=ANY, message=ANY)
def test_junit_parses_and_keeps_what_xml_can_hold(group, name, message):
    root = ElementTree.fromstring(ci.junit("s", [ci.Case(group, name), ci.Case(group, name, [ci.Failure("k", message, message)])]))
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    case = root.findall(".//testcase")[1]
    plain = message.isprintable() and message.isascii()
    assert not plain or case.find("failure").get("message") == message  # type: ignore[union-attr]


def test_a_scenario_with_a_hostile_name_is_reported_whole():
    verdict = Verdict("100% a,b\x01", "tpot_s", "request.tpot_s", "at most 1ms", "1ms", 0.5, False, "my,file.yaml:3:7", 3)
    annotation, count = github([verdict]).splitlines()
    assert annotation.startswith("::error file=my%2Cfile.yaml,line=3,col=7,title=roofcast run::100%25 a,b")
    assert count == "1 expectation, 1 broken"
    assert ElementTree.fromstring(junit([verdict])).find(".//testcase").get("classname") == "100% a,b?"  # type: ignore[union-attr]
