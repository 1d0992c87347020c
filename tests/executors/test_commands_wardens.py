"""A second supervisor is started if commands are so short that their start takes all the time."""

import asyncio
import os
import resource
import signal

import pytest

from abreast.core.errors import WorkerDied
from abreast.executors import commands as module
from abreast.executors.commands import CommandRefused, Commands
from tests.executors.test_commands import let_coverage_in, open_files, shell, start


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    let_coverage_in(monkeypatch)


@pytest.fixture
async def crowded(monkeypatch):
    """Commands on a machine with two CPUs."""
    monkeypatch.setattr(module, "_count_cpus", lambda: 2)
    async with Commands() as made:
        yield made


async def start_second(commands):
    """Run short commands until there are two supervisors, and both are up."""
    while len(commands._supervisors) < 2 or not all(each.ready for each in commands._supervisors):
        await asyncio.gather(*(commands.run(["true"]) for _ in range(4)))


async def parents(commands, count):
    """The process ids that start so many commands side by side."""
    finished = await asyncio.gather(*(commands.run(shell("echo $PPID")) for _ in range(count)))
    return {int(one.stdout) for one in finished}


async def test_short_commands_are_shared_by_two_supervisors_and_never_more_than_cpus(crowded):
    await start_second(crowded)
    assert await parents(crowded, 12) == {supervisor.pid for supervisor in crowded._supervisors}
    await asyncio.gather(*(crowded.run(["true"]) for _ in range(50)))
    assert len(crowded._supervisors) == 2


async def test_with_one_cpu_there_is_one(monkeypatch):
    monkeypatch.setattr(module, "_count_cpus", lambda: 1)
    async with Commands() as commands:
        await asyncio.gather(*(commands.run(["true"]) for _ in range(50)))
        assert len(commands._supervisors) == 1


async def start_lasting(commands, count):
    """Start so many commands that don't end, and wait until each start was reported."""
    begun, reported = asyncio.Event(), []

    def started(group):
        reported.append(group)
        if len(reported) == count:
            begun.set()

    tasks = [start(commands, ["sleep", "1000"], started=started) for _ in range(count)]
    await begun.wait()
    return tasks


async def cancel(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_commands_that_last_need_no_second(crowded):
    tasks = await start_lasting(crowded, 8)
    tasks += await start_lasting(crowded, 8)
    assert len(crowded._supervisors) == 1
    await cancel(tasks)


async def test_one_supervisor_that_dies_takes_only_its_own_commands_with_it(crowded):
    await start_second(crowded)
    tasks = await start_lasting(crowded, 4)
    os.kill(crowded._supervisors[0].pid, signal.SIGKILL)
    lost, kept = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in lost:
        with pytest.raises(WorkerDied, match="killed by signal 9"):
            await task
    assert (len(lost), len(kept), len(crowded._supervisors)) == (2, 2, 1)
    assert (await crowded.run(["echo", "next"])).stdout == b"next\n"
    assert not any(task.done() for task in kept)
    await start_second(crowded)  # and the one that died is replaced
    await cancel(kept)


async def test_both_are_gone_with_the_runner(monkeypatch):
    monkeypatch.setattr(module, "_count_cpus", lambda: 2)
    async with Commands() as commands:
        await start_second(commands)
        pids = [supervisor.pid for supervisor in commands._supervisors]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_second_supervisor_works_where_and_with_what_the_first_does(
    crowded, monkeypatch, tmp_path
):
    home = os.getcwd()  # noqa: PTH109 - a string is needed
    monkeypatch.setenv("LATER", "yes")
    monkeypatch.chdir(tmp_path)
    await start_second(crowded)
    said = await asyncio.gather(
        *(crowded.run(shell('echo "$PPID $PWD ${LATER-no}"')) for _ in range(12))
    )
    assert {line.stdout.decode().split(maxsplit=1)[1] for line in said} == {f"{home} no\n"}
    assert len({line.stdout.split()[0] for line in said}) == 2
    crowded.adopt_environment()
    said = await asyncio.gather(
        *(crowded.run(shell('echo "$PPID ${LATER-no}"')) for _ in range(12))
    )
    assert {line.stdout.split()[1] for line in said} == {b"yes"}


def limit_open_files(supervisor):
    """Leave a supervisor no file to open."""
    taken = set(open_files(supervisor.pid))
    limit = next(number for number in range(1000) if number not in taken)
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (limit, limit))


async def test_what_one_has_nothing_left_for_goes_to_the_other_that_has_commands(crowded):
    await start_second(crowded)
    first, second = crowded._supervisors
    crowded._supervisors = [second]
    held = await start_lasting(crowded, 1)
    crowded._supervisors = [first, second]
    limit_open_files(first)
    finished = await crowded.run(shell("echo $PPID"))
    assert int(finished.stdout) == second.pid
    await cancel(held)


async def test_where_nothing_would_help_it_is_refused(crowded):
    await start_second(crowded)
    for supervisor in crowded._supervisors:
        limit_open_files(supervisor)
    with pytest.raises(CommandRefused, match="Too many open files"):
        await crowded.run(["true"])
