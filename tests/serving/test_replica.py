"""One replica under load: alone it is the single estimate, and rates and latencies hold together."""

import numpy as np
import pytest

from calc.memory.options import MemoryOptions
from calc.serving.deployment import Deployment
from calc.serving.estimate import estimate
from calc.serving.load.replica import replica
from calc.serving.load.traffic import spread, uniform
from calc.serving.request import Workload
from tests.serving.batching_server import serve
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
        steps = 1 + 99  # of its prompt, and of its other tokens
        assert found.rate[free] * steps * found.tpot_s[free] == pytest.approx(loads[free])


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


@pytest.mark.parametrize("users", [1, 16, 64, 256])
@pytest.mark.parametrize("output", [1, 2, 4, 16, 100])
@pytest.mark.parametrize("prompt", [16, 256, 700, 6000])
def test_closed_users_get_what_a_server_gives_step_by_step(prompt, output, users):
    one = settled()
    seen = serve(one, users, prompt, output, 4096, steps=max(600, 6 * output + 2 * users))
    held = one.engine.capacity(one.question())
    found = replica(one, held, uniform(prompt, output), np.array([float(users)]), closed=True).at("floor")
    assert 0.85 <= found.rate[0] / seen.rate <= 1.06
    if output > 1:
        assert 0.7 <= found.tpot_s[0] / seen.tpot_s <= 1.06


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("prompt", "slack"), [(16, 2e-3), (200, 2e-3), (1024, 2e-3), (6000, 0.05)])  # the last one comes in chunks
def test_longer_outputs_never_carry_more_requests(prompt, slack, closed):
    one = settled()
    held, loads = one.engine.capacity(one.question()), np.array([0.25, 1.0, 4.0, 16.0, 64.0, 256.0])[1 if closed else 0 :]
    rates = [
        replica(one, held, uniform(prompt, output), loads, closed=closed).at("expected").rate for output in (1, 2, 3, 4, 8, 32, 128)
    ]
    assert (np.diff(rates, axis=0) <= slack * np.array(rates[:-1])).all()


def test_prompts_never_come_faster_than_full_steps_compute_them():
    one = settled()
    held, loads = one.engine.capacity(one.question()), np.array([2.0, 16.0, 256.0, 1024.0])
    for output in (1, 2, 5):
        found = replica(one, held, uniform(64, output), loads, closed=True).at("expected")
        assert (found.rate <= found.limit * (1 + 1e-9)).all()
