"""The YAML reader: version 1.2 scalars, nothing that hides content, bounded size and depth, every fault at once with its place."""

from __future__ import annotations

import math
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import ProfileError
from calc.profiles import hardware, model, model_faults, reader


def parse(text: str):
    return reader.parse_yaml(text.encode(), "file.yaml").data


def fault(text: str | bytes) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        reader.parse_yaml(text if isinstance(text, bytes) else text.encode(), "file.yaml")
    assert caught.value.exit_code == 3
    return caught.value


# --- scalars ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # words of YAML 1.1 that are plain text in 1.2
        *((word, word) for word in ("no", "No", "NO", "yes", "Yes", "on", "off", "Off", "y", "n", "Y", "N")),
        ("12:30:45", "12:30:45"),
        ("1:30", "1:30"),
        ("2024-07-23", "2024-07-23"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("=", "="),
        # numbers that YAML 1.1 readers take for text, or for other numbers
        ("3.35e12", 3.35e12),
        ("3e12", 3e12),
        ("1E-3", 1e-3),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+7", 7),
        ("-7", -7),
        ("0", 0),
        # constants
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("False", False),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("", None),
        # quoting makes text
        ("'no'", "no"),
        ('"12"', "12"),
        ("'null'", "null"),
        ("'3.35e12'", "3.35e12"),
        ('"true"', "true"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text, value):
    found = parse(f"key: {text}\n")["key"]
    assert found == value
    assert type(found) is type(value)


@given(st.integers())
def test_every_integer_is_read_back_as_a_number(number):
    found = parse(f"key: {number}\n")["key"]
    assert found == number if len(str(number)) <= 40 else float(found) == float(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back(number):
    assert parse(f"key: {number!r}\n")["key"] == number


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.inf", "nan", "inf", "Infinity", "1e999", "-1e999"])
def test_not_a_number_and_infinity_never_become_a_figure(text):
    """Either they stay text, or the schema's bounds refuse them."""
    found = parse(f"key: {text}\n")["key"]
    if isinstance(found, float):
        content = DEVICE.replace("memory_bandwidth_gb_per_s: 1000", f"memory_bandwidth_gb_per_s: {text}")
        with pytest.raises(ProfileError):
            read(content, hardware.HardwareProfile)
    else:
        assert found == text


def test_values_keep_their_text():
    assert parse("a: |\n  two\n  lines\nb: one # two\nc: 'it''s'\n") == {"a": "two\nlines\n", "b": "one", "c": "it's"}


def test_flow_and_block_styles_mean_the_same():
    assert parse("a: {b: [1, 2], c: {}}\n") == parse("a:\n  b:\n  - 1\n  - 2\n  c: {}\n")


def test_a_byte_order_mark_and_windows_line_ends_are_accepted():
    assert reader.parse_yaml(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "file.yaml").data == {"a": 1, "b": 2}


# --- what is refused --------------------------------------------------------------------------------------------------------------


def test_a_duplicate_key_is_refused_with_both_lines():
    error = fault("id: a\nname: b\nlist: [1]\nname: c\n")
    assert error.message.startswith("file.yaml:4:1:")
    assert "name" in error.message
    assert "2" in error.message.split(":", 3)[3], "the line of the first one is missing"


def test_a_duplicate_key_is_found_at_any_depth():
    error = fault("a:\n  b:\n    - c: 1\n      d: 2\n      c: 3\n")
    assert error.message.startswith("file.yaml:5:7:")
    assert "3" in error.message.split(":", 3)[3]


@pytest.mark.parametrize("text", ["a: {b: 1, b: 2}", "1: a\n1: b", "true: 1\ntrue: 2"])
def test_duplicates_are_refused_in_every_style(text):
    assert "file.yaml:" in fault(text).message


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("a: &x 1\n", "file.yaml:1:4:", "anchor"),
        ("a: *x\n", "file.yaml:1:4:", "alias"),
        ("a: !!str 1\n", "file.yaml:1:4:", "tag"),
        ("a: !!python/object/apply:os.system ['true']\n", "file.yaml:1:4:", "tag"),
        ("a: !own 1\n", "file.yaml:1:4:", "tag"),
        ("b: 1\n<<: {a: 1}\n", "file.yaml:2:1:", "merge"),
    ],
)
def test_anchors_aliases_tags_and_merges_are_refused_with_their_place(text, place, word):
    error = fault(text)
    assert error.message.startswith(place)
    assert word in error.message.lower()


def test_a_second_document_is_refused():
    assert fault("a: 1\n---\nb: 2\n").message.startswith("file.yaml:2:1:")


@pytest.mark.parametrize(
    "text", ["a: [1\n", "a: {b\n", "\ta: 1\n", "a: b: c\n", "a: 'open\n", "- a\nb: 1\n", "a: @x\n", "%YAML 9.9\n"]
)
def test_broken_yaml_is_refused_with_its_place(text):
    assert fault(text).message.startswith("file.yaml:")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00a", b"a: \xe9\n", b"\x89PNG\r\n\x1a\n\x00", b"a: 1\n\x00"])
