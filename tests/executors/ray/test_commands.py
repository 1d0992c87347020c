"""Commands on the nodes of a cluster."""

import asyncio
import os

import pytest

from abreast.executors.commands import CommandMissing, CommandRefused
from abreast.executors.ray.commands import RayCommands
from tests.executors.test_commands_ending import STUBBORN, LifePipe

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "unmeasured")]


@pytest.fixture
async def commands():
    async with RayCommands() as made:
        yield made


async def test_output_exit_code_and_input_are_those_of_the_command(commands):
    finished = await commands.run(
        ["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"given", keep=3
    )
    assert (finished.exit_code, finished.stdout, finished.stderr) == (3, b"giv", b"oop")
    assert (finished.stdout_bytes, finished.stderr_bytes) == (5, 5)


async def test_it_runs_in_the_drivers_directory_and_environment(commands, monkeypatch, tmp_path):
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("HOSTNAME", "not-that-of-a-node")
    monkeypatch.chdir(tmp_path)
    finished = await commands.run(["sh", "-c", 'echo "$PWD $COLOUR $HOSTNAME"'])
    assert finished.stdout.startswith(f"{tmp_path} red ".encode())
    assert b"not-that-of-a-node" not in finished.stdout


async def test_the_environment_may_be_given_and_the_directory_too(commands, tmp_path):
    finished = await commands.run(
        ["sh", "-c", 'echo "$PWD $COLOUR"'], cwd=str(tmp_path), env={**os.environ, "COLOUR": "blue"}
    )
    assert finished.stdout.decode() == f"{tmp_path} blue\n"


async def test_what_cannot_be_started_says_why(commands, tmp_path):
    with pytest.raises(CommandMissing, match="there is no such command"):
        await commands.run(["no-such-command"])
    with pytest.raises(CommandRefused, match="can't run in"):
        await commands.run(["true"], cwd=str(tmp_path / "missing"))
    with pytest.raises(CommandRefused, match="needs a name"):
        await commands.run([])


async def test_a_cancelled_command_is_gone_with_all_that_it_started(commands, tmp_path):
    pipe = LifePipe(tmp_path / "alive")
    running = asyncio.ensure_future(commands.run(["sh", "-c", STUBBORN.format(pipe.path)]))
    await pipe.wait_lines(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await pipe.wait_closed()
