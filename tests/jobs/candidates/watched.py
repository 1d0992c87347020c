"""Small projects with a function and its tests, and a traced run of a candidate for it."""

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

from abreast.jobs.candidates.behaviour import traced_run
from abreast.jobs.candidates.behaviour.traced_run import Tests, judge_behaviour, watch
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.confinement import ResourceLimits, run_confined
from abreast.worktrees.pool import open_worktrees
from tests.jobs.candidates.projects import quick
from tests.worktrees.repositories import ENVIRONMENT, make_repository

LIMITS = ResourceLimits(seconds=60, memory=1 << 30, processes=40)


MEASURED = """
import sys
place = sys.argv.pop()
from abreast.jobs.candidates.child.main import main
main(place)
"""


class Project:
    """A repository with one slot; `file` and `qualname` are the target."""

    def __init__(self, slot, file, qualname, tests):
        self.slot = slot
        self.target = Target(file, qualname)
        self.tests = Tests(tests, python=sys.executable)
        self.original = None

    async def watch(self, candidate=None, *, limits=LIMITS, **options):
        """Trace the original, or a candidate given as the text of the target's file."""
        await self.slot.reset()
        if candidate is not None:
            self.slot.write_candidate(self.target.file, dedent(candidate))
        return await watch(self.slot, self.target, self.tests, limits=limits, **options)

    async def judge(self, candidate, *, rules=STRICT, limits=LIMITS):
        """The verdict on a candidate."""
        self.original = self.original or await self.watch()
        assert self.original.failure is None, self.original.reason
        return judge_behaviour(self.original, await self.watch(candidate, limits=limits), rules)


@asynccontextmanager
async def open_project(place: Path, files, target="words.py::count", tests=("test_words.py",)):
    """A project of these files, in a repository at `place`."""
    make_repository(place, quick({name: dedent(text) for name, text in files.items()}))
    file, _, qualname = target.partition("::")
    async with open_worktrees(place, 1) as trees:
        yield Project(trees.slots[0], file, qualname, tests)


def use_cache(monkeypatch, place):
    """Put the worktrees of this test in a directory of its own, and use git without user settings.

    If coverage is measured, it is measured in the child too, which then runs under its real name.
    """
    if config := os.environ.get("COVERAGE_PROCESS_CONFIG"):

        def run(*args, extra_env, writable, **options):
            measured = {**extra_env, "COVERAGE_PROCESS_CONFIG": config}
            return run_confined(
                *args, extra_env=measured, writable=[*writable, Path.cwd()], **options
            )

        monkeypatch.setattr(traced_run, "PROGRAM", MEASURED)
        monkeypatch.setattr(traced_run, "run_confined", run)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(place / "cache"))
