"""What calls cost by the storm's own count of their tokens is what the store has of them."""

import pytest

from benchmarks.bills import compare
from benchmarks.providers import KEY, LANES


@pytest.mark.parametrize("profile", LANES)
async def test_the_booked_cost_is_the_bill(profile, tmp_path, monkeypatch):
    monkeypatch.setenv("STORM_KEY", KEY)
    bill = await compare(profile, tmp_path)
    assert bill.is_equal, bill
    assert bill.usd > 0
    assert not bill.missing
