"""Output of commands that is passed on while they run."""

import asyncio
import sys
from pathlib import Path

import pytest

from abreast.executors.commands import Commands


async def test_output_is_passed_on_while_the_command_still_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import sys, os, time\n"
        "print('first', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "print('last', flush=True)\n"
    )
    heard: list[bytes] = []

    def listen(piece: bytes) -> None:
        heard.append(piece)
        go.touch()  # without this, the command would never end

    async with Commands() as commands, asyncio.timeout(60):
        finished = await commands.run([sys.executable, "-c", code], output=listen)
    assert heard[0].startswith(b"first")
    assert b"".join(heard) == finished.stdout == b"first\nlast\n"


async def test_all_output_is_passed_on_also_what_is_not_kept() -> None:
    heard: list[bytes] = []
    async with Commands() as commands:
        finished = await commands.run(
            ["head", "-c", "3000000", "/dev/zero"], keep=10, output=heard.append
        )
    assert sum(map(len, heard)) == finished.stdout_bytes == 3_000_000
    assert len(finished.stdout) == 10


async def test_output_of_a_command_that_ends_at_once_is_passed_on_before_its_end() -> None:
    heard: list[bytes] = []
    async with Commands() as commands:
        await commands.run(["echo", "short"], output=heard.append)
        assert heard == [b"short\n"]
        quiet = await commands.run(["sh", "-c", "echo no >&2"], output=heard.append)
    assert heard == [b"short\n"]
    assert quiet.stderr == b"no\n"


async def test_a_listener_that_raises_ends_the_command() -> None:
    heard: list[bytes] = []

    def listen(piece: bytes) -> None:
        heard.append(piece)
        raise ValueError("enough")

    async with Commands() as commands, asyncio.timeout(60):
        with pytest.raises(ValueError, match="enough"):
            await commands.run(["yes"], output=listen)
    assert len(heard) == 1
