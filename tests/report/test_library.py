"""The lists of models and devices: filters, order, and what they refuse."""

from __future__ import annotations

import pytest

from calc.errors import UsageError
from calc.profiles import catalog
from calc.report import library


def test_devices_by_vendor_memory_and_order():
    everything = library.hardware_rows(None)
    found = library.hardware_rows(None, vendor="nvidia", min_memory_gb=80, sort="bandwidth")
    assert {r["vendor"].lower() for r in found} == {"nvidia"}
    assert min(r["memory_gb"] for r in found) >= 80
    rates = [r["memory_bandwidth_gb_per_s"] for r in found if r["memory_bandwidth_gb_per_s"] is not None]
    assert rates == sorted(rates, reverse=True)
    assert len(found) < len(everything)
    priced = library.hardware_rows(None, sort="price")
    prices = [r["price_usd_per_hour"] for r in priced]
    known = [p for p in prices if p is not None]
    assert prices == sorted(known) + [None] * (len(prices) - len(known))


def test_models_of_a_family():
    found = library.model_rows(None, family="llama")
    assert found
    assert {r["family"] for r in found} == {"llama"}


def test_a_cache_that_stops_at_its_window_is_not_shown_as_none():
    rows = {r["id"]: r for r in library.model_rows(None)}
    shown = {row[0]: row[-1] for row in library.models_page(list(rows.values())).tables[0].rows}
    assert rows["mistral-7b-instruct-v0.1"]["kv_bytes_per_token"] == 0
    assert shown["mistral-7b-instruct-v0.1"] == "window"
    assert shown["mamba2-2.7b"] == "0"
    assert shown["meta-llama-3.1-8b"] == "131,072"


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("llama-2-7b", 4096), ("llama-2-13b", 4096), ("llama-2-70b", 4096),
        ("gemma-3-1b", 32768), ("gemma-3-4b", 131072), ("gemma-3-12b", 131072), ("gemma-3-27b", 131072),
    ],
)  # fmt: skip
def test_contexts_are_those_the_makers_publish(name, context):
    assert catalog.load(name, "model").profile.max_position_embeddings == context


@pytest.mark.parametrize(("words", "message"), [({"vendor": "nvida"}, "NVIDIA"), ({"sort": "memori"}, "memory")])
def test_what_is_not_known_is_refused_with_what_is(words, message):
    with pytest.raises(UsageError) as caught:
        library.hardware_rows(None, **words)
    assert message in (caught.value.hint or "")
