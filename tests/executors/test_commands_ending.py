"""How commands end: by themselves, cancelled, with their runner, and with its supervisor."""

import asyncio
import os
import resource
import signal
import sys
import threading

import pytest

from abreast.core.errors import WorkerDied
from abreast.executors import commands as module
from abreast.executors.commands import Commands, Finished
from abreast.executors.supervisor import client
from abreast.executors.supervisor.protocol import RUN
from tests.executors.test_commands import let_coverage_in, open_files, shell, start

PYTHON = sys.executable
# Ignores SIGTERM, and so does its child; both hold the pipe open until they are killed.
STUBBORN = (
    "trap '' TERM; exec 9>{0}; (echo child >&9; while :; do sleep 1000; done) & "
    "echo parent >&9; wait; wait"
)


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    let_coverage_in(monkeypatch)


@pytest.fixture
async def commands():
    async with Commands() as made:
        yield made


@pytest.fixture
async def patient(monkeypatch):
    """Commands whose left-over processes are not killed."""
    for_ever = "import sys\nsys.modules[main.__module__].LINGER = 1000.0\nmain("
    monkeypatch.setattr(client, "_PROGRAM", client._PROGRAM.replace("main(", for_ever))
    async with Commands() as made:
        yield made


class LifePipe:
    """A named pipe that processes hold open: it shows when they begin and when all have ended."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._received = b""

    async def wait_lines(self, count):
        """Wait until so many lines have come; return the words of all lines."""
        while self._received.count(b"\n") < count:
            assert await self._read_more(), f"they ended after {self._received!r}"
        return self._received.decode().split()

    async def wait_closed(self):
        """Wait until no process holds it open."""
        while await self._read_more():
            pass

    def is_closed(self):
        """Whether no process holds it open now."""
        try:
            while os.read(self._fd, 4096):
                pass
        except BlockingIOError:
            return False
        return True

    async def _read_more(self):
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self._fd, lambda: readable.done() or readable.set_result(None))
        try:
            async with asyncio.timeout(60):  # a safety net
                await readable
        finally:
            loop.remove_reader(self._fd)
        data = os.read(self._fd, 4096)
        self._received += data
        return bool(data)

    def close(self):
        os.close(self._fd)


@pytest.fixture
def life_pipe(tmp_path):
    made = LifePipe(tmp_path / "life_pipe")
    yield made
    made.close()


# --- many commands


async def test_two_hundred_run_at_once(commands, life_pipe, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = os.open(gate, os.O_RDWR)
    script = "exec 8<$1 9>$2; echo $3 >&9; read line <&8; echo $3"
    tasks = [start(commands, shell(script, gate, life_pipe.path, number)) for number in range(200)]
    assert len(await life_pipe.wait_lines(200)) == 200
    os.close(held)  # every `read` reaches the end of the file
    finished = await asyncio.gather(*tasks)
    assert [one.stdout for one in finished] == [f"{number}\n".encode() for number in range(200)]


async def test_commands_too_many_for_the_open_files_wait_for_their_turn(commands, life_pipe):
    await limit_open_files(commands, spare=7)
    first = start(commands, shell(f"exec 9>{life_pipe.path}; echo >&9; exec sleep 1000"))
    await life_pipe.wait_lines(1)
    finished = await asyncio.gather(*[commands.run(["echo", str(number)]) for number in range(20)])
    assert [one.stdout for one in finished] == [f"{number}\n".encode() for number in range(20)]
    first.cancel()
    await asyncio.wait([first])


async def test_one_that_waits_for_open_files_can_be_cancelled(commands, life_pipe):
    await limit_open_files(commands, spare=5)
    first = start(commands, shell(f"exec 9>{life_pipe.path}; echo >&9; exec sleep 1000"))
    await life_pipe.wait_lines(1)
    second = start(commands, ["echo", "never"], started=pytest.fail)
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    first.cancel()
    await asyncio.wait([first])


async def limit_open_files(commands, *, spare):
    """Limit the files that the supervisor can open to so many more.

    A start needs four at once, and two for as long as the command runs.
    """
    await commands.run(["true"])
    taken = set(open_files(commands._supervisors[0].pid))
    limit = [number for number in range(1000) if number not in taken][spare]
    resource.prlimit(commands._supervisors[0].pid, resource.RLIMIT_NOFILE, (limit, limit))


# --- processes that a command leaves


async def test_a_grandchild_that_keeps_the_pipe_open_does_not_hold_up_the_command(
    commands, life_pipe
):
    script = f"exec 9>{life_pipe.path}; echo >&9; sleep 1000 & echo done"
    task = start(commands, shell(script))
    await life_pipe.wait_lines(1)
    assert await task == Finished(0, b"done\n", b"", 5, 0)
    assert life_pipe.is_closed()


async def test_a_grandchild_that_writes_without_end_does_not_hold_up_the_command(
    commands, life_pipe
):
    task = start(commands, shell(f"exec 9>{life_pipe.path}; echo >&9; yes & echo done"), keep=100)
    await life_pipe.wait_lines(1)
    finished = await task
    assert (finished.exit_code, len(finished.stdout)) == (0, 100)
    assert life_pipe.is_closed()


async def test_a_grandchild_that_only_stays_in_the_group_is_ended_too(commands, life_pipe):
    script = (
        "exec 9>$1 8>/dev/null; echo >&9; trap '' TERM; "
        "sleep 1000 >&8 2>&8 & sleep 1000 >&8 2>&8 & echo done"
    )
    task = start(commands, shell(script, life_pipe.path))
    await life_pipe.wait_lines(1)
    assert (await task).stdout == b"done\n"
    assert life_pipe.is_closed()


# Signals to the command that it has started, and goes on when that has exited and was reaped.
AFTERWARDS = "echo >$1; while kill -0 $0 2>/dev/null; do :; done; echo late"


@pytest.mark.parametrize("way", ["", "setsid"], ids=["in the group", "out of it"])
async def test_what_a_grandchild_writes_after_the_exit_is_kept(patient, tmp_path, way):
    os.mkfifo(tmp_path / "gate")
    script = f"{way} sh -c '{AFTERWARDS}' $$ $1 & read line <$1; echo early; exec true"
    assert (await patient.run(shell(script, tmp_path / "gate"))).stdout == b"early\nlate\n"


async def test_a_grandchild_that_ends_by_itself_is_waited_for_no_longer(patient, tmp_path):
    os.mkfifo(tmp_path / "gate")
    script = f"sh -c '{AFTERWARDS}' $$ $1 >/dev/null 2>&1 & read line <$1; echo early; exec true"
    assert (await patient.run(shell(script, tmp_path / "gate"))).stdout == b"early\n"


async def test_one_that_escaped_with_the_pipe_does_not_hold_up_the_command(commands, life_pipe):
    program = f"exec 9>{life_pipe.path}; echo $$ >&9; exec sleep 1000"
    task = start(
        commands, shell(f"setsid sh -c '{program}' & read line <$1; echo done", "/dev/null")
    )
    [escaped] = await life_pipe.wait_lines(1)
    assert (await task).stdout == b"done\n"
    assert not life_pipe.is_closed()
    os.kill(int(escaped), signal.SIGKILL)


# --- cancelling


async def test_cancelling_ends_the_whole_group_though_it_ignores_the_request(commands, life_pipe):
    task = start(commands, shell(STUBBORN.format(life_pipe.path)))
    assert sorted(await life_pipe.wait_lines(2)) == ["child", "parent"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life_pipe.is_closed()
    assert (await commands.run(["echo", "next"])).stdout == b"next\n"


async def test_cancelling_asks_before_it_kills(commands, life_pipe, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 1000.0)
    script = "trap 'echo asked >&9; exit' TERM; echo >&9; while :; do sleep 0.01; done"
    task = start(commands, shell(f"exec 9>{life_pipe.path}; {script}"))
    await life_pipe.wait_lines(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await life_pipe.wait_lines(2) == ["asked"]


async def test_cancelling_again_kills_at_once(commands, life_pipe, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 1000.0)
    task = start(commands, shell(STUBBORN.format(life_pipe.path)))
    await life_pipe.wait_lines(2)
    task.cancel()
    await asyncio.wait([task], timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life_pipe.is_closed()


async def test_a_timeout_around_it_is_a_timeout(commands, life_pipe):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await commands.run(shell(f"exec 9<>{life_pipe.path}; exec sleep 1000"))


async def test_cancelled_before_the_supervisor_knows_of_it_it_is_gone_too(commands):
    groups = []
    tasks = [start(commands, ["sleep", "1000"], started=groups.append) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError)
        for end in await asyncio.gather(*tasks, return_exceptions=True)
    )
    for group in groups:
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)


@pytest.mark.parametrize("first", ["finished", "cancelled"])
async def test_finished_and_cancelled_in_one_turn_of_the_loop_it_is_cancelled(commands, first):
    def settle(job, settle=commands._settle):
        for act in (lambda: settle(job), task.cancel)[:: 1 if first == "finished" else -1]:
            act()

    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    commands._settle = settle
    task = start(commands, ["true"])
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not faults


# --- opening and closing


async def test_nothing_is_left_of_it():
    before = open_files("self")
    async with Commands() as commands:
        pid = commands._supervisors[0].pid
        await asyncio.gather(*[commands.run(["cat"], stdin=b"word") for _ in range(20)])
        files = open_files(pid)
        await asyncio.gather(*[commands.run(["cat"], stdin=b"word") for _ in range(20)])
        assert open_files(pid) == files
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert open_files("self") == before
    assert "0 running" in repr(commands)


async def test_closing_ends_what_still_runs(life_pipe):
    async with Commands() as commands:
        task = start(commands, shell(STUBBORN.format(life_pipe.path)))
        await life_pipe.wait_lines(2)
    assert life_pipe.is_closed()
    with pytest.raises(WorkerDied, match="closed"):
        await task


async def test_closing_ends_what_has_left_its_group(life_pipe):
    program = (
        "os.fork() or os.setpgid(0, 0); os.write(9, b'word\\n'); "
        "os.execlp('sleep', 'sleep', '1000')"
    )
    async with Commands() as commands:
        script = f'exec 9>{life_pipe.path}; exec {PYTHON} -c "$1"'
        task = start(commands, shell(script, f"import os; os.set_inheritable(9, True); {program}"))
        await life_pipe.wait_lines(2)
    await life_pipe.wait_closed()
    with pytest.raises(WorkerDied):
        await task


async def test_closing_goes_on_when_it_is_cancelled():
    commands = await Commands().__aenter__()
    pid = commands._supervisors[0].pid
    closing = asyncio.create_task(commands.__aexit__())
    await asyncio.wait([closing], timeout=0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_outside_of_its_block_nothing_runs():
    commands = Commands()
    with pytest.raises(RuntimeError, match="async with"):
        await commands.run(["true"])
    async with commands:
        pass
    with pytest.raises(RuntimeError, match="async with"):
        await commands.run(["true"])


def test_it_works_on_the_loop_of_another_thread(tmp_path):
    async def play():
        life_pipe = LifePipe(tmp_path / "life_pipe")
        async with Commands() as commands:
            task = start(commands, shell(STUBBORN.format(life_pipe.path)))
            await life_pipe.wait_lines(2)
            task.cancel()
            await asyncio.wait([task])
            ends.append(life_pipe.is_closed())
            ends.append((await commands.run(["echo", "word"])).stdout)
        life_pipe.close()

    ends = []
    thread = threading.Thread(target=lambda: asyncio.run(play()))
    thread.start()
    thread.join()
    assert ends == [True, b"word\n"]


# --- the supervisor's own end


async def test_a_killed_supervisor_fails_its_commands_and_the_next_gets_another(
    commands, life_pipe
):
    task = start(commands, shell(STUBBORN.format(life_pipe.path)))
    await life_pipe.wait_lines(2)
    first = commands._supervisors[0].pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"sh: the supervisor .* killed by signal 9"):
        await task
    await life_pipe.wait_closed()
    assert (await commands.run(["echo", "next"])).stdout == b"next\n"
    assert commands._supervisors[0].pid != first


async def test_a_command_cancelled_as_the_supervisor_dies_is_cancelled(commands, life_pipe):
    task = start(commands, shell(STUBBORN.format(life_pipe.path)))
    await life_pipe.wait_lines(2)
    os.kill(commands._supervisors[0].pid, signal.SIGSTOP)
    task.cancel()
    await asyncio.wait([task], timeout=0)
    os.kill(commands._supervisors[0].pid, signal.SIGKILL)
    with pytest.raises(asyncio.CancelledError):
        await task
    await life_pipe.wait_closed()


async def test_a_request_that_meets_a_dead_supervisor_fails_as_the_others(commands):
    await commands.run(["true"])
    os.kill(commands._supervisors[0].pid, signal.SIGKILL)
    # Blocking, so that the loop can't notice the end first.
    os.waitid(os.P_PID, commands._supervisors[0].pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - blocks on purpose
    with pytest.raises(WorkerDied):
        await commands.run(["true"])
    assert (await commands.run(["true"])).exit_code == 0


async def test_the_supervisor_outlives_signals_that_are_meant_for_everybody(commands):
    await commands.run(["true"])
    pid = commands._supervisors[0].pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert (await commands.run(["echo", "word"])).stdout == b"word\n"
    assert commands._supervisors[0].pid == pid


async def test_a_fault_of_the_supervisor_is_told(commands, life_pipe):
    task = start(commands, shell(STUBBORN.format(life_pipe.path)))
    await life_pipe.wait_lines(2)
    commands._supervisors[0].send((RUN, "too short"))
    with pytest.raises(WorkerDied, match=r"broke .*ValueError") as caught:
        await task
    assert "Traceback" in caught.value.__notes__[0]
    assert life_pipe.is_closed()


async def test_a_supervisor_that_hangs_is_killed_at_the_end(life_pipe):
    async with Commands(close_timeout=0.01) as commands:
        task = start(commands, shell(STUBBORN.format(life_pipe.path)))
        await life_pipe.wait_lines(2)
        os.kill(commands._supervisors[0].pid, signal.SIGSTOP)
    with pytest.raises(WorkerDied):
        await task
    await life_pipe.wait_closed()
