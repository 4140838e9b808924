"""Golden values of service: expert exchange, cache transfer, speculation, prices and energy."""

from __future__ import annotations

import pytest

import calc
from calc.operators import token_copies
from calc.serving import cost, disaggregation, speculation
from tests.support.golden import check

DEEPSEEK, LLAMA, H100 = "deepseek-v3", "llama-3.1-70b", "h100-sxm5-80gb"
NETWORK = 50e9  # 400 Gb/s


@pytest.mark.parametrize("ranks", [8, 32])
def test_a_token_goes_once_to_each_rank_of_its_experts(ranks):
    check(f"comm.ep.distinct_ranks.ep{ranks}", token_copies.destinations(256, 8, ranks))


def test_bytes_of_a_copy_of_a_token():
    check("comm.ep.dispatch.token", token_copies.copy_bytes(7168, 1, scale_block=token_copies.SCALE_BLOCK))
    check("comm.ep.combine.token", token_copies.copy_bytes(7168, 2))


@pytest.mark.parametrize(("identifier", "model"), [("pd.llama_70b.8192.ms", LLAMA), ("pd.deepseek_v3.8192.ms", DEEPSEEK)])
def test_transfer_of_a_cache(identifier, model):
    deployment = calc.deploy(model, H100)
    size = deployment.question().rank_cache_bytes(8192)
    check(identifier, 1e3 * disaggregation.transfer_s(size, NETWORK))


def test_tokens_of_a_round_and_its_speed_up():
    tokens = speculation.tokens_per_round((0.8,) * 4)
    check("spec.tokens.a0.8.g4", tokens)
    check("spec.speedup.a0.8.g4.c0.05", speculation.speedup(tokens, 4, 0.05, 1.0))


def test_price_and_energy_of_tokens():
    check("cost.2usd_2000tps", cost.usd_per_million(cost.usd_per_hour(cost.Price(2.0, "named"), 1), 2000))
    check("energy.700W_2000tps", cost.joules_per_token(700, 1, 2000))
