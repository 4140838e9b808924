"""The closed forms of steady state against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.serving.load import batching


@given(batch=st.integers(1, 4096), prompt=st.integers(1, 100_000), output=st.integers(1, 4096), budget=st.integers(256, 1 << 16))
def test_chunks_carry_what_arrives(batch, prompt, output, budget):
    arriving = batch * prompt / output
    found = batching.chunks(batch, arriving, prompt, budget)
    assert 0 < found.share <= 1
    assert found.tokens <= found.room
    if arriving <= found.room:
        assert found.share * found.tokens == pytest.approx(arriving)
    if prompt <= arriving <= found.room:  # a prompt or more in every step: T = B (1 + input / output)
        assert found.share == 1
        assert batch + found.tokens == pytest.approx(batch * (1 + prompt / output))


def test_arrays_and_numbers_agree():
    batches = np.arange(1.0, 50.0)
    whole = batching.chunks(batches, batches * 3, 100.0, 512)
    for i, batch in enumerate(batches):
        one = batching.chunks(float(batch), float(batch) * 3, 100.0, 512)
        assert (one.tokens, one.share, one.per_prompt, one.room) == (
            whole.tokens[i], whole.share[i], np.broadcast_to(whole.per_prompt, batches.shape)[i], whole.room[i],
        )  # fmt: skip


def test_waiting_is_pollaczek_khinchine_for_poisson_arrivals():
    # M/D/1 at half load: half a service time; M/M/1: one.
    assert batching.queue_s(0.5, 1.0, 1.0, 0.0) == pytest.approx(0.5)
    assert batching.queue_s(0.5, 1.0, 1.0, 1.0) == pytest.approx(1.0)
    assert batching.queue_s(1.0, 1.0, 1.0, 0.0) == float("inf")


@given(users=st.integers(1, 500), service=st.floats(1e-3, 10), think=st.floats(0, 100))
def test_a_closed_set_of_users_waits_between_its_bounds(users, service, think):
    wait = batching.closed_queue_s(users, 1 / service, think)
    assert 0 <= wait <= (users - 1) * service * (1 + 1e-9) + 1e-9
    assert wait >= (users - 1) * service - think - 1e-6 * (users * service + think)  # the server is never faster than its service
    if users == 1:
        assert wait == pytest.approx(0, abs=1e-9 * (service + think))


def test_users_who_come_together_wait_for_half_of_the_others():
    assert batching.together_s(1, 4.0) == 0
    waits = [n / 4.0 for n in range(9)]  # served one after another
    assert batching.together_s(9, 4.0) == pytest.approx(sum(waits) / 9)


def test_pipeline_pace_and_prompts():
    assert batching.stage_pace(61, 4) == pytest.approx(64 / 61)
    assert batching.stage_pace(80, 8) == 1
    assert batching.prompt_s(1.0, 1.0, 1, 4) == 1.0  # one chunk passes all stages
    assert batching.prompt_s(1.0, 1.0, 8, 4) == 11 / 4  # eight chunks follow each other
    assert batching.prompt_s(0.75, 1.0, 2, 4) == 1.5 / 4 + 3 / 4  # a full one, and a half that never waits for more


@given(limit=st.integers(0, 5000))
def test_ladder_ends_at_its_limit(limit):
    found = list(batching.batch_ladder(limit))
    assert found == sorted(set(found))
    assert (found[-1] == limit) if limit else found == []
    assert found[: min(limit, 32)] == list(range(1, min(limit, 32) + 1))


@given(rate=st.floats(1e-3, 1e3), steps=st.integers(1, 4096), step=st.floats(1e-4, 1))
def test_littles_law_goes_both_ways(rate, steps, step):
    assert batching.request_rate(batching.in_flight(rate, steps, step), steps, step) == pytest.approx(rate)
