"""The generated reference is what the program says today; links and names in hand-written pages exist."""

import json
import re
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest

from docs import build, examples

PAGES = [*examples.pages(), *sorted(build.REFERENCE.rglob("*.md")), examples.ROOT / "CHANGELOG.md"]
_LINK = re.compile(r"\[[^\]]+\]\((?!https?://|mailto:)([^)\s]+)\)")
_NAME = re.compile(r"`(calc(?:\.\w+)+)`")


def _id(page: Path) -> str:
    return page.relative_to(examples.ROOT).as_posix()


def _prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in examples.blocks(lines):
        for number in range(block.start, block.end):
            lines[number] = ""
    return "\n".join(lines)


def _anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"[`*]|\[([^\]]+)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def test_generated_reference_is_current() -> None:
    stale = [_id(p) for p in build.stale()]
    assert not stale, f"stale: {stale}; run `python -m docs.build`"


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(_prose(page)):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            broken.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", _prose(file), re.MULTILINE)
            if anchor not in {_anchor(h) for h in headings}:
                broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_functions_named_exist(page: Path) -> None:
    unknown = []
    for name in sorted(set(_NAME.findall(_prose(page)))):
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                thing = import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            try:
                for part in parts[cut:]:
                    fields = getattr(thing, "__dataclass_fields__", {})
                    thing = fields[part] if part in fields else getattr(thing, part)
            except AttributeError:
                unknown.append(name)
            break
        else:
            unknown.append(name)
    assert not unknown


@pytest.mark.parametrize("page", sorted((examples.ROOT / "docs" / "explanation").glob("*.md")), ids=_id)
def test_every_formula_names_its_function(page: Path) -> None:
    """A formula is an indented block; the paragraph that follows it names where it is computed."""
    paragraphs = [p for p in re.split(r"\n\s*\n", _prose(page)) if p.strip()]
    formulas = [n for n, p in enumerate(paragraphs) if p.startswith("    ")]
    unnamed = [paragraphs[n] for n in formulas if n + 1 == len(paragraphs) or not _NAME.search(paragraphs[n + 1])]
    assert not unnamed


def test_schema_files_are_valid_schemas_and_named_by_every_profile() -> None:
    for kind in ("model", "hardware", "efficiency", "result"):
        file = build.REFERENCE / "schema" / f"{kind}.schema.json"
        jsonschema.Draft202012Validator.check_schema(json.loads(file.read_text(encoding="utf-8")))
    for folder in ("model_profiles", "hardware_profiles"):
        for profile in (examples.ROOT / folder).rglob("*.yaml"):
            first = profile.read_text(encoding="utf-8").splitlines()[0]
            match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
            assert match, f"{profile}: line 1 does not name the schema"
            assert (profile.parent / match[1]).is_file(), f"{profile}: {match[1]} is not there"


def test_every_command_and_option_is_in_the_reference() -> None:
    import typer.main

    from calc.commands import build as application

    text = (build.REFERENCE / "cli.md").read_text(encoding="utf-8")
    root = typer.main.get_command(application())
    for name, command in root.commands.items():
        for inner in getattr(command, "commands", {name: command}).values():
            for parameter in inner.params:
                if parameter.param_type_name == "option" and parameter.name != "help":
                    assert all(f"`{flag}`" in text for flag in parameter.opts), (name, parameter.opts)


def test_every_public_function_is_in_the_reference() -> None:
    import calc

    text = (build.REFERENCE / "python-api.md").read_text(encoding="utf-8")
    for name in calc.__all__:
        if name != "__version__":
            assert f"### {name}\n" in text
