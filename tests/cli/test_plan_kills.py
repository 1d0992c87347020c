"""SIGKILL while subplans run, then `abreast resume`: nothing is done twice, no work is lost."""

import os
import random
import select
import signal
import threading
from contextlib import suppress

import pytest

from tests.cli.forks import ForkingShell
from tests.cli.shell import PATIENCE
from tests.jobs.plan.repositories import git, repository

PARTS = 4
WIDTH = 3
# Each subplan reports its start, works, and reports that it is about to end: a kill comes at any of
# these points, or between them.
WORK = """
echo "$ABREAST_SUBPLAN $$" >> "$LOG"
printf '%s\\n' "$ABREAST_SUBPLAN $$" > "$ABREAST_SCOPE"m0.txt
echo began > "$HERE"
printf 'done\\n' > "$ABREAST_SCOPE"m1.txt
"""


@pytest.fixture
def begin(tmp_path, warm):
    """A project of several parts, with its own cache of worktrees, and a pipe for subplans."""

    def begin(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        project = ForkingShell(folder, warm)
        (folder / ".git").rmdir()
        parts = {
            f"part{part}/m{one}.txt": f"x = {one}\n" for part in range(PARTS) for one in range(6)
        }
        repository(folder, parts)
        os.mkfifo(tmp_path / f"here{number}")
        project.cache = tmp_path / f"cache{number}"
        project.here = os.open(tmp_path / f"here{number}", os.O_RDWR | os.O_NONBLOCK)
        project.log = tmp_path / f"log{number}"
        project.log.touch()
        project.environment |= {
            "ABREAST_CACHE": str(project.cache),
            "LOG": str(project.log),
            "HERE": str(tmp_path / f"here{number}"),
        }
        return project

    return begin


def started(project):
    """The subplans that were started, once for each start."""
    return [line.split()[0] for line in project.log.read_text().splitlines()]


def worktrees(project):
    """The existing worktrees of all drivers; git lists none of them."""
    assert len(git(project.folder, "worktree", "list").splitlines()) == 1
    return sorted(project.cache.glob("worktrees/*/*/abreast-*-*[0-9]"))


def in_worktrees(project):
    """What subplans had written into worktrees that are still there."""
    written = [
        file.read_text() for place in worktrees(project) for file in place.glob("part*/m0.txt")
    ]
    return {text for text in written if text.startswith("part")}


def held(project):
    """The results held by references: the first file of each part that a subplan has written."""
    home = project.folder / ".abreast/plan.git"
    if not (home / "HEAD").exists():
        return set()
    names = (
        git(project.folder, "--git-dir", home, "for-each-ref", "--format=%(refname)")
        .decode()
        .split()
    )
    leaves = [(name, name.split("/")[3].split("-")[0]) for name in names]
    texts = [
        git(project.folder, "--git-dir", home, "show", f"{name}:{leaf}/m0.txt").decode()
        for name, leaf in leaves
    ]
    return {text for text in texts if text.startswith("part")}


def strike(project, process, chance):
    """Kill the driver, or its group, when so many subplans have begun to write or a bit later."""

    def kill():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if chance.random() < 0.5 else process.kill()

    waiting = chance.randrange(PARTS // 2)
    while waiting > 0 and process.poll() is None:
        if select.select([project.here], [], [], 0.05)[0]:
            waiting -= os.read(project.here, 1) == b"\n"
    timer = threading.Timer(chance.choice([0.0, chance.uniform(0.0, 0.1)]), kill)
    timer.start()
    process.communicate(timeout=PATIENCE)
    timer.join()
    while select.select([project.here], [], [], 0)[0]:
        os.read(project.here, 1000)


def storm(project, *, kills, seed):
    """Kill it again and again, resume it each time, let it end and apply it.

    How often it was killed.
    """
    chance = random.Random(seed)
    arguments = ("plan", "run", "--command", WORK, "-w", str(WIDTH))
    killed, lost_if_not_held, recorded = 0, set(), set()
    while killed < kills and len(recorded) < PARTS:
        before = started(project)
        with project.start(*arguments, measured=False) as process:
            strike(project, process, chance)
        killed += process.returncode == -signal.SIGKILL
        again = started(project)[len(before) :]
        assert not recorded & set(again), "a subplan that was recorded as done ran again"
        assert lost_if_not_held <= held(project) | in_worktrees(project), (
            "work in a worktree was lost"
        )
        lost_if_not_held |= in_worktrees(project)
        if project.has_run():
            arguments, recorded = ("resume", "plan-1"), done(project)
    before = started(project)
    said = project("resume", "plan-1")
    assert said.code == 0, said
    assert not recorded & set(started(project)[len(before) :])
    assert len(started(project)) <= PARTS + killed * WIDTH
    assert lost_if_not_held <= held(project)
    assert in_worktrees(project) <= held(project)  # if the last kill came when all was done
    said = project("plan", "apply", "plan-1")
    assert said.code == 0, said
    assert all(
        (project.folder / f"part{part}/m1.txt").read_text() == "done\n" for part in range(PARTS)
    )
    assert held(project) == set()
    assert not list(project.cache.rglob("*"))
    return killed


def done(project):
    """The subplans that are recorded as done."""
    return {row["key"] for row in project("export", "plan-1").rows if row["state"] == "done"}


def test_killed_again_and_again_only_unfinished_subplans_run_and_no_work_is_lost(begin):
    assert storm(begin(0), kills=3, seed=1) >= 1


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_killed_thirty_times_only_unfinished_subplans_run_and_no_work_is_lost(begin):
    killed = number = 0
    while killed < 30:
        killed += storm(begin(number), kills=6, seed=number)
        number += 1


WAITS = """
printf 'half\\n' > "$ABREAST_SCOPE"m0.txt
echo began > "$HERE"
cat > /dev/null < "$WAIT"
"""


def test_what_was_cut_off_and_never_resumed_is_kept_and_its_worktrees_go_at_apply(begin, tmp_path):
    project = begin(0)
    os.mkfifo(tmp_path / "wait")
    project.environment["WAIT"] = str(tmp_path / "wait")
    with project.start("plan", "run", "--command", WAITS, "-w", "2", measured=False) as process:
        told = b""
        while told.count(b"\n") < 2:
            assert select.select([project.here], [], [], PATIENCE)[0]
            told += os.read(project.here, 100)
        process.kill()
        process.communicate(timeout=PATIENCE)
    assert len(worktrees(project)) == 2
    said = project("plan", "apply", "plan-1", "--partial")
    assert said.code == 0, said
    assert said.err.count("was cut off; what it had done is kept") == 2
    assert not worktrees(project)
    home = project.folder / ".abreast/plan.git"
    names = (
        git(project.folder, "--git-dir", home, "for-each-ref", "--format=%(refname)")
        .decode()
        .split()
    )
    assert sorted(name.split("/")[3][:5] for name in names) == ["part0", "part1"]
    assert git(project.folder, "--git-dir", home, "show", f"{names[0]}:part0/m0.txt") == b"half\n"
    assert (project.folder / "part0/m0.txt").read_text() == "x = 0\n"


def test_a_plan_that_is_still_driven_is_not_resumed_and_its_commands_go_on(begin, tmp_path):
    project = begin(0)
    os.mkfifo(tmp_path / "wait")
    project.environment["WAIT"] = str(tmp_path / "wait")
    with project.start("plan", "run", "--command", WAITS, "-w", str(PARTS)) as process:
        told = b""
        while told.count(b"\n") < PARTS:
            assert select.select([project.here], [], [], PATIENCE)[0]
            told += os.read(project.here, 100)
        said = project("resume", "plan-1")
        assert said.code == 1, said
        assert "plan-1" in said.err
        assert len(worktrees(project)) == PARTS
        with (tmp_path / "wait").open("w"):  # all commands end
            pass
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, (out, err)


# A driver that kills itself: before or after the call with this number of one of our functions.
DIES = """
import importlib, os, signal, sys

module, name, when, count, *arguments = sys.argv[1:]
owner, _, function = name.rpartition(".")
owner = getattr(importlib.import_module(module), \
owner) if owner else importlib.import_module(module)
real, calls = getattr(owner, function), []

def dies(*given, **named):
    calls.append(function)
    last = len(calls) == int(count)
    if last and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    value = real(*given, **named)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
    return value

setattr(owner, function, dies)
from abreast.cli.main import main
sys.argv = ["abreast", *arguments]
main()
"""


@pytest.mark.parametrize(
    "point",
    [
        ("abreast.worktrees.pool", "_PoolStorage.prepare", "after", 1),
        ("abreast.worktrees.own_git", "OwnGit.install", "after", 1),
        ("abreast.worktrees.own_git", "_Template._fill_index", "before", 1),
        ("abreast.jobs.plan.work.commands", "_variables", "after", 2),
        ("abreast.jobs.plan.work.commands", "_output", "before", 3),
        ("abreast.worktrees.results.held_results", "HeldResults.hold", "after", 4),
        ("abreast.worktrees.slot", "Slot.let_go", "after", PARTS),
        ("abreast.worktrees.pool", "_PoolStorage.remove", "before", 1),
        ("abreast.worktrees.pool", "_remove_files", "after", 1),
        ("abreast.worktrees.pool", "_PoolStorage._drop", "after", 1),
        ("abreast.worktrees.pool", "remove_tree", "after", WIDTH + 1),
        ("abreast.worktrees.pool", "_PoolStorage._remove_empty_directories", "before", 1),
        ("abreast.store.driver_locks", "DriverLocks.free", "before", 1),
    ],
    ids=lambda point: f"{point[2]}-{point[1]}",
)
def test_after_a_kill_anywhere_the_next_command_clears_up_and_no_work_is_lost(
    begin, tmp_path, point
):
    project = begin(0)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    project.environment["TMPDIR"] = str(temporary)
    (tmp_path / "dies.py").write_text(DIES)
    words = (*point, "plan", "run", "--command", WORK, "-w", WIDTH)
    killed = project(*words, program=str(tmp_path / "dies.py"))
    assert killed.code == -signal.SIGKILL, killed
    written = in_worktrees(project) | held(project)
    said = project("plan", "show")
    assert said.code == 0, said
    assert not list(project.cache.rglob("*"))
    assert not list(temporary.rglob("abreast-subplan-*"))
    assert written <= held(project)
    if project.has_run():
        assert project("resume", "plan-1").code in {0, 2}  # 2: it had ended already
    else:
        assert project("plan", "run", "--command", WORK).code == 0
    assert project("plan", "apply", "plan-1").code == 0
    assert all(
        (project.folder / f"part{part}/m1.txt").read_text() == "done\n" for part in range(PARTS)
    )
    assert not list(project.cache.rglob("*"))


# The first part asks two others for changes of their files, which these make in a second round.
ASKS = """
echo "$ABREAST_SUBPLAN" >> "$LOG"
case $ABREAST_SCOPE in
    part0/) echo asked >> part1/m0.txt; echo asked >> part2/m0.txt ;;
    *) git apply --allow-empty "$ABREAST_REQUESTS_FILE" ;;
esac
printf 'done\\n' > "$ABREAST_SCOPE"m1.txt
"""
COMMANDS = "abreast.jobs.plan.work.commands"
# The point of the kill, and the parts that have to run after it.
BETWEEN_ROUNDS = [
    ("abreast.assembly.plan_tools", "find_requests", "before", 1, ["part1", "part2"]),
    ("abreast.assembly.plan_tools", "_asked_lines", "after", 1, ["part1", "part2"]),
    (COMMANDS, "_variables", "before", PARTS + 1, ["part1", "part2"]),
    (COMMANDS, "_output", "before", PARTS + 1, ["part1", "part2"]),
    (
        "abreast.worktrees.results.held_results",
        "HeldResults.hold",
        "after",
        PARTS + 1,
        ["part1", "part2"],
    ),
    (COMMANDS, "_variables", "before", PARTS + 2, ["part2"]),
    (COMMANDS, "_output", "before", PARTS + 2, ["part2"]),
]


@pytest.mark.parametrize("point", BETWEEN_ROUNDS, ids=lambda at: f"{at[2]}-{at[1]}-{at[3]}")
def test_killed_between_rounds_and_in_the_second_only_unfinished_requests_are_worked_on(
    begin, tmp_path, point
):
    project = begin(0)
    (tmp_path / "dies.py").write_text(DIES)
    *at, left = point
    words = (*at, "plan", "run", "--command", ASKS, "-w", 1)
    killed = project(*words, program=str(tmp_path / "dies.py"))
    assert killed.code == -signal.SIGKILL, killed
    before = len(started(project))
    assert before >= PARTS
    said = project("plan", "resume")
    assert said.code == 0, said
    assert [one.split("-")[0] for one in started(project)[before:]] == left
    said = project("plan", "apply", "plan-1")
    assert said.code == 0, said
    for part in range(PARTS):
        asked = "asked\n" if part in (1, 2) else ""
        assert (project.folder / f"part{part}/m0.txt").read_text() == f"x = 0\n{asked}"
        assert (project.folder / f"part{part}/m1.txt").read_text() == "done\n"
    assert not worktrees(project)