def test_what_is_not_text_is_refused(content):
    assert "file.yaml" in fault(content).message


@pytest.mark.parametrize("content", ["[1, 2]", "just text", "3", ""])
def test_a_file_that_holds_no_mapping_is_refused(content):
    with pytest.raises(ProfileError) as caught:
        read(content, hardware.HardwareProfile)
    assert "mapping" in caught.value.message


@pytest.mark.parametrize("text", ["? [a, b]\n: 1\n", "{a: 1}: 2\n", "[1]: 2\n"])
def test_a_key_that_is_no_scalar_is_refused(text):
    assert fault(text).message.startswith("file.yaml:1:")


# --- bounds -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * 10_000, "a: " + "[" * 5000 + "]" * 5000, "{a: " * 3000, "- " * 4000 + "x"])
def test_depth_is_bounded_without_recursion(text):
    assert "deep" in fault(text).message or "nest" in fault(text).message


def test_moderate_depth_is_accepted():
    assert parse("a: " + "[" * 10 + "]" * 10)


def test_a_huge_number_of_values_is_refused_quickly():
    start = time.process_time()
    fault("a:\n" + "- 1\n" * 800_000)
    assert time.process_time() - start < 60  # all of them built would take minutes


def test_a_gigantic_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ProfileError) as caught:
        reader.read_bytes(path)
    assert "huge.yaml" in caught.value.message


def test_what_is_no_regular_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(ProfileError):
            reader.read_bytes(path)
    import os

    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ProfileError):
        reader.read_bytes(tmp_path / "pipe.yaml")


def test_an_endless_number_is_bounded():
    """Thousands of digits must neither hang nor become an integer of that size."""
    found = parse("key: " + "9" * 100_000 + "\n")["key"]
    assert not isinstance(found, int)


