"""Finding profiles: search order, shadows, an index that is never trusted over a file, and names that mean one thing only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from calc.commands import profile_index
from calc.errors import ProfileError, UnknownNameError
from calc.profiles import catalog
from tests.profiles.test_reader import DEVICE, MODEL


def device_text(identifier: str, **lines: str) -> str:
    text = DEVICE.replace("id: card", f"id: {identifier}").replace("name: Card", f"name: {lines.pop('name', identifier.upper())}")
    return text + "".join(f"{key}: {value}\n" for key, value in lines.items())


def model_text(identifier: str, **lines: str) -> str:
    text = MODEL.replace("id: small", f"id: {identifier}").replace("name: Small", f"name: {lines.pop('name', identifier.upper())}")
    return text + "".join(f"{key}: {value}\n" for key, value in lines.items())


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def index(folder: Path, kind: str) -> None:
    """Write the folder's index as the library does."""
    content = {"note": "generated", "profiles": profile_index.build(kind, folder)}
    (folder / catalog.INDEX_NAME).write_text(json.dumps(content), encoding="utf-8")


def forget() -> None:
    """Whatever the catalogue keeps between calls, so that tests do not depend on each other."""
    for kept in vars(catalog).values():
        if hasattr(kept, "cache_clear"):
            kept.cache_clear()


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    """An empty working folder, no user folder, no folder in the environment."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ROOFCAST_PROFILES", raising=False)
    forget()
    yield
    forget()


def given(name: str, folder: Path, kind: str = "hardware"):
    return catalog.load(name, kind, str(folder))


# --- search order -------------------------------------------------------------------------------------------------------------------


def place(tmp_path: Path, where: str, text: str, monkeypatch) -> None:
    folder = {"working": "empty/hardware_profiles", "user": "home/hardware_profiles"}.get(where, where)
    write(tmp_path, f"{folder}/h100-sxm5-80gb.yaml", text)
    if where == "environment":
        monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "environment"))


ORDER = ["given", "environment", "working", "user", "bundled"]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_nearer_folders_come_first(first, tmp_path, monkeypatch):
    """--profiles-dir, the environment, the working folder, the user folder, the bundled library."""
    bundled = "h100-sxm5-80gb"
    (tmp_path / "given").mkdir()
    for where in ORDER[first:-1]:
        place(tmp_path, where, device_text(bundled, name=f"of {where}"), monkeypatch)
    found = catalog.load(bundled, "hardware", str(tmp_path / "given"))
    assert found.profile.name == (f"of {ORDER[first]}" if ORDER[first] != "bundled" else "H100 SXM5 80GB")


def test_a_path_comes_before_every_folder(tmp_path):
    write(tmp_path, "given/mine.yaml", device_text("mine", name="in the folder"))
    path = write(tmp_path, "mine.yaml", device_text("mine", name="at the path"))
    assert given(str(path), tmp_path / "given").profile.name == "at the path"


def test_profiles_in_subfolders_are_found(tmp_path):
    write(tmp_path, "p/vendor/deeper/mine.yaml", device_text("mine"))
    write(tmp_path, "p/vendor/other.yml", device_text("other"))
    assert given("mine", tmp_path / "p").profile.id == "mine"
    assert given("other", tmp_path / "p").profile.id == "other"


def test_one_folder_may_hold_both_kinds(tmp_path):
    write(tmp_path, "p/devices/both.yaml", device_text("both"))
    write(tmp_path, "p/models/both.yaml", model_text("both"))
    assert given("both", tmp_path / "p").profile.vendor == "test"
    assert given("both", tmp_path / "p", "model").profile.hidden_size == 64


def test_a_folder_of_profiles_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(ProfileError) as caught:
        given("h100-sxm5-80gb", tmp_path / "missing")
    assert "missing" in caught.value.message


def test_an_unrelated_broken_file_does_not_hide_the_others(tmp_path):
    write(tmp_path, "p/good.yaml", device_text("good"))
    write(tmp_path, "p/broken.yaml", "id: [\n")
    write(tmp_path, "p/binary.yaml", "\x00\x01")
    assert given("good", tmp_path / "p").profile.id == "good"


def test_a_broken_file_asked_for_by_id_tells_its_faults(tmp_path):
    write(tmp_path, "p/mine.yaml", device_text("mine", tdp_w="-1"))
    with pytest.raises(ProfileError) as caught:
        given("mine", tmp_path / "p")
    assert "mine.yaml:12:1" in caught.value.message


# --- shadows ------------------------------------------------------------------------------------------------------------------------


def test_a_profile_that_shadows_a_bundled_one_is_announced(tmp_path):
    path = write(tmp_path, "p/h100-sxm5-80gb.yaml", device_text("h100-sxm5-80gb"))
    found = given("h100-sxm5-80gb", tmp_path / "p")
    assert len(found.notices) == 1
    assert str(path) in found.notices[0]
    assert "shadows" in found.notices[0]


def test_a_shadow_is_announced_by_alias_too(tmp_path):
    write(tmp_path, "p/h100-sxm5-80gb.yaml", device_text("h100-sxm5-80gb", aliases="[my card]"))
    assert given("my card", tmp_path / "p").notices


def test_identical_content_is_no_shadow(tmp_path):
    source = catalog.load("h100-sxm5-80gb", "hardware")
    (tmp_path / "p").mkdir()
    shutil.copy(source.path, tmp_path / "p" / "copy.yaml")
    found = given("h100-sxm5-80gb", tmp_path / "p")
    assert found.notices == ()
    assert found.sha256 == source.sha256


def test_the_same_file_reached_twice_is_one_profile(tmp_path, monkeypatch):
    write(tmp_path, "empty/hardware_profiles/mine.yaml", device_text("mine", aliases="[card of mine]"))
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "empty" / "hardware_profiles"))
    (tmp_path / "link").symlink_to(tmp_path / "empty" / "hardware_profiles")
    found = given("card of mine", tmp_path / "link")
    assert found.notices == ()
    assert [e.id for e in catalog.entries("hardware", str(tmp_path / "link"))].count("mine") == 1


def test_a_linked_file_reached_twice_is_one_profile(tmp_path):
    path = write(tmp_path, "p/a/mine.yaml", device_text("mine", aliases="[card of mine]"))
    (tmp_path / "p" / "b").mkdir()
    (tmp_path / "p" / "b" / "mine.yaml").symlink_to(path)
    found = given("card of mine", tmp_path / "p")
    assert found.profile.id == "mine"
    assert found.notices == ()


def test_new_ids_shadow_nothing(tmp_path):
    write(tmp_path, "p/mine.yaml", device_text("mine"))
    assert given("mine", tmp_path / "p").notices == ()


# --- the index ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path) -> Path:
    """A folder of three devices with its index."""
    folder = tmp_path / "indexed"
    for name in ("one", "two", "three"):
        write(folder, f"{name}.yaml", device_text(name, aliases=f"[alias of {name}]"))
    index(folder, "hardware")
    return folder


def test_an_index_that_is_current_answers(indexed):
    assert given("alias of two", indexed).profile.id == "two"


def test_an_edited_alias_is_found_though_the_index_does_not_know_it(indexed):
    write(indexed, "two.yaml", device_text("two", aliases="[renamed]"))
    assert given("renamed", indexed).profile.id == "two"


def test_an_alias_taken_out_of_a_file_is_gone_though_the_index_knows_it(indexed):
    write(indexed, "two.yaml", device_text("two", aliases="[renamed]"))
    with pytest.raises(UnknownNameError):
        given("alias of two", indexed)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("2xH100", "did you mean h100-nvl-94gb, h100-pcie-80gb, h100-sxm5-80gb with --gpus 2?"),
        ("8 x L40S", "did you mean l40s with --gpus 8?"),
        ("4xnothing-like-it", "`roofcast hardware list` shows all"),
    ],
)
def test_a_number_of_devices_is_sent_to_its_option(name, hint):
    with pytest.raises(UnknownNameError) as caught:
        catalog.load(name, "hardware")
    assert caught.value.hint == hint


@pytest.mark.parametrize(("kind", "name"), [("hardware", "my-gpu"), ("model", "my-model")])
def test_a_file_beside_that_has_the_name_is_offered_as_a_path(kind, name):
    Path(f"{name}.yaml").write_text("", encoding="utf-8")
    with pytest.raises(UnknownNameError) as caught:
        catalog.load(name, kind)
    assert caught.value.hint == f"did you mean ./{name}.yaml?"


def test_an_alias_moved_to_another_file_is_found_there(indexed):
    write(indexed, "two.yaml", device_text("two"))
    write(indexed, "three.yaml", device_text("three", aliases="[alias of two]"))
    assert given("alias of two", indexed).profile.id == "three"


def test_edited_figures_are_read_though_the_index_is_old(indexed):
    write(indexed, "two.yaml", device_text("two", name="edited"))
    found = given("two", indexed)
    assert found.profile.name == "edited"


def test_a_deleted_file_is_gone_though_the_index_knows_it(indexed):
    (indexed / "two.yaml").unlink()
    with pytest.raises(UnknownNameError):
        given("two", indexed)


def test_a_new_file_is_found_though_the_index_does_not_know_it(indexed):
    write(indexed, "four.yaml", device_text("four"))
    assert given("four", indexed).profile.id == "four"


def test_a_renamed_id_is_found_by_its_new_name_and_gone_by_its_old(indexed):
    (indexed / "two.yaml").rename(indexed / "second.yaml")
    write(indexed, "second.yaml", device_text("second"))
    assert given("second", indexed).profile.id == "second"
    with pytest.raises(UnknownNameError):
        given("two", indexed)


def test_a_moved_file_is_found(indexed):
    (indexed / "sub").mkdir()
    (indexed / "two.yaml").rename(indexed / "sub" / "two.yaml")
    assert given("two", indexed).profile.id == "two"


def test_listing_follows_the_files_and_not_the_index(indexed):
    (indexed / "one.yaml").unlink()
    write(indexed, "two.yaml", device_text("two", name="edited"))
    write(indexed, "four.yaml", device_text("four"))
    found = {e.id: e for e in catalog.entries("hardware", str(indexed))}
    assert {"two", "three", "four"} <= set(found)
    assert "one" not in found
    assert "edited" in found["two"].names
    assert "alias of two" not in found["two"].names


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"profiles": 3}', '{"profiles": {"one.yaml": {}}}', '{"profiles": {"one.yaml": 1}}', "null"]
)
def test_a_broken_index_is_ignored(indexed, text):
    (indexed / catalog.INDEX_NAME).write_text(text, encoding="utf-8")
    assert given("alias of two", indexed).profile.id == "two"
    assert {"one", "two", "three"} <= {e.id for e in catalog.entries("hardware", str(indexed))}


def test_every_edit_within_one_process_is_seen(indexed):
    """A notebook that edits a profile and asks again gets the new figures, however often."""
    assert given("alias of two", indexed).profile.name == "TWO"
    for i in range(3):
        write(indexed, "two.yaml", device_text("two", name=f"edit {i}", aliases=f"[alias {i}]"))
        assert given("two", indexed).profile.name == f"edit {i}"
        assert given(f"alias {i}", indexed).profile.id == "two"


def test_every_new_file_within_one_process_is_seen(indexed):
    for i in range(3):
        write(indexed, f"new-{i}.yaml", device_text(f"new-{i}"))
        assert given(f"new-{i}", indexed).profile.id == f"new-{i}"


def test_edits_are_seen_in_a_folder_without_an_index(tmp_path):
    for i in range(3):
        write(tmp_path, "p/mine.yaml", device_text("mine", name=f"edit {i}", aliases=f"[alias {i}]"))
        assert given("mine", tmp_path / "p").profile.name == f"edit {i}"
        assert given(f"alias {i}", tmp_path / "p").profile.id == "mine"


def test_a_change_of_the_working_folder_within_one_process_is_seen(tmp_path, monkeypatch):
    for name in ("first", "second", "third"):
        write(tmp_path, f"{name}/hardware_profiles/mine.yaml", device_text("mine", name=f"of {name}", aliases=f"[alias of {name}]"))
        monkeypatch.chdir(tmp_path / name)
        assert catalog.load("mine", "hardware").profile.name == f"of {name}"
        assert catalog.load(f"alias of {name}", "hardware").profile.name == f"of {name}"


def test_a_folder_that_is_gone_from_the_working_folder_does_not_matter(tmp_path, monkeypatch):
    write(tmp_path, "first/hardware_profiles/h100-sxm5-80gb.yaml", device_text("h100-sxm5-80gb", name="of first"))
    monkeypatch.chdir(tmp_path / "first")
    assert catalog.load("h100-sxm5-80gb", "hardware").profile.name == "of first"
    monkeypatch.chdir(tmp_path)
    assert catalog.load("h100-sxm5-80gb", "hardware").profile.name == "H100 SXM5 80GB"


def test_the_shipped_indexes_are_current():
    for kind in ("model", "hardware"):
        folder = catalog.bundled_folder(kind)
        stored = json.loads((folder / catalog.INDEX_NAME).read_text(encoding="utf-8"))["profiles"]
        files = {
            p.relative_to(folder).as_posix(): catalog.reader.sha256(p.read_bytes())
            for p in catalog.profile_files(folder)
            if catalog.is_kind(p.read_bytes(), kind)
        }
        assert {path: entry["sha256"] for path, entry in stored.items()} == files


# --- names ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["h100-sxm5-80gb", "H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", "nvidia  h100 80gb  hbm3", " H100 SXM5 80GB "]
)
def test_device_names_fold_case_and_spaces(name):
    assert catalog.load(name, "hardware").profile.id == "h100-sxm5-80gb"


@pytest.mark.parametrize("name", ["h100", "NVIDIA H100", "h100-sxm5", "100-sxm5-80gb", "NVIDIA H100 80GB HBM3 extra"])
def test_part_of_a_device_name_is_not_that_device(name):
    try:
        found = catalog.load(name, "hardware").profile
    except UnknownNameError:
        return
    assert name.casefold() in (a.casefold() for a in (found.id, found.name, *found.aliases))


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-8b",
        "meta-llama-3.1-8b",
        "Meta-Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-8B",
        "meta-llama/Llama-3.1-8B",
        "LLAMA-3.1-8B",
    ],
)
def test_llama_8b_by_all_its_names(name):
    assert catalog.load(name, "model").profile.hidden_size == 4096


@pytest.fixture
def models(tmp_path) -> Path:
    folder = tmp_path / "models"
    write(folder, "org/meta-alpha-7b.yaml", model_text("meta-alpha-7b", hub_id="org/Meta-Alpha-7B"))
    write(folder, "org/beta-7b-instruct.yaml", model_text("beta-7b-instruct", hub_id="org/Beta-7B-Instruct"))
    write(folder, "org/gamma-7b-chat-hf.yaml", model_text("gamma-7b-chat-hf", hub_id="org/Gamma-7b-chat-hf"))
    write(folder, "org/delta-2-it.yaml", model_text("delta-2-it", hub_id="org/delta-2-it"))
    write(folder, "org/eps-instruct-v0.3.yaml", model_text("eps-instruct-v0.3", hub_id="org/Eps-Instruct-v0.3"))
    return folder


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("alpha-7b", "meta-alpha-7b"),
        ("alpha-7b-instruct", "meta-alpha-7b"),
        ("meta-alpha-7b-chat", "meta-alpha-7b"),
        ("org/Meta-Alpha-7B", "meta-alpha-7b"),
        ("org/meta-alpha-7b", "meta-alpha-7b"),
        ("beta-7b", "beta-7b-instruct"),
        ("beta-7b-instruct", "beta-7b-instruct"),
        ("beta-7b-chat", "beta-7b-instruct"),
        ("gamma-7b", "gamma-7b-chat-hf"),
        ("gamma-7b-hf", "gamma-7b-chat-hf"),
        ("gamma-7b-chat", "gamma-7b-chat-hf"),
        ("delta-2", "delta-2-it"),
        ("eps-v0.3", "eps-instruct-v0.3"),
        ("eps-it-v0.3", "eps-instruct-v0.3"),
    ],
)
def test_tuning_words_and_meta_may_be_dropped_or_added(models, name, identifier):
    assert given(name, models, "model").profile.id == identifier


def test_an_exact_name_wins_over_one_without_its_tuning_word(models):
    write(models, "org/beta-7b.yaml", model_text("beta-7b"))
    assert given("beta-7b", models, "model").profile.id == "beta-7b"
    assert given("beta-7b-instruct", models, "model").profile.id == "beta-7b-instruct"


def test_a_dropped_word_that_fits_two_models_is_ambiguous_and_lists_them(models):
    write(models, "org/beta-7b-chat.yaml", model_text("beta-7b-chat"))
    with pytest.raises(UnknownNameError) as caught:
        given("beta-7b", models, "model")
    assert "ambiguous" in caught.value.message
    assert {"beta-7b-chat", "beta-7b-instruct"} <= set(caught.value.hint.replace(",", " ").split())


def test_an_alias_of_two_profiles_is_ambiguous(tmp_path):
    for name in ("one", "two"):
        write(tmp_path, f"p/{name}.yaml", device_text(name, aliases="[the card]"))
    with pytest.raises(UnknownNameError) as caught:
        given("the card", tmp_path / "p")
    assert "one" in caught.value.hint
    assert "two" in caught.value.hint


def test_an_id_wins_over_an_alias_of_another_profile(tmp_path):
    write(tmp_path, "p/one.yaml", device_text("one"))
    write(tmp_path, "p/two.yaml", device_text("two", aliases="[one]"))
    assert given("one", tmp_path / "p").profile.id == "one"


@pytest.mark.parametrize(
    ("name", "kind", "near"),
    [("h100-sxm5-80g", "hardware", "h100-sxm5-80gb"), ("lama-3.1-8b", "model", "llama-3.1-8b"), ("toy-12d", "model", "toy-12d2")],
)
def test_an_unknown_name_suggests_the_nearest(name, kind, near):
    with pytest.raises(UnknownNameError) as caught:
        catalog.load(name, kind)
    assert caught.value.exit_code == 2
    assert name in caught.value.message
    assert near in caught.value.hint


@pytest.mark.parametrize("name", ["", " ", "zzzzzzzz", "é" * 500, "a\nb", "a\x00b", "*", "org/", "/"])
def test_nonsense_names_are_refused(name):
    with pytest.raises((UnknownNameError, ProfileError)):
        catalog.load(name, "hardware")


def test_every_shipped_name_resolves_to_its_own_profile():
    for kind in ("model", "hardware"):
        owners: dict[str, set[str]] = {}
        for entry in catalog.entries(kind):
            for name in entry.names:
                owners.setdefault(catalog.fold(name), set()).add(entry.id)
        shared = {name: ids for name, ids in owners.items() if len(ids) > 1 and name not in ids}
        assert shared == {}


def test_completion_offers_names_that_begin_as_typed():
    offered = catalog.completions("h100", "hardware")
    assert "h100-sxm5-80gb" in offered
    assert all(catalog.fold(name).startswith("h100") for name in offered)
    assert "toy-12d2" in catalog.completions("toy", "model")
