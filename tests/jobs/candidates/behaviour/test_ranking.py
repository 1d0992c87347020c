"""Functions are ranked by what a rewrite of each could save."""

import sys

import pytest

from abreast.jobs.candidates.behaviour.ranking import rank_functions
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
from tests.jobs.candidates.watched import LIMITS, open_project, use_cache

FILES = {
    "pkg/__init__.py": "",
    "pkg/work.py": """
        import functools


        def outer(count):
            return [slow(count) for _ in range(3)]


        @functools.lru_cache
        @functools.wraps(outer)
        def slow(count):
            found = 0
            for at in range(count):
                found += at
            return found


        class Bag:
            def sorted(self, count):
                return sorted(range(count), key=lambda one: -one)

            async def later(self):
                return 1


        def never():
            pass
    """,
    "test_work.py": """
        import asyncio
        from pkg.work import Bag, outer

        def test_all():
            outer(200_000)
            Bag().sorted(1_000)
            asyncio.run(Bag().later())
    """,
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    use_cache(monkeypatch, tmp_path)


async def test_own_time_and_that_of_libraries_counts_and_that_of_other_functions_does_not(tmp_path):
    async with open_project(tmp_path / "p", FILES, "pkg/work.py::slow") as project:
        tests = Tests(("test_work.py",), sys.executable)
        found = await rank_functions(project.slot, tests, ["pkg/work.py"], LIMITS)
        names = [one.qualname for one in found]
        assert names[0] == "slow"
        assert set(names) == {"slow", "outer", "Bag.sorted", "Bag.later"}
        assert {one.qualname: one.calls for one in found}["slow"] == 1
        assert found[0].share > 0.5
        assert sum(one.share for one in found) == pytest.approx(1)
        assert str(found[0].target) == "pkg/work.py::slow"
        script = ({"kind": "script", "path": "test_work.py"},)
        nothing_called = await rank_functions(
            project.slot, Tests((), sys.executable, script), ["pkg/work.py"], LIMITS
        )
        assert nothing_called == []


async def test_tests_that_end_the_process_can_not_be_profiled(tmp_path):
    files = {"work.py": "", "test_work.py": "import os\nos._exit(3)\n"}
    async with open_project(tmp_path / "p", files, "work.py::f") as project:
        with pytest.raises(BaselineFailed, match="could not be profiled"):
            await rank_functions(
                project.slot, Tests(("test_work.py",), sys.executable), ["work.py"], LIMITS
            )
