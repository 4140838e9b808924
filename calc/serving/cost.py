"""Money and energy of a deployment: per hour, per million tokens, per token."""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Number, divide
from calc.errors import UsageError, did_you_mean
from calc.formula import formula
from calc.profiles.hardware import HardwareProfile

SECONDS_PER_HOUR = 3600
MILLION = 1e6
#: Lowest price of a GPU hour: costs are compared by ratios, and nothing is free.
LEAST_USD = 1e-6


@dataclass(frozen=True)
class Instance:
    """What a provider sells as one: ``gpus`` of a kind."""

    name: str
    gpus: int

    def whole(self, gpus: int) -> int:
        """Instances that hold so many GPUs."""
        return -(-gpus // self.gpus)


@dataclass(frozen=True)
class Price:
    """USD of one GPU for one hour, and where the figure comes from; ``instance``: paid for in whole ones of these."""

    usd_per_hour: float
    source: str
    instance: Instance | None = None


@dataclass(frozen=True)
class TokenCost:
    """USD per million tokens at the load in question; idle time is paid too.

    ``output_all_in`` charges everything to the output tokens. ``input`` and ``output`` split the bill by time: what prompts add to the
    steps is charged to the prompt tokens, the rest to the output tokens.
    """

    output_all_in: float
    input: float
    output: float


def profile_price(hardware: HardwareProfile) -> Price | None:
    """The profile's own dated figure, if it has one."""
    found = hardware.cloud_price_usd_per_hour
    if found is None:
        return None
    return Price(found.value, ", ".join(t for t in (found.provider, found.date) if t) or "profile")


@formula("price * gpus")
def usd_per_hour(price: Price, gpus: int) -> float:
    """USD for an hour of all GPUs, in use or not."""
    return price.usd_per_hour * gpus


@formula("usd_hour / 3600 * 1e6 / tokens_per_s")
def usd_per_million(usd_hour: float, tokens_per_s: Number) -> Number:
    """USD per million tokens of a deployment that makes ``tokens_per_s``."""
    return divide(usd_hour / SECONDS_PER_HOUR * MILLION, tokens_per_s)


def token_cost(usd_hour: float, input_tokens_per_s: float, output_tokens_per_s: float, prefill_share: float) -> TokenCost:
    """Split the bill; ``prefill_share`` is the share of the step time that prompts add."""
    return TokenCost(
        float(usd_per_million(usd_hour, output_tokens_per_s)),
        float(usd_per_million(usd_hour * prefill_share, input_tokens_per_s)),
        float(usd_per_million(usd_hour * (1 - prefill_share), output_tokens_per_s)),
    )


@formula("tdp_w * gpus / tokens_per_s")
def joules_per_token(tdp_w: float, gpus: int, tokens_per_s: float) -> float:
    """Upper bound of the energy of an output token: every GPU at its TDP all the time; hosts, cooling and losses come on top."""
    return tdp_w * gpus / tokens_per_s


def parse_prices(given: list[str], hardware: dict[str, str]) -> dict[str, float]:
    """``ID=USD`` pairs by profile id; ``hardware`` maps the names asked for to the ids they resolved to."""
    from calc import units

    prices: dict[str, float] = {}
    for pair in (p.strip() for text in given for p in text.split(",")):
        name, equals, amount = pair.partition("=")
        if not equals:
            raise UsageError(f"--price {pair!r} names no amount", "write it like --price h100-sxm5-80gb=2.50")
        identifier = hardware.get(name.strip()) or (name.strip() if name.strip() in hardware.values() else None)
        if identifier is None:
            known = [*hardware, *hardware.values()]
            raise UsageError(f"--price names {name!r}, which is not among --hardware", did_you_mean(name, known))
        prices[identifier] = units.parse_rate(amount.strip().lstrip("$"), f"--price {name}", minimum=LEAST_USD)
    return prices
