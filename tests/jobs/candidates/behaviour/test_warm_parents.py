"""Forked runs: the same as new processes, confined alike, and gone when they should be."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from abreast.jobs.candidates.behaviour.traced_run import Tests, judge_behaviour, watch
from abreast.jobs.candidates.behaviour.warm_parents import open_warm_parents
from abreast.jobs.candidates.rules import STRICT
from abreast.worktrees.confinement import ResourceLimits
from tests.jobs.candidates.watched import LIMITS, open_project
from tests.turns import until
from tests.worktrees.repositories import ENVIRONMENT

# What a process can find out about itself. Names of directories differ from run to run.
FACTS = """
import gc, os, random, resource, signal, sys, threading, warnings

def count():
    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "environment": {name: os.path.basename(value) for name, value in os.environ.items()},
        "files": sorted(os.listdir("/proc/self/fd"))[:3] + [len(os.listdir("/proc/self/fd"))],
        "signals": [str(signal.getsignal(one)) for one in sorted(signal.valid_signals())],
        "limits": [resource.getrlimit(one) for one in limits],
        "hash": hash("words"),
        "path": [os.path.basename(one) for one in sys.path],
        "argv": sys.argv,
        "cwd": os.path.basename(os.getcwd()),
        "threads": threading.active_count(),
        "main": threading.current_thread() is threading.main_thread(),
        "stdin": os.read(0, 1),
        "umask": os.umask(0o022),
        "pid": os.getpid() == os.getpgid(0) == os.getsid(0),
        "filters": [str(one) for one in warnings.filters],
        "gc": [gc.isenabled(), gc.get_threshold()],
        "flags": str(sys.flags),
        "bytecode": [sys.dont_write_bytecode, sys.pycache_prefix],
        "streams": [(one.encoding, one.isatty()) for one in (sys.__stdout__, sys.__stderr__)],
    }
"""
TEST = "from words import count\n\ndef test_count():\n    count()\n"
HANGS = "import time\n\ndef count():\n    open('begun', 'w').close()\n    time.sleep(1000)\n"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))


@asynccontextmanager
async def opened(place, source=FACTS, test=TEST, python=sys.executable, **more):
    """A project, and the warmed parents for its tests."""
    files = {"words.py": source, "test_words.py": test, **more}
    async with open_project(place / "project", files) as project:
        project.tests = Tests(("test_words.py",), python=python)
        async with open_warm_parents(project.slot, project.tests) as parents:
            yield project, parents


async def test_a_forked_run_finds_what_a_new_process_finds(tmp_path):
    async with opened(tmp_path) as (project, parents):
        new = await project.watch()
        forked = [await project.watch(parent=await parents.get(0), modules=True)]
        await parents.import_modules(forked[0].modules)
        forked += [await project.watch(parent=await parents.get(0, number)) for number in (0, 1)]
        assert parents.unfit == ""
    # Only for a summary after the last test, its plugin would import all of Hypothesis.
    assert not [one for one in forked[0].modules if one.startswith("hypothesis")]
    assert new.passed == len(new.invocations) == 1
    for one in forked:
        assert judge_behaviour(new, one, STRICT).findings == ()
        assert (one.outcomes, one.confinement, one.unconfined, one.signs, one.exit) == (
            *(new.outcomes, new.confinement, new.unconfined, new.signs, new.exit),
        )


async def test_the_others_that_every_run_needs_get_warm_while_the_first_is_used(tmp_path):
    async with opened(tmp_path) as (project, parents):
        first = await parents.get(0)
        count = len([*project.slot.scratch.glob("*warm-*")])
        again = [await parents.get(0), await parents.get(0, 1), await parents.get(1, tests=False)]
        assert count == len([*project.slot.scratch.glob("*warm-*")]) == 3
        assert again[0] is first
        assert len({id(one) for one in again}) == 3
        assert [one.hash_seed for one in again] == [0, 0, 1]
        assert await parents.get(2) not in again


def python_in(tmp_path, settings):
    """A Python that starts with these variables."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n{settings} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


STARTS = "import ctypes, subprocess\nctypes.CDLL(None)\nsubprocess.run(['true'])\n"


async def test_what_an_installed_module_does_when_it_is_imported_is_not_the_functions(tmp_path):
    """numpy's own module for tests starts a program; a warmed parent has done so already."""
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "starts.py").write_text(STARTS)
    python = python_in(tmp_path, f"PYTHONPATH={tmp_path / 'installed'}")
    source, test = "def count():\n    return 1\n", f"import starts\n{TEST}"
    async with opened(tmp_path, source, test, python) as (project, parents):
        new = await project.watch(parent=await parents.get(0))
        await parents.import_modules(["starts"])
        again = await project.watch(parent=await parents.get(0, 1))
        own = await project.watch(STARTS + source)
    assert (new.passed, again.passed) == (1, 1)
    assert new.signs.did == again.signs.did == ()
    assert {"starts a process", "loads a library of C"} <= {*own.signs.did}


CALL = {"name": "a", "self": None, "args": ["tuple", "", []], "kwargs": ["dict", "", []]}


async def test_a_parent_for_runs_without_tests_imports_no_pytest(tmp_path):
    # A source that mentions pytest has it imported, and guarded.
    source = "import sys\n\ndef count():\n    return 'py' + 'test' in sys.modules\n"
    inputs = json.dumps({"seconds": 9, "calls": [CALL]}).encode()
    found = []
    async with opened(tmp_path, source) as (project, parents):
        tested = await parents.get(1), await parents.get(1, tests=False)
        await parents.import_modules(["pytest_asyncio", "fractions"])
        project.tests = replace(project.tests, names=())
        for parent in tested:
            ran = await project.watch(parent=parent, inputs=inputs)
            values = {node.value for node in ran.invocations[0].after.nodes}
            found.append(values & {"True", "False"})
    assert found == [{"True"}, {"False"}]


