"""What a command writes, how it ends, what it is given, and that it never leaves anything behind."""

import asyncio
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import pytest

from abreast.core.errors import AbreastError, WorkerDied
from abreast.executors import commands as module
from abreast.executors.commands import CommandMissing, CommandRefused, Commands, Finished
from abreast.executors.wards import RUN

PYTHON = sys.executable
# Ignores the request to end, and so does its child; both hold the witness until they are killed.
STUBBORN = "trap '' TERM; exec 9>{0}; (echo child >&9; while :; do sleep 1000; done) & echo parent >&9; wait; wait"


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    """Let coverage into the warden, which otherwise starts without site-packages."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        monkeypatch.setattr(module, "_FLAGS", ())
        monkeypatch.setattr(module, "_PROGRAM", "from abreast.executors.warden import main\nmain({line}, {driver})")


@pytest.fixture
async def commands(_measured):
    async with Commands() as made:
        yield made


class Witness:
    """A named pipe that processes hold open: hears them begin, and knows when the last one is gone."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self._fd = None
        self._heard = b""

    async def hear(self, count):
        """Wait until so many lines have come."""
        return await asyncio.to_thread(self._hear, count)

    async def wait_silence(self):
        """Wait until nobody holds it."""
        await asyncio.to_thread(self._hear, 1 << 30)

    def is_silent(self):
        """Whether nobody holds it now."""
        os.set_blocking(self._fd, False)
        try:
            while os.read(self._fd, 4096):
                pass
        except BlockingIOError:
            return False
        return True

    def _hear(self, count):
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDONLY)
        while self._heard.count(b"\n") < count and (data := os.read(self._fd, 4096)):
            self._heard += data
        return self._heard.decode().split()

    def close(self):
        if self._fd is not None:
            os.close(self._fd)


@pytest.fixture
def witness(tmp_path):
    made = Witness(tmp_path / "witness")
    yield made
    made.close()


def shell(script, *arguments):
    return ["sh", "-c", script, "sh", *map(str, arguments)]


def start(commands, *arguments, **options):
    return asyncio.create_task(commands.run(*arguments, **options))


# --- what it writes and how it ends


async def test_what_a_command_writes_comes_back_with_its_exit_code(commands):
    finished = await commands.run(shell("echo out; echo err >&2; exit 7"))
    assert finished == Finished(7, b"out\n", b"err\n", 4, 4)


async def test_a_signal_is_a_negative_exit_code(commands):
    assert (await commands.run(shell("kill -9 $$"))).exit_code == -signal.SIGKILL


async def test_output_past_keep_is_counted_and_not_stored(commands):
    finished = await commands.run(shell("printf 12345; printf 123 >&2"), keep=3)
    assert finished == Finished(0, b"123", b"123", 5, 3)
    assert await commands.run(["echo", "word"], keep=0) == Finished(0, b"", b"", 5, 0)


