"""One replica under load: alone it is the single estimate, and rates and latencies hold together."""

import numpy as np
import pytest

from calc.memory.options import MemoryOptions
from calc.serving.deployment import Deployment
from calc.serving.estimate import estimate
from calc.serving.load.replica import replica
from calc.serving.load.traffic import spread, uniform
from calc.serving.request import Workload
from tests.support.profiles import attention, decoder, deployment, device

MODEL = decoder(hidden=1024, layers=6, mixers=attention(16, 4, 64), width=4096, vocab=32000)


def settled(**options: object) -> Deployment:
    return deployment(MODEL, device(), engine="ideal", memory=MemoryOptions(max_num_batched_tokens=4096), **options)


@pytest.mark.parametrize("part", ["floor", "low", "expected", "high"])
@pytest.mark.parametrize("split", [{}, {"tensor_parallel_size": 4}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}])
def test_one_user_alone_gets_the_single_estimate(part, split):
    one = settled(**split)
    alone = replica(one, one.engine.capacity(one.question()), uniform(700, 100), np.array([1.0]), closed=True).at(part)
    single = estimate(one, Workload(1, 700, 100)).request
    assert alone.ttft_s[0] == pytest.approx(getattr(single.ttft_s, part), rel=1e-12)
    assert alone.tpot_s[0] == pytest.approx(getattr(single.tpot_s, part), rel=1e-12)
    assert alone.e2e_s[0] == pytest.approx(getattr(single.e2e_s, part), rel=1e-12)
    assert alone.rate[0] == pytest.approx(1 / getattr(single.e2e_s, part), rel=1e-12)


@pytest.mark.parametrize("closed", [True, False])
def test_more_in_flight_carry_more_and_wait_longer(closed):
    one = settled()
    loads = np.arange(1.0, 200.0)
    found = replica(one, one.engine.capacity(one.question()), uniform(700, 100), loads, closed=closed).at("expected")
    assert (np.diff(found.tpot_s) >= 0).all()
    finite = np.isfinite(found.ttft_s)
    assert (np.diff(found.ttft_s[finite]) >= -1e-12).all()
    assert (np.diff(found.rate) >= -1e-4 * found.rate[:-1]).all()  # saturated prefill only loses to the decodes beside it
    if not closed:  # Little's law
        free = found.rate < found.limit
        assert found.rate[free] * 100 * found.tpot_s[free] == pytest.approx(loads[free])


def test_closed_users_obey_littles_law():
    one = settled()
    loads = np.arange(1.0, 100.0)
    traffic = uniform(700, 100)
    found = replica(one, one.engine.capacity(one.question()), traffic, loads, closed=True).at("expected")
    assert found.rate * found.e2e_s == pytest.approx(loads)


def test_a_cached_prefix_shortens_the_wait():
    one = settled()
    held = one.engine.capacity(one.question())
    plain, cached = (replica(one, held, uniform(700, 100, hit), np.array([8.0]), closed=True).at("expected") for hit in (0, 512))
    assert cached.ttft_s < plain.ttft_s
    assert cached.tpot_s <= plain.tpot_s


def test_spread_lengths_cost_the_tail_more():
    one = settled()
    held = one.engine.capacity(one.question())
    loads = np.array([4.0, 16.0])
    same = replica(one, held, uniform(1000, 100), loads, closed=False).at("expected")
    mixed = replica(one, held, spread({0.5: 1000, 0.95: 3000}, {0.5: 100}), loads, closed=False).at("expected")
    assert (mixed.ttft_s > same.ttft_s).all()
