"""Profiles as text: what is written loads back to the same struct, and reads as if a person had written it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.profiles import reader
from calc.profiles.catalog import bundled_folder, profile_files
from calc.profiles.importers.hf_config import import_folder_or_file
from calc.profiles.model import ModelProfile
from calc.profiles.writer import SCHEMA_LINE, model_yaml
from tests.support.configs import CONFIGS, experts, profile

FILES = sorted(CONFIGS.glob("*.json"))


def read_back(text):
    return reader.convert(reader.parse_yaml(text.encode(), "x.yaml"), ModelProfile)


@pytest.mark.parametrize("path", FILES[::6], ids=lambda path: path.stem)
def test_imported_models_survive(path):
    model, _ = import_folder_or_file(path)
    assert read_back(model_yaml(model)) == model


def test_the_library_is_written_as_the_writer_writes():
    for path in profile_files(bundled_folder("model")):
        model = reader.convert(reader.parse_yaml(path.read_bytes(), str(path)), ModelProfile)
        assert read_back(model_yaml(model)) == model


def test_form():
    lines = model_yaml(profile(experts())).splitlines()
    assert lines[0] == SCHEMA_LINE
    assert lines[1].startswith("id: ")
    assert "  - repeat: 3" in lines
    assert not [line for line in lines if "null" in line.split()[-1:] or line.endswith(" []")]


TRAPS = [
    "no",
    "null",
    "12:30:45",
    "1e3",
    "0x1f",
    "-",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "@",
    "`",
    "'",
    '"',
    "? a",
]
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=30) | st.sampled_from([*TRAPS, "{a}", "[a]"])


@given(st.lists(WORDS, max_size=3), WORDS, st.none() | WORDS)
def test_any_text_survives(aliases, name, licence):
    model = msgspec.structs.replace(profile(experts()), name=name, aliases=aliases, licence=licence, quirks=[name])
    assert read_back(model_yaml(model)) == model
