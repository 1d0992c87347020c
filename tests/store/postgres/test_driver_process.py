"""A process of this machine that has ended is known to have; of others nothing is known."""

import subprocess
import sys
from pathlib import Path

from abreast.store.postgres import driver_process
from abreast.store.postgres.driver_process import has_ended, this_process

SAY = (
    "from abreast.store.postgres.driver_process import this_process; "
    "print(this_process(), flush=True); input()"
)


def test_a_process_that_was_killed_has_ended_and_one_that_runs_has_not():
    child = subprocess.Popen(
        [sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        process = child.stdout.readline().strip()
        assert not has_ended(process)
        child.kill()
        child.wait()
        assert has_ended(process)


def test_a_later_process_with_the_same_number_is_another_one():
    place, _, started = this_process().rpartition(" ")
    assert not has_ended(this_process())
    assert has_ended(f"{place} {int(started) + 1}")


def test_of_other_machines_and_unknown_processes_nothing_is_known():
    place, pid, started = this_process().rsplit(" ", 2)
    for unknown in (None, "", "x", f"other {pid} {started}", f"{place} x {started}"):
        assert not has_ended(unknown)


def test_without_a_proc_nothing_is_known(monkeypatch):
    known = this_process()
    monkeypatch.setattr(driver_process, "_PROC", Path("/nowhere"))
    assert this_process() is None
    assert not has_ended(known)
