"""SIGKILL at any time, then `abreast resume`.

Nothing is lost, no recorded item runs again, and no process is left behind.
"""

import os
import random
import select
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.forks import ForkingShell
from tests.cli.shell import PATIENCE, children_of, end

WIDTH = 4


def counts(abreast):
    """How often each item has run."""
    folder = abreast.folder / "counts"
    return {path.name: path.read_bytes().count(b"x") for path in folder.iterdir()}


def set_up(abreast, items):
    (abreast.folder / "counts").mkdir()
    abreast.file("items", "".join(f"{number:04}\n" for number in range(items)))
    return [f"got {number:04}" for number in range(items)]


COUNTING = ("--", "sh", "-c", 'echo x >> "counts/$1"; echo "got $1"', "sh", "{}")


def kill(process, chance, *, lines, group):
    """Kill the driver, or its process group, when so much is printed or a little later."""

    def strike():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if group else process.kill()

    for _ in range(lines):
        if not process.stdout.readline():
            break
    if chance.random() < 0.5:
        strike()
    else:
        timer = threading.Timer(chance.uniform(0.0, 0.05), strike)
        timer.start()
        process.stdout.read()
        timer.join()
    process.communicate(timeout=PATIENCE)


def storm(abreast, *, items, kills, seed):
    """Kill it several times, then let it end.

    The output equals that of an undisturbed run, and no recorded item ran again.
    """
    chance = random.Random(seed)
    expected = set_up(abreast, items)
    killed, recorded, before = 0, set(), {}
    arguments = ("map", "--input", "items", "-P", str(WIDTH), *COUNTING)
    while killed < kills and len(recorded) < items:
        with abreast.start(
            *arguments, measured=False
        ) as process:  # a killed one leaves no measures
            kill(
                process,
                chance,
                lines=chance.randrange(len(recorded) + 20),
                group=chance.random() < 0.5,
            )
        killed += process.returncode == -signal.SIGKILL
        after = counts(abreast)
        assert all(after[key] == before[key] for key in recorded), "a recorded item ran again"
        if abreast.has_run():
            arguments, recorded, before = ("resume", "map-1"), abreast.recorded(), counts(abreast)
    said = abreast("resume", "map-1", "--retry-failed")
    assert (said.code, said.lines) == (0, expected)
    ran = counts(abreast)
    assert set(ran) == {f"{number:04}" for number in range(items)}
    assert all(ran[key] == before[key] for key in recorded)
    assert sum(ran.values()) <= items + killed * WIDTH
    assert not children_of("map-1", abreast.folder)
    assert [row["stdout"].strip() for row in abreast("export", "map-1").rows] == expected
    return killed


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again_it_still_gives_the_same(abreast, seed):
    assert storm(abreast, items=200, kills=5, seed=seed) >= 3


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_killed_a_hundred_times_it_still_gives_the_same(tmp_path, warm):
    killed = seed = 0
    while killed < 100:
        folder = tmp_path / str(seed)
        folder.mkdir()
        killed += storm(ForkingShell(folder, warm), items=500, kills=20, seed=seed)
        seed += 1


@pytest.mark.parametrize("words", [["sh"], ["env", "-i", f"PATH={os.environ['PATH']}", "sh"]])
def test_a_child_that_outlives_its_driver_is_ended_at_resume(abreast, words):
    # Known by the run's id in its environment, or, without one, by its recorded start alone.
    # The driver's session is killed, and its supervisor too: only the journal has a record of the
    # child.
    os.mkfifo(abreast.folder / "here")
    here = os.open(abreast.folder / "here", os.O_RDWR)
    script = (
        '[ -e go ] && { echo got; exit; }; trap "" TERM HUP; exec 3> here; echo $$ >&3; '
        "while :; do sleep 600; done"
    )
    abreast.file("items", "1\n")
    with abreast.start("map", "--input", "items", "--", *words, "-c", script) as process:
        assert select.select([here], [], [], PATIENCE)[0]
        child = int(os.read(here, 100))
        handle = os.pidfd_open(child)
        abreast.until(process, abreast.noted)
        supervisors = [pid for pid in children_of_process(process.pid) if pid != child]
        for pid in (process.pid, *supervisors):
            os.kill(pid, signal.SIGSTOP)
        for pid in (*supervisors, process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert not select.select([handle], [], [], 0)[0], (
        "the child was to outlive its driver, for this test"
    )
    abreast.file("go", "")
    said = abreast("resume")
    assert (said.code, said.out) == (0, "got\n")
    assert "ended 1 process group(s) that an earlier driver of map-1 had left behind" in said.err
    assert select.select([handle], [], [], PATIENCE)[0]
    os.close(handle)
    os.close(here)


def children_of_process(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_second_driver_is_refused_while_the_first_is_alive(abreast):
    os.mkfifo(abreast.folder / "go")
    abreast.file("items", "1\n")
    with abreast.start(
        "map", "--input", "items", "--", "sh", "-c", "echo > there; read line < go; echo got"
    ) as process:
        with (abreast.folder / "go").open("w") as go:
            said = abreast("resume", "map-1")
            assert said.code == 1
            assert f"run map-1 is being driven by process {process.pid} on " in said.err
            assert abreast("rm", "map-1").code == 1
            assert (
                abreast("resume").err == "abreast: nothing to resume: no run is waiting to go on\n"
            )
            go.write("on\n")
        assert end(process).out == "got\n"


def test_input_of_which_nothing_was_read_is_not_taken_for_none(abreast):
    with abreast.start("map", "-v", "--", "echo", "got", stdin=subprocess.PIPE) as process:
        assert b"run map-1 in" in process.stderr.readline()
        process.kill()
    said = abreast("resume", "map-1")
    assert said.code == 2
    assert "died before it had read any of its input; hand it the items again on stdin" in said.err
    assert abreast("resume", "map-1", given="1\n").lines == ["got 1"]


def test_input_that_was_cut_off_is_asked_for_again(abreast):
    # The driver dies while its pipe is still open, so it is unknown whether there was more input.
    with abreast.start("map", "--", "echo", "got", stdin=subprocess.PIPE) as process:
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got 1\n"
        assert process.stdout.readline() == b"got 2\n"
        process.kill()
    said = abreast("resume", "map-1")
    assert said.code == 2
    assert said.lines == ["got 1", "got 2"]
    assert "died while it read its items (it had 2); hand them in again" in said.err
    other = abreast("resume", "map-1", given="1\nother\n3\n")
    assert other.code == 2
    assert "item 1 is not the one read before" in other.err
    again = abreast("resume", "map-1", given="1\n2\n3\n")
    assert (again.code, again.lines) == (0, ["got 1", "got 2", "got 3"])
