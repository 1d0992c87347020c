"""What a call costs: plain, cached and written input, tiers, rates of a lane."""

import pytest

from abreast.core.outcome import Usage
from abreast.models.price import FlatPrice, Price, find_price, priced


def _found(provider: str, model: str) -> Price:
    price = find_price(provider, model)
    assert price is not None
    return price


@pytest.mark.parametrize(
    ("provider", "model", "plain", "cached", "written"),
    [
        ("openai", "gpt-4o-mini", 0.15, 0.075, 0.15),
        ("anthropic", "claude-sonnet-4-5", 3.0, 0.3, 3.75),
    ],
)
def test_cached_input_has_a_price_of_its_own(
    provider: str, model: str, plain: float, cached: float, written: float
) -> None:
    price = _found(provider, model)
    assert price.of(100_000, 0) == pytest.approx(plain / 10)
    assert price.of(100_000, 0, cached=100_000) == pytest.approx(cached / 10)
    assert price.of(100_000, 0, written=100_000) == pytest.approx(written / 10)
    mixed = price.of(100_000, 0, cached=50_000, written=20_000)
    assert mixed == pytest.approx((30 * plain + 50 * cached + 20 * written) / 1000)


def test_long_calls_have_the_cached_price_of_their_tier() -> None:
    price = _found("anthropic", "claude-sonnet-4-5")
    assert price.of(300_000, 0, cached=300_000) == pytest.approx(0.6 * 0.3)


def test_a_flat_price_without_rates_for_caching_charges_all_input_alike() -> None:
    assert FlatPrice(2.0, 8.0).of(1_000_000, 0, cached=400_000, written=1000) == 2.0
    own = FlatPrice(2.0, 8.0, cached_input=0.2, cache_write=2.5)
    assert own.of(1_000_000, 500_000, cached=400_000, written=100_000) == pytest.approx(
        0.5 * 2.0 + 0.4 * 0.2 + 0.1 * 2.5 + 0.5 * 8.0
    )


def test_priced_usage_keeps_its_parts() -> None:
    used = Usage(1, 100, 20, None, False, 60, 10, 15)
    assert priced(used, None) == used
    with_price = priced(used, FlatPrice(1.0, 1.0))
    assert (with_price.cached_input_tokens, with_price.reasoning_tokens) == (60, 15)
    assert with_price.usd == pytest.approx(120e-6)
