"""Workers, nodes, drivers and the database are killed in turn: one round of `make cluster`."""

from random import Random

import pytest

from benchmarks.cluster.jobs import PREPARE
from benchmarks.cluster.rounds import KILLS, Arena, Report, play
from scripts.postgres import find_server, open_server

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("unmeasured"), pytest.mark.timeout(900)]


def test_kills_lose_nothing_and_change_no_result(ray_cluster):
    if find_server() is None:
        pytest.skip("no PostgreSQL here: python scripts/postgres.py --install, as root")
    with open_server(fsync="off") as database:
        found = play(Arena(ray_cluster, database, 12, 3, Random(7)), 1)
    assert [report.kill for report in found] == list(KILLS)
    assert [report.job for report in found] == list(PREPARE)
    for report in found:
        assert report.is_good(3), report


@pytest.mark.parametrize(
    "broken",
    [
        {"lost": 1},
        {"recorded_repeated": 1},
        {"repeated": 4},
        {"equal": False},
        {"left": 1},
        {"late": True},
    ],
)
def test_a_promise_that_is_broken_is_seen(broken):
    kept = Report("map", "node", 0, 0, 3, equal=True, left=0, seconds=1.0)
    assert kept.is_good(3)
    assert not kept._replace(**broken).is_good(3)
