"""Drivers that are scripts: their `__main__` is found by workers, which end with them."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.executors.traces import wait_until_ended, watch

PATH = os.pathsep.join(filter(None, sys.path))


@contextmanager
def program(*command, cwd, **options):
    """Run a program; it is killed when the block ends."""
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATH},
        **options,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(*command, cwd, text=None):
    """The lines that a program prints; it must succeed without an error message."""
    with program(*command, cwd=cwd, stdin=subprocess.PIPE) as process:
        out, err = process.communicate(text, timeout=100)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


SCRIPT = """
import sys
from dataclasses import dataclass
import abreast

@dataclass(frozen=True)
class Point:
    x: int

class Off(Exception):
    pass

def move(point):
    if point.x == 2:
        raise Off(point)
    return Point(point.x + 1)

if __name__ == "__main__":
    for outcome in abreast.map(move, [Point(1), Point(2), Point(3)], width=2, executor="process"):
        print(outcome.value if outcome.ok else repr(outcome.error), sys.argv[1:])
    print(outcome.ok and type(outcome.value) is Point)
"""
MOVED = [
    "Point(x=2) ['an argument']",
    "Off(Point(x=2)) ['an argument']",
    "Point(x=4) ['an argument']",
    "True",
]


@pytest.mark.parametrize(
    "command", [["moves.py"], ["-m", "moves"], ["-O", "./moves.py"]], ids=" ".join
)
def test_functions_and_classes_of_a_script_work(tmp_path, command):
    (tmp_path / "moves.py").write_text(SCRIPT)
    assert said_by(*command, "an argument", cwd=tmp_path) == MOVED


def test_a_script_that_starts_workers_when_imported_is_told_so(tmp_path):
    (tmp_path / "bare.py").write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    assert said_by("bare.py", cwd=tmp_path)[0].startswith(
        "RuntimeError('a worker process is importing this script, "
        "which starts workers when it is imported: "
        'put that under `if __name__ == "__main__":`'
    )


def test_the_scripts_own_import_error_is_told(tmp_path):
    (tmp_path / "broken.py").write_text(
        SCRIPT.replace("@dataclass", "if __name__ != '__main__': 1 / 0\n@dataclass")
    )
    assert (
        said_by("broken.py", cwd=tmp_path)[:3] == ["ZeroDivisionError('division by zero') []"] * 3
    )


def test_a_worker_imports_the_script_only_if_something_is_from_there(tmp_path):
    (tmp_path / "elsewhere.py").write_text(
        "import abreast\nprint('imported', __name__)\n"
        "if __name__ == '__main__':\n"
        "    outcomes = abreast.map(abs, [-1, -2], width=2, executor='process')\n"
        "    print([outcome.value for outcome in outcomes])\n"
    )
    assert said_by("elsewhere.py", cwd=tmp_path) == ["imported __main__", "[1, 2]"]


TYPED = """
import abreast
def double(x):
    return 2 * x
class Local:
    pass
try:
    list(abreast.map(double, [1], width=1, executor="process"))
except TypeError as error:
    print(error)
for outcome in abreast.map(id, [Local()], width=1, executor="process"):
    print(outcome.error)
"""


@pytest.mark.parametrize("command", [["-c", TYPED], ["-"]], ids=["-c", "stdin"])
def test_functions_that_were_typed_in_are_refused(tmp_path, command):
    function, value = said_by(*command, cwd=tmp_path, text=TYPED)
    assert function.startswith(
        "the process executor carries functions of a module or script; <function double at"
    )
    assert (
        value == "Local was defined interactively; workers can find it only in a module or script"
    )


def test_a_function_that_only_the_main_program_has_is_named(tmp_path):
    package = tmp_path / "prog"
    package.mkdir()
    (package / "__main__.py").write_text(SCRIPT)
    said = said_by("-m", "prog", cwd=tmp_path)
    assert "move isn't there when {'init_main_from_name': 'prog.__main__'} is imported" in said[0]


def test_starting_workers_does_not_choose_how_multiprocessing_starts_its_own(tmp_path):
    (tmp_path / "chosen.py").write_text(
        "import abreast, multiprocessing\n"
        "def method(_):\n"
        "    return multiprocessing.get_start_method(allow_none=True)\n"
        "if __name__ == '__main__':\n"
        "    for name in ('a', 'b'):\n"
        "        outcomes = abreast.map(method, [1], width=1, executor='process', name=name)\n"
        "        print([each.value for each in outcomes])\n"
        "        multiprocessing.set_start_method('spawn', force=name == 'b')\n"
    )
    assert said_by("chosen.py", cwd=tmp_path) == ["[None]", "['spawn']"]


HELD = """
import os, signal, subprocess, sys
import abreast

def hold(x):
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(["sleep", "1000"], stdout=nothing, stderr=nothing)
    os.write(1, f"{os.getpid()} {child.pid}\\n".encode())
    signal.pause()

def give(x):
    return os.getpid()

if __name__ == "__main__":
    if sys.argv[1] == "held":
        list(abreast.map(hold, range(3), width=3, executor="process"))
    else:
        outcomes = abreast.map(give, iter(int, 1), width=3, executor="process")
        print(*[next(outcomes).value for _ in range(30)], flush=True)
        if sys.argv[1] == "forked":
            fork = os.fork()  # it has all that its parent has, the ends of pipes to workers too
            if not fork:
                signal.pause()
            print(fork, flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_killed_takes_its_workers_and_their_children_with_it(tmp_path, by):
    (tmp_path / "held.py").write_text(HELD)
    with program("held.py", "held", cwd=tmp_path) as driver:
        pids = [int(pid) for _ in range(3) for pid in driver.stdout.readline().split()]
        with watch(*pids) as handles:
            driver.send_signal(by)
            assert wait_until_ended(handles) == set()
        driver.wait(timeout=100)
        assert len(set(pids)) == 6


def test_workers_of_a_map_that_was_abandoned_end_with_their_driver(tmp_path):
    (tmp_path / "held.py").write_text(HELD)
    with program("held.py", "given", cwd=tmp_path, stdin=subprocess.PIPE) as driver:
        pids = {int(pid) for pid in driver.stdout.readline().split()}
        with watch(*pids) as handles:
            driver.stdin.close()
            assert wait_until_ended(handles) == set()
        assert driver.wait(timeout=100) == 0


def test_workers_end_with_their_driver_even_if_a_fork_of_it_lives_on(tmp_path):
    (tmp_path / "held.py").write_text(HELD)
    with program("held.py", "forked", cwd=tmp_path, stdin=subprocess.PIPE) as driver:
        workers = {int(pid) for pid in driver.stdout.readline().split()}
        fork = int(driver.stdout.readline())
        try:
            with watch(*workers) as handles:
                driver.kill()
                assert wait_until_ended(handles) == set()
        finally:
            os.kill(fork, signal.SIGKILL)
