"""The laws over a store in PostgreSQL: the same answers as a plain loop, and after crashes."""

import asyncio
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from abreast.store.postgres.store import PostgresStore
from tests.laws import test_usage
from tests.laws.plain import worlds
from tests.laws.test_serial_equivalence import agree
from tests.properties import tried

# A fixture may be shared by all examples: each has a run of its own.
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(params=["postgres_url", "bouncer_url"])
def store(request):
    with closing(PostgresStore(request.getfixturevalue(request.param))) as store:
        yield store


@tried(10, suppress_health_check=SHARED)
@given(worlds())
def test_a_map_in_postgresql_returns_what_the_plain_loop_returns(store, world):
    asyncio.run(agree(world, store=store, resume="never"))


@tried(6, suppress_health_check=SHARED)
@given(test_usage.worlds(), st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_after_crashes_and_resumes_it_returns_and_uses_what_an_undisturbed_run_does(
    store, world, commits
):
    calm = asyncio.run(test_usage.outcomes_of(world, store=store, seed=3))
    assert test_usage.used(calm) == world.serial()
    assert asyncio.run(test_usage.after_crashes(world, commits, store)) == calm
