"""Every planted fault is noticed by at least one test that passes without it."""

from __future__ import annotations

import pytest

from tests.planted_faults import FAULTS, Fault, caught_by, failing


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_planted_fault_is_caught(fault: Fault) -> None:
    assert not failing(fault.tests)
    assert caught_by(fault)
    assert not failing(fault.tests)
