"""What attention would move if it stored its scores, by the definition of the naive kernel."""

import pytest

from calc.operators import work
from calc.operators.attention import score_bytes
from calc.operators.sharding import Sharding
from tests.support.profiles import attention, decoder, llama, named, operators


@pytest.mark.parametrize(("batch", "prompt", "cached"), [(1, 1024, 0), (4, 512, 100), (3, 2000, 1999)])
def test_scores_cross_memory_four_times(batch, prompt, cached):
    found = named(operators(llama("8b"), work.prefill(batch, prompt, cached)), "attention")
    assert score_bytes(found) == 4 * 32 * batch * (prompt - cached) * prompt * 4
    assert score_bytes(found, 2) == score_bytes(found) / 2


def test_a_rank_holds_its_share_of_the_heads():
    found = named(operators(llama("8b"), work.prefill(1, 1024), Sharding(tensor=4)), "attention")
    assert score_bytes(found) == 4 * 8 * 1024 * 1024 * 4


def test_a_mask_saves_nothing():
    model = decoder(hidden=512, layers=2, mixers=attention(8, 2, 64, "sliding", window=128), width=1024, vocab=1000)
    assert score_bytes(named(operators(model, work.prefill(1, 1024)), "attention")) == 4 * 8 * 1024 * 1024 * 4
