"""Ways to run a command many times from Python.

`python -m benchmarks.runners WAY N WIDTH COMMAND [ARGUMENT ...]`.

Each captures stdout and stderr, gives the command a process group of its own, and fails if a
command fails; only `spawn` does nothing but start and reap: it is the floor. `commands` is the
executor that `abreast map` uses.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

Argv = list[str]


def spawn(argv: Argv, n: int, width: int) -> None:
    """`os.posix_spawn` and `os.waitpid`, nothing else."""
    path = shutil.which(argv[0]) or argv[0]
    for number in range(n + width):
        if number >= width:
            _check(os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]))
        if number < n:
            os.posix_spawn(path, argv, os.environ, setpgroup=0)


def popen(argv: Argv, n: int, width: int) -> None:
    """`subprocess.run` in as many threads as run at once."""

    def one(_: int) -> None:
        _check(
            subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, process_group=0, check=False
            ).returncode
        )

    with ThreadPoolExecutor(width) as pool:
        list(pool.map(one, range(n)))


async def asyncio_subprocess(argv: Argv) -> int:
    """`asyncio.create_subprocess_exec`."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=nothing, stdout=pipe, stderr=pipe, process_group=0
    )
    await process.communicate()
    return process.returncode if process.returncode is not None else 1


async def side_by_side(
    call: Callable[[Argv], Coroutine[object, object, int]], argv: Argv, n: int, width: int
) -> None:
    """Have `width` workers share the calls."""
    numbers = iter(range(n))

    async def work() -> None:
        for _ in numbers:
            _check(await call(argv))

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(work())


async def supervised(argv: Argv, n: int, width: int) -> None:
    """`abreast.executors.commands`."""
    from abreast.executors.commands import Commands

    async with Commands() as commands:

        async def one(argv: Argv) -> int:
            return (await commands.run(argv)).exit_code

        await side_by_side(one, argv, n, width)


def _check(exit_code: int) -> None:
    if exit_code != 0:
        raise SystemExit(f"a command ended with exit code {exit_code}")


WAYS: dict[str, Callable[[Argv, int, int], object]] = {
    "spawn": spawn,
    "popen": popen,
    "asyncio": lambda argv, n, width: asyncio.run(side_by_side(asyncio_subprocess, argv, n, width)),
    "commands": lambda argv, n, width: asyncio.run(supervised(argv, n, width)),
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](sys.argv[4:], int(sys.argv[2]), int(sys.argv[3]))