async def test_a_flood_neither_blocks_nor_fills_the_memory(commands):
    def peak():
        status = Path(f"/proc/{commands._warden.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    await commands.run(["true"])
    before = peak()
    size = 50_000_000
    finished = await commands.run(["head", "-c", str(size), "/dev/zero"], keep=1000)
    assert (finished.exit_code, finished.stdout_bytes, finished.stdout) == (0, size, bytes(1000))
    assert peak() - before < size / 4


async def test_megabytes_come_back_whole(commands):
    finished = await commands.run(shell("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"), keep=1 << 24)
    assert (len(finished.stdout), len(finished.stderr)) == (3_000_000, 2_000_000)


async def test_two_hundred_run_at_once(commands, witness, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = os.open(gate, os.O_RDWR)
    script = "exec 8<$1 9>$2; echo $3 >&9; read line <&8; echo $3"
    tasks = [start(commands, shell(script, gate, witness.path, number)) for number in range(200)]
    assert len(await witness.hear(200)) == 200
    os.close(held)  # everybody's `read` comes to its end
    finished = await asyncio.gather(*tasks)
    assert [one.stdout for one in finished] == [f"{number}\n".encode() for number in range(200)]


async def test_commands_too_many_for_the_open_files_wait_for_their_turn(commands, witness):
    await commands.run(["true"])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    fds = Path(f"/proc/{commands._warden.pid}/fd")
    resource.prlimit(commands._warden.pid, resource.RLIMIT_NOFILE, (len(list(fds.iterdir())) + 7, hard))
    first = start(commands, shell(f"exec 9>{witness.path}; echo >&9; exec sleep 1000"))
    await witness.hear(1)
    later = [start(commands, ["echo", str(number)]) for number in range(20)]
    given_up = start(commands, ["echo", "never"])
    await asyncio.sleep(0)
    given_up.cancel()
    assert [(await task).stdout for task in later] == [f"{number}\n".encode() for number in range(20)]
    first.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(first, given_up, return_exceptions=True)
    )


async def test_a_line_too_full_to_write_to_is_written_later(commands):
    word = "x" * 100_000
    finished = await asyncio.gather(*[commands.run(shell("echo ${#1}", word)) for _ in range(60)])
    assert {one.stdout for one in finished} == {b"100000\n"}


# --- what it is given


async def test_there_is_nothing_on_stdin_unless_it_is_given(commands):
    assert (await commands.run(["cat"])).stdout == b""
    assert (await commands.run(["cat"], stdin=b"word")).stdout == b"word"
    assert (await commands.run(["wc", "-c"], stdin=bytes(3_000_000))).stdout.strip() == b"3000000"
    assert (await commands.run(["true"], stdin=bytes(3_000_000))).exit_code == 0


async def test_the_directory_is_the_drivers_unless_it_is_given(commands, tmp_path):
    (tmp_path / "below").mkdir()
    assert (await commands.run(["pwd"], cwd=str(tmp_path / "below"))).stdout == f"{tmp_path}/below\n".encode()
    assert (await commands.run(["pwd"])).stdout == f"{Path.cwd()}\n".encode()
    assert (await commands.run(["pwd"], cwd=os.path.relpath(tmp_path))).stdout == f"{tmp_path}\n".encode()


async def test_the_environment_is_the_drivers_unless_it_is_given(monkeypatch, _measured):
    monkeypatch.setenv("ABREAST_WORD", "inherited")
    async with Commands() as commands:
        assert (await commands.run(["printenv", "ABREAST_WORD"])).stdout == b"inherited\n"
        changed = {**os.environ, "ABREAST_WORD": "given"}
        assert (await commands.run(["printenv", "ABREAST_WORD"], env=changed)).stdout == b"given\n"
        only = {"PATH": os.environ["PATH"], "WORD": "wörd"}
        wrote = (await commands.run(["env"], env=only)).stdout
        assert dict(line.split("=", 1) for line in wrote.decode().splitlines()) == only
        assert (await commands.run(["printenv", "ABREAST_WORD"])).stdout == b"inherited\n"


async def test_a_name_is_looked_for_on_the_path_of_its_environment(commands, tmp_path):
    for place, word in (("one", "first"), ("two", "second")):
        script = tmp_path / place / "say"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\necho {word}\n", encoding="ascii")
        script.chmod(0o755)
    for place, word in (("one", b"first\n"), ("two", b"second\n"), ("one", b"first\n")):
        assert (await commands.run(["say"], env={"PATH": f"/nowhere:{tmp_path}/{place}"})).stdout == word
        assert (await commands.run(["./say"], cwd=str(tmp_path / place))).stdout == word
        assert (await commands.run(["say"], cwd=str(tmp_path / place), env={"PATH": ":/bin"})).stdout == word
    (tmp_path / "one" / "say").unlink()
    with pytest.raises(CommandMissing):
        await commands.run(["say"], env={"PATH": f"/nowhere:{tmp_path}/one"})


async def test_a_command_inherits_no_files_and_no_ignored_signals(commands):
    listed = await commands.run([PYTHON, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"])
    assert listed.stdout == b"[0, 1, 2, 3]\n"  # the last is the listing's own
    status = (await commands.run(["cat", "/proc/self/status"])).stdout.decode()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    assert not blocked


async def test_its_group_is_its_own_and_is_told_while_it_runs(commands, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    told = asyncio.get_running_loop().create_future()
    task = start(commands, shell("cut -d' ' -f5 /proc/$$/stat; read word <$1", gate), started=told.set_result)
    group = await told
    await asyncio.to_thread(gate.write_text, "go\n", encoding="ascii")
    assert (await task).stdout == f"{group}\n".encode()
    assert group != os.getpgid(0)


async def test_an_error_of_the_one_who_is_told_ends_the_command_and_comes_out(commands):
    def refuse(group):
        raise LookupError(group)

    with pytest.raises(LookupError):
        await commands.run(["sleep", "1000"], started=refuse)


# --- what can't be started


async def test_a_missing_command_is_missing(commands):
    for name in ("no-such-command", "/no/such/command", "./no-such-command", ""):
        with pytest.raises(CommandMissing, match="no such command") as caught:
            await commands.run([name])
        assert isinstance(caught.value, FileNotFoundError)
        assert isinstance(caught.value, AbreastError)


@pytest.mark.parametrize(
    ("argv", "options", "sentence"),
    [
        ([], {}, "needs a name"),
        (["echo", "a\0b"], {}, "NUL"),
        (["echo"], {"cwd": "a\0b"}, "NUL"),
        (["echo"], {"env": {"PATH": "/bin", "A": "a\0b"}}, "NUL"),
        (["echo"], {"env": {"PATH": "/bin", "a=b": "c"}}, "environment"),
        (["echo", "\ud800"], {}, "can't be given"),
        (["echo", "x" * 200_000], {}, "too long"),
        (["echo"], {"cwd": "/no/such/place"}, "can't run in /no/such/place: No such file"),
        (["/etc/passwd"], {}, "not executable"),
        (["/tmp"], {}, "not executable"),
        (["{tmp}/not-executable"], {}, "not executable"),
        (["not-executable"], {"env": {"PATH": "{tmp}"}}, "not executable"),
        (["{tmp}/no-interpreter"], {}, "interpreter that its first line names is missing"),
        (["{tmp}/no-program"], {}, "neither a program nor a script"),
    ],
)
async def test_what_cannot_be_started_is_refused_in_a_sentence(commands, tmp_path, argv, options, sentence):
    for name, mode, text in (
        ("not-executable", 0o644, "#!/bin/sh\n"),
        ("no-interpreter", 0o755, "#!/no/such/shell\n"),
        ("no-program", 0o755, "word\n"),
    ):
        (tmp_path / name).write_text(text, encoding="ascii")
        (tmp_path / name).chmod(mode)
    if "env" in options:
        options = {"env": {name: value.replace("{tmp}", str(tmp_path)) for name, value in options["env"].items()}}
    with pytest.raises(CommandRefused, match=sentence) as caught:
        await commands.run([word.replace("{tmp}", str(tmp_path)) for word in argv], **options)
    assert "\n" not in str(caught.value)
    assert (await commands.run(["echo", "next"])).stdout == b"next\n"


# --- what it leaves


async def test_a_grandchild_that_keeps_the_pipe_open_does_not_hold_up_the_command(commands, witness):
    script = f"exec 9>{witness.path}; echo >&9; sleep 1000 & echo done"
    task = start(commands, shell(script))
    await witness.hear(1)
    assert await task == Finished(0, b"done\n", b"", 5, 0)
    assert witness.is_silent()


async def test_a_grandchild_that_writes_without_end_does_not_hold_up_the_command(commands, witness):
    task = start(commands, shell(f"exec 9>{witness.path}; echo >&9; yes & echo done"), keep=100)
    await witness.hear(1)
    finished = await task
    assert (finished.exit_code, len(finished.stdout)) == (0, 100)
    assert witness.is_silent()


async def test_a_grandchild_that_only_stays_in_the_group_is_ended_too(commands, witness):
    script = f"exec 9>{witness.path}; echo >&9; sleep 1000 >/dev/null 2>&1 & trap '' TERM; sleep 1000 >/dev/null 2>&1 & echo done"
    task = start(commands, shell(script))
    await witness.hear(1)
    assert (await task).stdout == b"done\n"
    assert witness.is_silent()


async def test_what_a_grandchild_writes_right_after_the_exit_is_kept(commands, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # `exec` holds the gate until the command's exit closes it.
    finished = await commands.run(shell("(read word <$1; echo late) & echo early; exec 8>$1; exec true", gate))
    assert finished.stdout == b"early\nlate\n"


async def test_one_that_escaped_with_the_pipe_does_not_hold_up_the_command(commands, witness):
    program = f"exec 9>{witness.path}; echo $$ >&9; exec sleep 1000"
    task = start(commands, shell(f"setsid sh -c '{program}' & read line <$1; echo done", "/dev/null"))
    [escaped] = await witness.hear(1)
    assert (await task).stdout == b"done\n"
    assert not witness.is_silent()
    os.kill(int(escaped), signal.SIGKILL)


# --- cancelling


async def test_cancelling_ends_the_whole_group_though_it_ignores_the_request(commands, witness):
    task = start(commands, shell(STUBBORN.format(witness.path)))
    assert sorted(await witness.hear(2)) == ["child", "parent"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert witness.is_silent()
    assert (await commands.run(["echo", "next"])).stdout == b"next\n"


async def test_cancelling_asks_before_it_kills(commands, witness, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 1000.0)
    task = start(
        commands,
        shell(f"exec 9>{witness.path}; trap 'echo asked >&9; exit' TERM; echo >&9; while :; do sleep 0.01; done"),
    )
    await witness.hear(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await witness.hear(2) == ["asked"]


async def test_cancelling_again_kills_at_once(commands, witness, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 1000.0)
    task = start(commands, shell(STUBBORN.format(witness.path)))
    await witness.hear(2)
    task.cancel()
    await asyncio.wait([task], timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert witness.is_silent()


async def test_a_timeout_around_it_is_a_timeout(commands, witness):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await commands.run(shell(f"exec 9<>{witness.path}; exec sleep 1000"))


async def test_cancelled_before_the_warden_knows_of_it_it_is_gone_too(commands):
    groups = []
    tasks = [start(commands, ["sleep", "1000"], started=groups.append) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))
    for group in groups:
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)


async def test_cancelled_when_it_has_just_finished_nothing_waits(commands):
    task = None

    def settle(job, settle=commands._settle):
        settle(job)
        task.cancel()

    commands._settle = settle
    task = start(commands, ["true"])
    with pytest.raises(asyncio.CancelledError):
        await task


# --- opening and closing


async def test_nothing_is_left_of_it(_measured):
    before = sorted(os.listdir("/proc/self/fd"))
    async with Commands() as commands:
        pid = commands._warden.pid
        await asyncio.gather(*[commands.run(["cat"], stdin=b"word") for _ in range(20)])
        files = len(os.listdir(f"/proc/{pid}/fd"))
        await asyncio.gather(*[commands.run(["cat"], stdin=b"word") for _ in range(20)])
        assert len(os.listdir(f"/proc/{pid}/fd")) == files
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert "0 running" in repr(commands)


async def test_closing_ends_what_still_runs(_measured, witness):
    async with Commands() as commands:
        task = start(commands, shell(STUBBORN.format(witness.path)))
        await witness.hear(2)
    assert witness.is_silent()
    with pytest.raises(WorkerDied, match="closed"):
        await task


async def test_closing_ends_what_has_left_its_group(_measured, witness):
    program = "os.fork() or os.setpgid(0, 0); os.write(9, b'word\\n'); os.execlp('sleep', 'sleep', '1000')"
    async with Commands() as commands:
        script = f'exec 9>{witness.path}; exec {PYTHON} -c "$1"'
        task = start(commands, shell(script, f"import os; os.set_inheritable(9, True); {program}"))
        await witness.hear(2)
    await witness.wait_silence()
    with pytest.raises(WorkerDied):
        await task


async def test_closing_goes_on_when_it_is_cancelled(_measured):
    commands = await Commands().__aenter__()
    pid = commands._warden.pid
    closing = asyncio.create_task(commands.__aexit__())
    await asyncio.wait([closing], timeout=0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_outside_of_its_block_nothing_runs(_measured):
    commands = Commands()
    with pytest.raises(RuntimeError, match="async with"):
        await commands.run(["true"])
    async with commands:
        pass
    with pytest.raises(RuntimeError, match="async with"):
        await commands.run(["true"])


def test_it_works_on_the_loop_of_another_thread(_measured, tmp_path):
    async def play():
        witness = Witness(tmp_path / "witness")
        async with Commands() as commands:
            task = start(commands, shell(STUBBORN.format(witness.path)))
            await witness.hear(2)
            task.cancel()
            await asyncio.wait([task])
            ends.append(witness.is_silent())
            ends.append((await commands.run(["echo", "word"])).stdout)
        witness.close()

    ends = []
    thread = threading.Thread(target=lambda: asyncio.run(play()))
    thread.start()
    thread.join()
    assert ends == [True, b"word\n"]


# --- the warden's own end


async def test_a_killed_warden_fails_its_commands_and_the_next_gets_another(commands, witness):
    task = start(commands, shell(STUBBORN.format(witness.path)))
    await witness.hear(2)
    first = commands._warden.pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="sh: the warden .* killed by signal 9"):
        await task
    await witness.wait_silence()
    assert (await commands.run(["echo", "next"])).stdout == b"next\n"
    assert commands._warden.pid != first


async def test_a_command_cancelled_as_the_warden_dies_is_cancelled(commands, witness):
    task = start(commands, shell(STUBBORN.format(witness.path)))
    await witness.hear(2)
    os.kill(commands._warden.pid, signal.SIGSTOP)
    task.cancel()
    await asyncio.wait([task], timeout=0)
    os.kill(commands._warden.pid, signal.SIGKILL)
    with pytest.raises(asyncio.CancelledError):
        await task
    await witness.wait_silence()


async def test_a_request_that_meets_a_dead_warden_fails_as_the_others(commands):
    await commands.run(["true"])
    os.kill(commands._warden.pid, signal.SIGKILL)
    os.waitid(os.P_PID, commands._warden.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WorkerDied):
        await commands.run(["true"])
    assert (await commands.run(["true"])).exit_code == 0


async def test_the_warden_outlives_signals_that_are_meant_for_everybody(commands):
    await commands.run(["true"])
    pid = commands._warden.pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert (await commands.run(["echo", "word"])).stdout == b"word\n"
    assert commands._warden.pid == pid


async def test_a_fault_of_the_warden_is_told(commands, witness):
    task = start(commands, shell(STUBBORN.format(witness.path)))
    await witness.hear(2)
    commands._warden.send((RUN, "too short"))
    with pytest.raises(WorkerDied, match="broke .*ValueError") as caught:
        await task
    assert "Traceback" in caught.value.__notes__[0]
    assert witness.is_silent()


async def test_a_warden_that_hangs_is_killed_at_the_end(_measured, monkeypatch, witness):
    monkeypatch.setattr(module, "_CLOSING", 0.01)
    async with Commands() as commands:
        task = start(commands, shell(STUBBORN.format(witness.path)))
        await witness.hear(2)
        os.kill(commands._warden.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDied):
        await task
    await witness.wait_silence()