def assert_parsed_or_refused(content: bytes) -> None:
    said = ""
    try:
        reader.parse_yaml(content, "file.yaml")
    except ProfileError as error:
        said = error.message
    assert not said or said.startswith("file.yaml:")


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused_with_a_place(text):
    assert_parsed_or_refused(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused_with_a_place(content):
    assert_parsed_or_refused(content)


# --- every fault at once -------------------------------------------------------------------------------------------------------------

DEVICE = """\
id: card
name: Card
vendor: test
class: datacenter_gpu
unit_of_account: one
memory_capacity_gb: 80
memory_bandwidth_gb_per_s: 1000
peak_dense_tflops:
  bf16: 100
interconnect:
  scale_up_domain_size: 8
"""

MODEL = """\
id: small
name: Small
family: test
hidden_size: 64
vocab_size: 100
layer_kinds:
  decoder:
    mixers:
      - kind: full
        num_attention_heads: 4
        num_key_value_heads: 2
        head_dim: 16
    feed_forwards:
      - kind: dense
        intermediate_size: 128
stack:
  - repeat: 2
    layers: [decoder]
storage:
  dtype: bf16
"""


def read(content: str, schema, check=None):
    return reader.convert(reader.parse_yaml(content.encode(), "file.yaml"), schema, check)


def faults(content: str, schema, check=None) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        read(content, schema, check)
    error = caught.value
    assert error.exit_code == 3
    assert error.faults
    assert error.message.startswith(error.faults[0])
    return list(error.faults)


def test_the_profiles_used_here_are_sound():
    assert read(DEVICE, hardware.HardwareProfile, hardware.faults).id == "card"
    assert read(MODEL, model.ModelProfile, model_faults.faults).num_hidden_layers == 2


def test_all_faults_of_a_device_come_at_once_each_with_line_and_column():
    broken = (
        DEVICE.replace("memory_capacity_gb: 80", "memory_capacity_gb: -80")
        .replace("bf16: 100", "bf17: 100")
        .replace("scale_up_domain_size: 8", "scale_up_domain_size: eight")
        .replace("vendor: test", "vendor: 7")
        .replace("class: datacenter_gpu", "class: datacentre_gpu")
    )
    found = sorted(faults(broken, hardware.HardwareProfile), key=lambda line: int(line.split(":")[1]))
    places = [":".join(line.split(":")[:3]) for line in found]
    assert places == ["file.yaml:3:1", "file.yaml:4:1", "file.yaml:6:1", "file.yaml:9:3", "file.yaml:11:3"]
    assert "datacenter_gpu" in found[1], "a word nearly right is not corrected"
    assert "bf16" in found[3], "a key nearly right is not corrected"


def test_all_faults_of_a_model_come_at_once_each_with_line_and_column():
    broken = (
        MODEL.replace("hidden_size: 64", "hiden_size: 64")
        .replace("kind: full", "kind: ful")
        .replace("intermediate_size: 128", "intermediate_size: 12.5")
        .replace("repeat: 2", "repeat: 0")
    )
    found = faults(broken, model.ModelProfile)
    lines = sorted(int(line.split(":")[1]) for line in found)
    assert {4, 9, 15, 17} <= set(lines)
    assert any("hidden_size" in line for line in found)
    assert any("full" in line for line in found)


def test_a_missing_key_beside_other_faults_is_named():
    content = DEVICE.replace("vendor: test\n", "").replace("  bf16: 100\n", "  bf16: fast\n")
    found = " ".join(faults(content, hardware.HardwareProfile))
    assert "vendor" in found
    assert "bf16" in found


def test_missing_keys_are_all_named_at_once():
    content = DEVICE.replace("vendor: test\n", "").replace("memory_capacity_gb: 80\n", "").replace("unit_of_account: one\n", "")
    found = " ".join(faults(content, hardware.HardwareProfile))
    for key in ("vendor", "memory_capacity_gb", "unit_of_account"):
        assert key in found


def test_missing_keys_of_two_parts_are_both_named():
    content = MODEL.replace("        head_dim: 16\n", "").replace("        intermediate_size: 128\n", "")
    found = faults(content, model.ModelProfile)
    assert sorted(int(line.split(":")[1]) for line in found) == [9, 13]
    assert "head_dim" in " ".join(found)
    assert "intermediate_size" in " ".join(found)


def test_a_fault_in_one_element_of_a_list_does_not_hide_that_in_another():
    content = (
        DEVICE
        + "measured:\n"
        + "".join(
            f"  - {{metric: m{i}, value: {value}, unit: u, conditions: c, source: s}}\n"
            for i, value in enumerate(("1", "fast", "2", "-3", "4", "null"))
        )
    )
    found = faults(content, hardware.HardwareProfile)
    assert sorted(int(line.split(":")[1]) for line in found) == [14, 16, 18]


def test_an_unknown_layer_kind_names_the_field():
    content = MODEL.replace("kind: full", "kind: hyena")
    (found,) = faults(content, model.ModelProfile)
    assert found.startswith("file.yaml:9:")
    assert "kind" in found
    assert "hyena" in found


def test_a_stack_that_names_an_unknown_layer_is_refused_with_its_place():
    content = MODEL.replace("layers: [decoder]", "layers: [decoder, decodr]")
    (found,) = faults(content, model.ModelProfile, model_faults.faults)
    assert found.startswith("file.yaml:18:")
    assert "decodr" in found


def test_query_heads_that_cannot_share_key_value_heads_are_refused():
    content = MODEL.replace("num_key_value_heads: 2", "num_key_value_heads: 3")
    (found,) = faults(content, model.ModelProfile, model_faults.faults)
    assert found.startswith("file.yaml:11:")


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("hidden_size: 64", "hidden_size: 0"),
        ("hidden_size: 64", "hidden_size: -1"),
        ("hidden_size: 64", "hidden_size: 1.5"),
        ("hidden_size: 64", "hidden_size: 1e30"),
        ("hidden_size: 64", f"hidden_size: 1{'0' * 30}"),
        ("hidden_size: 64", "hidden_size: '64'"),
        ("hidden_size: 64", "hidden_size: true"),
        ("hidden_size: 64", "hidden_size: null"),
        ("hidden_size: 64", "hidden_size: [64]"),
        ("repeat: 2", f"repeat: {10**9}"),
        ("id: small", "id: Small Model"),
        ("id: small", "id: ../small"),
    ],
)
def test_figures_out_of_range_and_of_the_wrong_type_are_refused(line, replacement):
    (found, *more) = faults(MODEL.replace(line, replacement), model.ModelProfile, model_faults.faults)
    assert not more
    number = MODEL.split(line)[0].count("\n") + 1
    assert found.startswith(f"file.yaml:{number}:")


def test_a_deep_fault_carries_the_path_of_its_keys():
    (found,) = faults(MODEL.replace("head_dim: 16", "head_dim: wide"), model.ModelProfile)
    assert found.startswith("file.yaml:12:9:")
    assert "head_dim" in found


@given(
    st.dictionaries(
        st.sampled_from(["id", "name", "vendor", "class", "zzz", "sources"]), st.none() | st.integers() | st.text(max_size=9)
    )
)
def test_any_mapping_converts_or_is_refused_with_places(data):
    with pytest.raises(ProfileError) as caught:
        read(msgspec.json.encode(data).decode(), hardware.HardwareProfile)
    assert all(line.startswith("file.yaml:") for line in (caught.value.message, *caught.value.faults))


def test_floats_that_are_whole_are_accepted_where_a_rate_is_meant():
    assert math.isclose(read(DEVICE, hardware.HardwareProfile).bandwidth_bytes_per_s, 1e12)
