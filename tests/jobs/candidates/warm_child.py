"""The confined child without confinement, forked from a process that has imported pytest.

Most of a traced run is the start of an interpreter, of pytest and of the sandbox. Tests of what is
traced and judged can do without them; tests of confinement, of limits and of imports can't.
"""

import asyncio
import importlib
import os
import sys
from pathlib import Path

from abreast.jobs.candidates.child import guard
from abreast.worktrees.confinement import ConfinedResult, Confinement
from tests import warm

PROGRAM = "from tests.jobs.candidates.warm_child import serve; serve({line}, {session})"
# Imported by pytest when it runs.
LATER = ("_pytest.pytester", "pdb", "doctest", "xml.etree.ElementTree")
LAYERS = ("environment",)
PATIENCE = 280  # seconds until a run is taken to hang: no limit is tested here


def serve(number, session):
    """Fork for every run, after the imports of the child and of pytest."""
    warm.serve(number, import_all=import_all, session=session)


def import_all():
    importlib.import_module("abreast.jobs.candidates.child.main")
    guard.PatchDetector()  # imports all modules that are guarded
    for name in LATER:
        importlib.import_module(name)


class WarmChild:
    """Takes the place of `run_confined` for traced runs."""

    def __init__(self):
        path = os.pathsep.join(filter(None, sys.path))
        settings = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        self._warm = warm.SharedWarm(
            {**os.environ, "PYTHONPATH": path, **settings}, program=PROGRAM
        )

    def close(self):
        self._warm.close()

    async def run(self, argv, slot, *, limits, extra_env, writable):
        """Run the child whose directory is the last argument."""
        place = Path(argv[-1])
        home, temporary = (place.with_name(f"{place.name}-{name}") for name in ("home", "tmp"))
        home.mkdir()
        temporary.mkdir()
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "TMPDIR": str(temporary),
            **extra_env,
        }
        code, out, err = await asyncio.to_thread(
            self._warm.run,
            str(Path(__file__).with_name("warm_program.py")),
            [str(place)],
            cwd=slot.root,
            environment=environment,
            patience=max(limits.seconds, PATIENCE),
        )
        return ConfinedResult(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            why="exit" if code >= 0 else "killed",
            stdout=out,
            stderr=err,
            stdout_bytes=len(out),
            stderr_bytes=len(err),
            wall_seconds=0.1,
            cpu_seconds=0.1,
            peak_bytes=None,
            confinement=Confinement(LAYERS),
        )
