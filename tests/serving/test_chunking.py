"""Chunked prefill: chunks add up to the prompt, a mixed step to its parts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import UsageError
from calc.memory.options import MemoryOptions
from calc.operators import work
from calc.operators.work import causal_pairs
from calc.serving.chunking import chunked_prefill, mixed_step, spans
from calc.serving.phase import evaluate
from calc.serving.request import Workload
from tests.support.profiles import deployment, device, llama

TARGET = deployment(llama("8b"), device())


@given(prompt=st.integers(1, 100_000), cached=st.integers(0, 120_000), room=st.integers(1, 9000))
def test_chunks_hold_every_token_and_every_pair_of_the_prompt_once(prompt, cached, room):
    found = list(spans(prompt, cached, max(room, prompt // 1000)))
    done = min(cached, prompt - 1)
    assert sum(new for new, _ in found) == prompt - done
    assert sum(causal_pairs(*chunk) for chunk in found) == causal_pairs(prompt - done, done)


@settings(max_examples=15, deadline=None)
@given(prompt=st.integers(64, 8192), batch=st.integers(1, 64), budget=st.integers(128, 4096))
def test_work_of_the_chunks_is_the_work_of_the_prompt(prompt, batch, budget):
    found = chunked_prefill(TARGET, Workload(batch, prompt), budget)
    parts = [evaluate(TARGET, mixed_step(c.new, c.cached, 0, 1, first=True)) for c in found.chunks]
    whole = evaluate(TARGET, work.prefill(1, prompt))

    def matrix_flops(phase):
        return sum(o.flops * o.count for o in phase.operators if o.name != "lm_head")

    assert sum(map(matrix_flops, parts)) == pytest.approx(matrix_flops(whole))
    assert all(c.new + found.decodes <= budget for c in found.chunks)


@settings(max_examples=15, deadline=None)
@given(new=st.integers(2, 4096), cached=st.integers(0, 8192), decodes=st.integers(1, 64), context=st.integers(2, 8192))
def test_a_mixed_step_is_its_parts(new, cached, decodes, context):
    mixed = evaluate(TARGET, mixed_step(new, cached, decodes, context, first=True))
    chunk = evaluate(TARGET, mixed_step(new, cached, 0, context, first=True))
    decode = evaluate(TARGET, work.decode(decodes, context))
    for figure in ("flops", "kv_read_bytes", "kv_write_bytes"):
        assert getattr(mixed.totals, figure) == pytest.approx(getattr(chunk.totals, figure) + getattr(decode.totals, figure))
    assert mixed.totals.weight_bytes == chunk.totals.weight_bytes == decode.totals.weight_bytes
    longest = max(chunk.time_s.floor, decode.time_s.floor)
    assert longest * (1 - 1e-9) <= mixed.time_s.floor <= (chunk.time_s.floor + decode.time_s.floor) * (1 + 1e-9)


def test_a_prompt_that_fits_one_step_is_the_whole_prefill():
    found = chunked_prefill(TARGET, Workload(1, 1000), 2048)
    assert len(found.chunks) == 1
    assert found.ttft_s == found.whole_s
    assert found.mixed_s.expected is None


def test_decodes_wait_longer_beside_a_chunk():
    found = chunked_prefill(TARGET, Workload(32, 5000), 1024)
    assert len(found.chunks) == 6
    assert found.mixed_s.expected > found.decode_s.expected
    assert found.ttft_s.expected == pytest.approx(sum(c.time_s.expected for c in found.chunks))


def test_no_room_and_too_many_steps_say_what_would_do():
    with pytest.raises(UsageError, match="no room"):
        chunked_prefill(TARGET, Workload(65), 64)
    with pytest.raises(UsageError, match="steps") as refusal:
        chunked_prefill(TARGET, Workload(65, 1 << 20), 66)
    enough = int(refusal.value.hint.split()[-1].replace(",", ""))
    assert -(-(1 << 20) // (enough - 64)) <= 4096


@pytest.mark.parametrize(
    ("engine", "memory", "expected"),
    [
        ("llama.cpp", {}, 512),
        ("llama.cpp", {"max_num_batched_tokens": 4096}, 512),
        ("llama.cpp", {"max_num_batched_tokens": 256}, 256),
        ("llama.cpp", {"ubatch_size": 1024}, 1024),
        ("vllm", {"max_num_batched_tokens": 4096}, 4096),
    ],
)
def test_a_pass_of_a_prompt_takes_a_step_or_the_engines_own_part_of_it(engine, memory, expected):
    one = deployment(llama("8b"), device(), engine=engine, memory=MemoryOptions(**memory))
    assert one.setting.micro_batch == expected
