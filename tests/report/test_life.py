"""The page of a request's life."""

import pytest

from calc.report.life import balance


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (2.84, "2.84 prefill replicas keep a decode replica busy"),
        (0.1, "0.10 prefill replicas keep a decode replica busy"),
        (0.0025, "one prefill replica keeps 400 decode replicas busy"),
    ],
)
def test_balance_is_told_so_that_the_number_can_be_read(ratio, words):
    assert balance(ratio) == words
