"""What a command writes, how it ends, what it inherits, and that it leaves nothing behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from abreast.core.errors import AbreastError
from abreast.executors.commands import CommandMissing, CommandRefused, Commands, Finished
from abreast.executors.supervisor import client

PYTHON = sys.executable


def let_coverage_in(monkeypatch):
    """Start the supervisor with site-packages if its coverage is to be measured."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        monkeypatch.setattr(client, "_INTERPRETER_FLAGS", ())
        monkeypatch.setattr(
            client,
            "_PROGRAM",
            "from abreast.executors.supervisor.process import main\nmain({channel}, {driver})",
        )


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    let_coverage_in(monkeypatch)


@pytest.fixture
async def commands():
    async with Commands() as made:
        yield made


def shell(script, *arguments):
    return ["sh", "-c", script, "sh", *map(str, arguments)]


def open_files(pid):
    return sorted(int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir())


def start(commands, *arguments, **options):
    return asyncio.create_task(commands.run(*arguments, **options))


# --- output and exit code


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
        status = Path(f"/proc/{commands._supervisors[0].pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    await commands.run(["true"])
    before = peak()
    size = 50_000_000
    finished = await commands.run(["head", "-c", str(size), "/dev/zero"], keep=1000)
    assert (finished.exit_code, finished.stdout_bytes, finished.stdout) == (0, size, bytes(1000))
    assert peak() - before < size / 4


async def test_megabytes_come_back_whole(commands):
    finished = await commands.run(
        shell("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"), keep=1 << 24
    )
    assert (len(finished.stdout), len(finished.stderr)) == (3_000_000, 2_000_000)


async def test_a_line_too_full_to_write_to_is_written_later(commands):
    word = "x" * 100_000
    finished = await asyncio.gather(*[commands.run(shell("echo ${#1}", word)) for _ in range(60)])
    assert {one.stdout for one in finished} == {b"100000\n"}


# --- input, directory and environment


async def test_there_is_nothing_on_stdin_unless_it_is_given(commands):
    assert (await commands.run(["cat"])).stdout == b""
    assert (await commands.run(["cat"], stdin=b"word")).stdout == b"word"
    assert (await commands.run(["wc", "-c"], stdin=bytes(3_000_000))).stdout.strip() == b"3000000"
    assert (await commands.run(["true"], stdin=bytes(3_000_000))).exit_code == 0


async def test_the_directory_is_the_drivers_unless_it_is_given(commands, tmp_path):
    (tmp_path / "below").mkdir()
    assert (
        await commands.run(["pwd"], cwd=str(tmp_path / "below"))
    ).stdout == f"{tmp_path}/below\n".encode()
    assert (await commands.run(["pwd"])).stdout == f"{Path.cwd()}\n".encode()
    above = "../" * (len(Path.cwd().parts) - 1)
    assert (
        await commands.run(["pwd"], cwd=f"{above}{tmp_path}")
    ).stdout == f"{tmp_path}\n".encode()


async def test_the_environment_is_the_drivers_unless_it_is_given(monkeypatch):
    monkeypatch.setenv("ABREAST_WORD", "inherited")
    async with Commands() as commands:
        assert (await commands.run(["printenv", "ABREAST_WORD"])).stdout == b"inherited\n"
        changed = {**os.environ, "ABREAST_WORD": "given"}
        assert (await commands.run(["printenv", "ABREAST_WORD"], env=changed)).stdout == b"given\n"
        only = {"PATH": os.environ["PATH"], "WORD": "wörd"}
        wrote = (await commands.run(["env"], env=only)).stdout
        assert dict(line.split("=", 1) for line in wrote.decode().splitlines()) == only
        without = {name: value for name, value in os.environ.items() if name != "ABREAST_WORD"}
        assert (await commands.run(["printenv", "ABREAST_WORD"], env=without)).exit_code == 1
        assert (await commands.run(["printenv", "ABREAST_WORD"])).stdout == b"inherited\n"


async def test_a_name_is_looked_for_on_the_path_of_its_environment(commands, tmp_path):
    for place, word in (("one", "first"), ("two", "second")):
        script = tmp_path / place / "say"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\necho {word}\n", encoding="ascii")
        script.chmod(0o755)
    for place, word in (("one", b"first\n"), ("two", b"second\n"), ("one", b"first\n")):
        assert (
            await commands.run(["say"], env={"PATH": f"/nowhere:{tmp_path}/{place}"})
        ).stdout == word
        assert (await commands.run(["./say"], cwd=str(tmp_path / place))).stdout == word
        assert (
            await commands.run(["say"], cwd=str(tmp_path / place), env={"PATH": ":/bin"})
        ).stdout == word
    (tmp_path / "one" / "say").unlink()
    with pytest.raises(CommandMissing):
        await commands.run(["say"], env={"PATH": f"/nowhere:{tmp_path}/one"})


async def test_a_command_inherits_no_files_and_no_ignored_signals(commands):
    listed = await commands.run(
        [PYTHON, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"]
    )
    assert listed.stdout == b"[0, 1, 2, 3]\n"  # the last one is the listing itself
    status = (await commands.run(["cat", "/proc/self/status"])).stdout.decode()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    assert not blocked


async def test_its_group_is_its_own_and_is_told_while_it_runs(commands, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    reported = asyncio.get_running_loop().create_future()
    task = start(
        commands,
        shell("cut -d' ' -f5 /proc/$$/stat; read word <$1", gate),
        started=reported.set_result,
    )
    group = await reported
    await asyncio.to_thread(gate.write_text, "go\n", encoding="ascii")
    assert (await task).stdout == f"{group}\n".encode()
    assert group != os.getpgid(0)


async def test_an_error_of_the_one_who_is_told_ends_the_command_and_comes_out(commands):
    def refuse(group):
        raise LookupError(group)

    with pytest.raises(LookupError):
        await commands.run(["sleep", "1000"], started=refuse)


# --- commands that can't be started


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
async def test_what_cannot_be_started_is_refused_in_a_sentence(
    commands, tmp_path, argv, options, sentence
):
    for name, mode, text in (
        ("not-executable", 0o644, "#!/bin/sh\n"),
        ("no-interpreter", 0o755, "#!/no/such/shell\n"),
        ("no-program", 0o755, "word\n"),
    ):
        (tmp_path / name).write_text(text, encoding="ascii")
        (tmp_path / name).chmod(mode)
    if "env" in options:
        options = {
            "env": {
                name: value.replace("{tmp}", str(tmp_path))
                for name, value in options["env"].items()
            }
        }
    with pytest.raises(CommandRefused, match=sentence) as caught:
        await commands.run([word.replace("{tmp}", str(tmp_path)) for word in argv], **options)
    assert "\n" not in str(caught.value)
    assert (await commands.run(["echo", "next"])).stdout == b"next\n"
