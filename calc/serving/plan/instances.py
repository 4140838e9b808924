"""GPUs that are sold together: a price that is a share of an instance's may pay for whole instances.

Profiles write such a price with its division, ``p5en.48xlarge us-east-1 (63.296 / 8)``: USD per hour of the instance, and its GPUs. Prices
that are given count for single GPUs.
"""

from __future__ import annotations

import math
import re

from calc.profiles.hardware import HardwareProfile
from calc.serving import cost
from calc.serving.cost import Instance, Price
from calc.serving.load.option import Option

#: Source of a price that the user gives.
GIVEN = "given"
_DIVISION = re.compile(r"^(?P<name>.*?)\s*\((?P<usd>\d+(?:\.\d+)?) / (?P<gpus>\d+)\)$")
#: Prices are rounded; a division that misses the stated price by more is none.
_ROUNDING = 0.005


def sold_as(hardware: HardwareProfile) -> Instance | None:
    """The instance that the profile's price is a share of; None where the profile does not say."""
    price = hardware.cloud_price_usd_per_hour
    found = _DIVISION.match(price.instance or "") if price else None
    if price is None or found is None or int(found["gpus"]) < 2:
        return None
    each = float(found["usd"]) / int(found["gpus"])
    return Instance(found["name"], int(found["gpus"])) if math.isclose(each, price.value, rel_tol=_ROUNDING) else None


def instance(option: Option) -> Instance | None:
    """The instance that an option's GPUs are paid in; None where they are paid one by one, or no price is known."""
    return option.price.instance if option.price else None


def paid_gpus(option: Option, gpus: int) -> int:
    """GPUs that are paid for where ``gpus`` are in use."""
    sold = instance(option)
    return sold.whole(gpus) * sold.gpus if sold else gpus


def bill(option: Option, gpus: int) -> float | None:
    """USD for an hour of ``gpus`` in use; None where no price is known."""
    return cost.usd_per_hour(option.price, paid_gpus(option, gpus)) if option.price else None


def affordable(option: Option, usd_per_hour: float) -> int:
    """Most GPUs of an option that cost less than ``usd_per_hour``; the option must have a price, and none counts where that is 0."""
    sold, price = instance(option), option.price
    assert price is not None
    unit = sold.gpus if sold else 1
    if not price.usd_per_hour:
        return 0
    return (math.ceil(usd_per_hour / cost.usd_per_hour(price, unit) * (1 - 1e-12)) - 1) * unit


def per_gpu_in_use(option: Option, gpus: int) -> Price | None:
    """The price of a GPU in use, its share of the idle ones of its instances included."""
    paid, price = paid_gpus(option, gpus), option.price
    if price is None or paid == gpus:
        return price
    sold = instance(option)
    assert sold is not None
    source = f"{price.source}; {gpus} of {paid} GPUs of whole instances {sold.name} in use"
    return Price(price.usd_per_hour * paid / gpus, source, sold)