async def test_what_one_parent_compiles_the_next_one_need_not(tmp_path):
    python = python_in(tmp_path, f"PYTHONPYCACHEPREFIX={tmp_path}/none")
    source = "import sys\n\ndef count():\n    return sys.dont_write_bytecode, sys.pycache_prefix\n"
    async with opened(tmp_path, source, python=python) as (project, parents):
        assert await parents.get(0) is not None
        await parents.import_modules(["this"])
        shared = project.slot.scratch / "private-bytecode"
        compiled = {one: one.stat().st_ino for one in shared.rglob("pytest/__init__*.pyc")}
        assert compiled
        assert [*shared.rglob("this.*.pyc")]
        assert await parents.get(0, 1) is not None
        assert {one: one.stat().st_ino for one in shared.rglob("pytest/__init__*.pyc")} == compiled
        new, forked = await project.watch(), await project.watch(parent=await parents.get(0))
        assert not (tmp_path / "none").exists()
    assert new.passed == forked.passed == 1
    assert judge_behaviour(new, forked, STRICT).findings == ()


async def test_a_candidate_runs_from_its_slot_and_is_judged(tmp_path):
    source = "def count():\n    return 1\n"
    async with opened(tmp_path, source) as (project, parents):
        parent = await parents.get(0)
        original = await project.watch(parent=parent)
        for answer, verdict in ((2, "wrong"), (1, "same")):
            candidate = f"def count():\n    return {answer} if True else None\n"
            found = await project.watch(candidate, parent=parent)
            assert judge_behaviour(original, found, STRICT).verdict == verdict


async def test_two_runs_have_different_addresses(tmp_path):
    source = "def count():\n    return id(object())\n"
    async with opened(tmp_path, source) as (project, parents):
        parent = await parents.get(0)
        first, *others = [await project.watch(parent=parent) for _ in range(4)]
    assert any(judge_behaviour(first, one, STRICT).verdict == "wrong" for one in others)


@pytest.mark.parametrize(
    ("body", "limits", "failure"),
    [
        ("while True: pass", {"cpu": 1}, "timeout"),
        ("import time; time.sleep(1000)", {"seconds": 1}, "timeout"),
        ("import os; os._exit(0)", {}, "refused"),
        ("import os; os.kill(os.getpid(), 9)", {}, "refused"),
        ("print('x' * 3_000_000)", {}, None),
    ],
)
async def test_limits_hold_and_ends_are_told(tmp_path, body, limits, failure):
    async with opened(tmp_path, f"def count():\n    {body}\n") as (project, parents):
        bounds = ResourceLimits(**{"seconds": 60, "cpu": 20, **limits})
        found = await project.watch(parent=await parents.get(0), limits=bounds)
        assert found.failure == failure
        assert parents.unfit == ""


async def test_a_plugin_of_the_project_itself_makes_new_processes(tmp_path):
    more = {"pytest.ini": "[pytest]\naddopts = -p helping\n", "helping.py": "import words\n"}
    async with opened(tmp_path, **more) as (project, parents):
        assert await parents.get(0) is None
        assert "words" in parents.unfit or "helping" in parents.unfit
        assert (await project.watch(parent=None)).failure is None


THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
"""


@pytest.mark.parametrize(
    ("text", "reason"), [(THREAD, "threads"), ("held = open('/dev/zero')", "files")]
)
async def test_what_starts_threads_or_keeps_files_open_makes_new_processes(tmp_path, text, reason):
    library = tmp_path / "library"
    library.mkdir()
    (library / "odd.py").write_text(text)
    python = python_in(tmp_path, f"PYTHONPATH={library}")
    async with opened(tmp_path, python=python) as (_, parents):
        assert await parents.get(0) is not None
        await parents.import_modules(["odd"])
        assert reason in parents.unfit
        assert await parents.get(0) is None


def processes_of(directory):
    """The processes that have an argument in this directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(directory) in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


async def test_a_run_that_is_cancelled_is_gone_and_its_parent_goes_on(tmp_path):
    async with opened(tmp_path, HANGS) as (project, parents):
        parent = await parents.get(0)
        await parents.import_modules([])  # the others are warm too, and start nothing more
        before = {*processes_of(tmp_path)}
        task = asyncio.ensure_future(project.watch(parent=parent))
        await until((project.slot.path / "begun").exists)
        assert {*processes_of(tmp_path)} > before
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: {*processes_of(tmp_path)} == before)
        found = await project.watch("def count():\n    return 1\n", parent=parent)
        assert found.passed == 1
    await until(lambda: not processes_of(tmp_path))


async def test_without_its_parent_a_run_is_a_new_process(tmp_path):
    async with opened(tmp_path) as (project, parents):
        parent = await parents.get(0)
        for process in processes_of(tmp_path):
            os.kill(process, signal.SIGKILL)
        found = await watch(
            project.slot, project.target, project.tests, limits=LIMITS, parent=parent
        )
        assert found.passed == 1


DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.jobs.candidates.behaviour.test_warm_parents import HANGS, opened

async def main(place):
    async with opened(place, HANGS) as (project, parents):
        await project.watch(parent=await parents.get(0))

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_with_the_driver_all_of_it_ends(tmp_path):
    environment = {**os.environ, "ABREAST_CACHE": str(tmp_path / "cache")}
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, str(tmp_path), env=environment
    )
    await until(lambda: any((tmp_path / "cache").glob("**/begun")))
    assert len(processes_of(tmp_path)) > 4  # the driver, three parents and a run
    driver.kill()
    await driver.wait()
    await until(lambda: not processes_of(tmp_path))
