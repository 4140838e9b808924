"""The lists of models and devices: filters, order, and what they refuse."""

from __future__ import annotations

import pytest

from calc.errors import UsageError
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


@pytest.mark.parametrize(("words", "message"), [({"vendor": "nvida"}, "NVIDIA"), ({"sort": "memori"}, "memory")])
def test_what_is_not_known_is_refused_with_what_is(words, message):
    with pytest.raises(UsageError) as caught:
        library.hardware_rows(None, **words)
    assert message in (caught.value.hint or "")
