"""Workers, nodes and drivers are killed in turn: a short version of `make cluster`."""

import pytest

from benchmarks.cluster import KILLS, play

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("unmeasured"), pytest.mark.timeout(300)]


def test_kills_lose_nothing_and_change_no_result(ray_cluster):
    found = play(ray_cluster, 7, rounds=1, items=16, width=3, jobs="map")
    assert [report.kill for report in found] == list(KILLS)
    for report in found:
        assert report.is_good(3), report
