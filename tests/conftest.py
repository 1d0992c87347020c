"""Hypothesis profiles.

`ci` unless asked otherwise, `quick` for `make test`, also where it is measured, `soak` for
`make soak`; fast processes.
"""

import atexit
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import caches, postgres, shared
from tests.longest import longest_first
from tests.measuring import Measuring
from tests.warm import SharedWarm

# No deadline: a shared machine is slow at moments, and no test of ours asserts wall-clock time.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("ci"), derandomize=False, max_examples=5_000)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
settings.load_profile("ci")

# Where it is set, output that a user's pipe would never get looks as if it came at once.
os.environ.pop("PYTHONUNBUFFERED", None)

# What lanes learn of storms is of no use to anybody: the next storm is at another port.
os.environ["ABREAST_STATE"] = tempfile.mkdtemp(prefix="abreast-tests-")
atexit.register(shutil.rmtree, os.environ["ABREAST_STATE"], ignore_errors=True)

# A shell's background job ignores Ctrl-C, and nohup a hang-up, and so would every process that a
# test starts and ends.
for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, heard)


_LONG = Path(__file__).with_name("long.txt")
_SLOW = Path(__file__).with_name("slow.txt")
# seconds that one of those may take, unless it says otherwise: they wait for models beside each
# other
_SLOW_SECONDS = 300


def pytest_addoption(parser):
    parser.addoption(
        "--short", action="store_true", help="leave out the tests that tests/slow.txt lists"
    )
    parser.addoption(
        "--quick", action="store_true", help="leave out those of tests/long.txt as well"
    )
    parser.addoption("--slow", action="store_true", help="run just those of tests/slow.txt")
    parser.addoption(
        "--ray", action="store_true", help="pass over files in which nothing is marked `ray`"
    )


def pytest_configure(config):
    """Collect tests without collecting garbage, and do not measure children."""
    gc.disable()
    workers = bool(config.getoption("numprocesses", None))  # which are children, too
    config.stash[Measuring.key] = Measuring(keep_variables=workers)
    if shared.begin():
        config.add_cleanup(shared.end)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Fill caches before there are workers."""
    roots = (config.rootpath / folder for folder in ("src", "tests"))
    caches.fill([file for root in roots for file in root.rglob("*.py")], config)


def pytest_collection_finish(session):
    """Take what was imported and collected out of every later collection of garbage.

    With Python's thresholds these collections take 5% of the time; the command has these, too.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Measure what is to be measured."""
    measuring = item.config.stash[Measuring.key].begin(item.nodeid)
    os.environ.update(measuring)
    try:
        return (yield)
    finally:
        for name in measuring:
            del os.environ[name]


@cache
def _listed(listing):
    """The tests that a file lists: their names, by file."""
    names = {}
    for line in listing.read_text("utf-8").splitlines():
        file, separator, name = line.partition("::")
        if separator:
            names.setdefault(listing.parents[1] / file, set()).add(name)
    return names


def _is_slow(file, name):
    return name in _listed(_SLOW).get(file, ())


def _is_long(file, name):
    return name in _listed(_LONG).get(file, ())


@cache
def _marks_ray(file):
    return "mark.ray" in file.read_text("utf-8")


def pytest_ignore_collect(collection_path, config):
    """With --slow, pass over files without a slow test: each worker would import all of them.

    With --ray, over those that mark nothing so: to collect the rest takes 10 s of CPU.
    """
    if collection_path.is_dir() or collection_path.suffix != ".py":
        return None
    if config.getoption("--slow") and collection_path not in _listed(_SLOW):
        return True
    return True if config.getoption("--ray") and not _marks_ray(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name):
    """With --short, leave out what takes longest, which has more time; with --quick, more.

    With --slow, make tests of just that: each worker would make all the others. CI does all but
    --quick.
    """
    short, quick, slow = (
        collector.config.getoption(option) for option in ("--short", "--quick", "--slow")
    )
    if not (short or quick or slow):
        return None
    if quick and _is_long(collector.path, name):
        return []
    return [] if _is_slow(collector.path, name) is not slow else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items, config):
    """Give what takes longest more time, and begin with it; leave Ray to a process of its own."""
    if config.getoption("--slow"):
        items[:] = longest_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    for item in items:
        if item.get_closest_marker("ray") and "PYTEST_XDIST_WORKER" in os.environ:
            if not _marks_ray(item.path):
                raise pytest.UsageError(f"--ray would not find {item.nodeid}: write `mark.ray`")
            item.add_marker(pytest.mark.skip("a cluster is started once: `make test-ray`"))
        if _is_slow(item.path, item.name.partition("[")[0]):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


@pytest.fixture(scope="session")
def warm(pytestconfig):
    """A process that has imported abreast, to fork from.

    Measured, as its children are: that takes them hardly any time.
    """
    from tests.cli.forks import MODELS  # the same as there, so that there is one of them

    path = os.pathsep.join(filter(None, sys.path))
    measuring = pytestconfig.stash[Measuring.key].variables
    with closing(SharedWarm({**os.environ, **measuring, "PYTHONPATH": path}, MODELS)) as process:
        yield process


@pytest.fixture(scope="session")
def ray_cluster():
    """Two nodes of Ray on this machine, for all tests that are marked `ray`."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: `make test-ray` does that")
    from benchmarks.ray_nodes import open_nodes

    with open_nodes() as cluster:
        yield cluster


@pytest.fixture
def postgres_url():
    """The address of an empty store in PostgreSQL."""
    return postgres.in_new_schema(postgres.addresses()[0])


@pytest.fixture
def bouncer_url():
    """The address of an empty store in PostgreSQL behind a PgBouncer in transaction mode."""
    return postgres.in_new_schema(postgres.addresses()[1])


@pytest.fixture
def unmeasured(monkeypatch):
    """For tests whose children are killed, or reach nothing that others don't.

    Measuring takes 0.12 s to start.
    """
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)
