"""A planted device comes back from its noisy times."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from calc.measure.fitting.fit import errors, fit
from calc.measure.fitting.solver import Law, Observation
from calc.timing.roofline import corrected

PEAK, BANDWIDTH = 1e15, 3e12
SHAPES = (
    (4096, 4096),
    (6144, 4096),
    (28672, 4096),
    (4096, 14336),
    (8192, 8192),
    (10240, 8192),
    (57344, 8192),
    (8192, 28672),
    (1024, 4096),
)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def observations(law: Law, seed: int, *, noise: float = 0.02, gross: float = 0.03, tile: float = 0.0, element: int = 2):
    random, found = Random(seed), []
    for n, k in SHAPES:
        for m in ROWS:
            compute, memory = 2 * m * n * k / PEAK, (m * k + n * k + m * n) * element / BANDWIDTH
            true = law.launch_s + ((compute / law.compute) ** law.knee + (memory / law.bandwidth) ** law.knee) ** (1 / law.knee)
            true *= math.exp(random.gauss(0, noise) + random.uniform(0, tile)) * (
                random.uniform(1.3, 2) if random.random() < gross else 1
            )
            found.append(
                Observation(f"{n}x{k}x{m}", "decode" if m <= 256 else "prefill", compute, memory, true, 0.01, f"{n}x{k}", m, m)
            )
    return found


@pytest.mark.parametrize("planted", [Law(0.72, 0.86, 4e-6, 3.0), Law(0.5, 0.95, 1e-6, 8.0)])
def test_planted_parameters_come_back_over_many_seeds(planted):
    inside = {"compute": 0, "bandwidth": 0, "launch_s": 0}
    seeds = range(15)
    for seed in seeds:
        found = fit(observations(planted, seed), 2e-6, bootstrap=40, validate=seed == 0).whole
        assert found.law.compute == pytest.approx(planted.compute, rel=0.03)
        assert found.law.bandwidth == pytest.approx(planted.bandwidth, rel=0.02)
        assert found.law.launch_s == pytest.approx(planted.launch_s, rel=0.25)
        assert (found.law.knee or 16) == pytest.approx(planted.knee, rel=1.01)  # 8 is hard to tell from the larger of both
        for name, (low, high) in found.intervals.items():
            inside[name] += low * 0.99 <= getattr(planted, name) <= high * 1.01
        assert seed or errors(list(found.held_out.values())).median < 0.04
    assert all(n >= 0.85 * len(seeds) for n in inside.values()), inside


def test_an_unmodelled_loss_lowers_the_efficiency_by_its_mean():
    planted = Law(0.72, 0.86, 4e-6, 3.0)
    found = fit(observations(planted, 1, tile=0.06), 2e-6, bootstrap=0).whole
    assert found.law.compute == pytest.approx(0.72 * math.exp(-0.03), rel=0.02)


def test_what_no_case_tells_stays_at_its_prior():
    planted = Law(0.7, 0.8, 4e-6, 3.0)
    rows = [o for o in observations(planted, 2, gross=0) if o.rows == 1]
    found = fit(rows, 3e-6, start=Law(0.6, 0.6, 3e-6, None), bootstrap=0).whole
    assert found.compute_cases == 0
    assert found.law.knee is None
    assert found.law.compute == pytest.approx(0.6, rel=0.02)
    assert found.law.bandwidth == pytest.approx(0.8, rel=0.05)


def test_more_than_the_ceiling_is_kept():
    found = fit(observations(Law(1.4, 1.2, 1e-6, 3.0), 3), 1e-6, bootstrap=0).whole
    assert found.law.compute > 1.3
    assert found.law.bandwidth > 1.15


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_efficiencies_do_not_depend_on_the_unit_of_time(factor):
    seen = observations(Law(0.7, 0.8, 4e-6, 3.0), 6)
    scaled = [
        replace(o, compute_s=o.compute_s * factor, memory_s=o.memory_s * factor, time_s=o.time_s * factor) for o in reversed(seen)
    ]
    one, two = (
        fit(seen, 2e-6, bootstrap=0, validate=False).whole.law,
        fit(scaled, 2e-6 * factor, bootstrap=0, validate=False).whole.law,
    )
    assert two.compute == pytest.approx(one.compute, rel=1e-4)
    assert two.bandwidth == pytest.approx(one.bandwidth, rel=1e-4)
    assert two.launch_s == pytest.approx(one.launch_s * factor, rel=1e-3)


def test_errors_of_nothing():
    assert errors([]) is None
    assert errors([0.1, -0.1]).bias == pytest.approx(1)


def test_another_kernel_at_one_row_gets_a_correction():
    planted = Law(0.7, 0.5, 1e-6, 3.0)
    odd = [replace(o, time_s=o.time_s * 0.5) if o.rows == 1 else o for o in observations(planted, 4, gross=0)]
    found = fit(odd, 1e-6, bootstrap=0).whole
    table = dict(found.law.correction)
    assert table[1] == pytest.approx(0.5, rel=0.1)
    assert table[64] == pytest.approx(1, abs=0.1)
    assert errors(list(found.held_out.values())).p90 < 0.15


def test_no_correction_where_the_law_holds():
    assert fit(observations(Law(0.7, 0.8, 4e-6, 3.0), 5, gross=0), 2e-6, bootstrap=0).whole.law.correction == ()


@pytest.mark.parametrize("rows", [0.5, 1, 3, 4, 16, 100])
def test_a_correction_is_the_same_for_numbers_and_arrays(rows):
    import numpy as np

    table = [(1.0, 0.5), (4.0, 2.0), (16.0, 1.2)]
    one = corrected(table, rows)
    assert one == pytest.approx(float(corrected(table, np.array([rows]))[0]))
    assert one == {0.5: 1.0, 1: 0.5, 4: 2.0, 16: pytest.approx(1.2), 100: 1.0}.get(rows, one)


KERNELS = {"rope": Law(0.5, 0.6, 9e-6, None), "silu": Law(0.5, 0.7, 2e-6, None), "copy": Law(0.5, 0.95, 1e-6, None)}


def small_operations(seed: int, kernels=KERNELS, rows=(1, 4, 16, 64, 256, 1024, 4096), noise=0.02):
    """Operations that only move bytes, each with a law of its own."""
    random, found = Random(seed), []
    for name, law in kernels.items():
        for m in rows:
            memory = m * 8192 * 4 / BANDWIDTH
            time_s = (law.launch_s + memory / law.bandwidth) * math.exp(random.gauss(0, noise))
            found.append(Observation(f"{name}/{m}", "decode", 0.0, memory, time_s, 0.01, f"{name} 8192", m, m, name))
    return found


def test_each_kernel_gets_its_own_law_over_many_seeds():
    for seed in range(8):
        found = fit(small_operations(seed), 2e-6, bootstrap=0)
        assert found.own.keys() == KERNELS.keys()
        for name, planted in KERNELS.items():
            assert found.own[name].law.bandwidth == pytest.approx(planted.bandwidth, rel=0.06)
            assert found.own[name].law.launch_s == pytest.approx(planted.launch_s, rel=0.08)
        assert errors(list(found.held_out.values())).p90 < 0.08
        assert set(found.residuals) == {o.case_id for o in small_operations(seed)}


def test_kernels_of_one_law_share_it():
    same = dict.fromkeys(("a", "b", "c"), Law(0.5, 0.7, 3e-6, None))
    chosen = [fit(small_operations(seed, same), 2e-6, bootstrap=0).own for seed in range(8)]
    assert sum(not own for own in chosen) >= 6  # 2 % of noise may favour more parameters now and then


def test_a_kernel_with_one_case_stays_near_its_class_where_that_case_tells_nothing():
    few = [o for o in small_operations(1) if o.kernel != "rope" or o.size == 4096]
    found = fit(few, 2e-6, bootstrap=0)
    rope = found.own["rope"].law
    assert rope.launch_s == pytest.approx(found.whole.law.launch_s, rel=0.1)
    assert rope.bandwidth == pytest.approx(KERNELS["rope"].bandwidth, rel=0.1)


def test_a_kernel_that_nobody_measured_has_the_error_of_one_left_out_whole():
    found = fit(small_operations(2), 2e-6, bootstrap=0)
    own, unseen = (errors(list(h.values())) for h in (found.held_out, found.whole.held_out))
    assert unseen.n == len(small_operations(2))
    assert unseen.p90 > 5 * own.p90


def test_a_law_of_its_own_needs_a_size_to_validate_it():
    two = fit(small_operations(3, rows=(1, 4096)), 2e-6, bootstrap=0)
    assert two.own == {}  # without either end nothing tells that the law is better
    assert two.held_out == {}  # and no case lies between others
    three = fit(small_operations(3, rows=(1, 64, 4096)), 2e-6, bootstrap=0)
    assert three.own["rope"].law.launch_s == pytest.approx(9e-6, rel=0.15)


ALL_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512)
THREADED = Law(0.5, 0.8, 2e-6, None, threads=(40_000.0, 2.4))


def threaded_calls(seed: int, law: Law = THREADED, rows=ALL_SIZES, noise=0.02):
    """Calls of a host that spreads them over threads by their elements."""
    random, found = Random(seed), []
    for m in rows:
        elements, memory = m * 4096, m * 4096 * 4 / 2e10
        busy = max(1.0, elements / law.threads[0]) if law.threads else math.inf
        slower = max(1.0, law.threads[1] / busy) if law.threads else 1.0
        time_s = (law.launch_s + memory / law.bandwidth * slower) * math.exp(random.gauss(0, noise))
        found.append(Observation(f"{m}", "decode", 0.0, memory, time_s, 0.02, "norm 4096", m, m, "norm", elements))
    return found


def test_planted_threads_come_back_over_many_seeds():
    for seed in range(4):
        found = fit(threaded_calls(seed), 2e-6, bootstrap=40)
        grain, enough = found.whole.law.threads
        assert grain == pytest.approx(40_000, rel=0.35)  # it is told by the sizes between which it lies
        assert enough == pytest.approx(2.4, rel=0.1)
        assert found.whole.law.bandwidth == pytest.approx(0.8, rel=0.06)
        assert found.whole.intervals.keys() == {"bandwidth", "launch_s"}
        assert errors(list(found.held_out.values())).p90 < 0.25
        assert errors(list(found.residuals.values())).worst < 0.12


def test_no_threads_where_all_calls_run_alike():
    plain = replace(THREADED, threads=None)
    chosen = [fit(threaded_calls(seed, plain), 2e-6, bootstrap=0).whole.law.threads for seed in range(4)]
    assert sum(found is None for found in chosen) >= 3


def test_too_few_sizes_tell_no_threads():
    assert fit(threaded_calls(0, rows=(1, 8, 64, 512)), 2e-6, bootstrap=0).whole.law.threads is None


def test_products_are_not_spread_by_their_elements():
    calls = [replace(o, elements=None) for o in threaded_calls(0)]
    assert fit(calls, 2e-6, bootstrap=0).whole.law.threads is None
