"""Untrusted commands: what they can't do, how they end, and the restrictions reported."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from abreast.core.errors import WorkerDied
from abreast.executors.commands import CommandMissing, CommandRefused
from abreast.worktrees import confinement
from abreast.worktrees.confinement import ResourceLimits, run_confined
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.jails import refuse
from tests.worktrees.repositories import fingerprint, left_in, start_python

WALLS = ["own", "filters", "none"]
PYTHON = [sys.executable, "-I", "-S", "-c"]


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """Measure the coverage of the sandbox, which needs a start-up and a writable directory."""
    if config := os.environ.get("COVERAGE_PROCESS_CONFIG"):
        make_request = confinement._sandbox_request

        def with_place(*args):
            given = make_request(*args)
            given["writable"].append(str(Path.cwd()))
            return given

        monkeypatch.setattr(confinement, "_SANDBOX", ("-m", "abreast.worktrees.sandbox.program"))
        monkeypatch.setattr(confinement, "_sandbox_request", with_place)
        monkeypatch.setattr(
            confinement,
            "sandbox_environment",
            lambda: {"PATH": os.environ["PATH"], "COVERAGE_PROCESS_CONFIG": config},
        )


@pytest.fixture
async def slot(repository, cache):
    before = fingerprint(repository)
    async with open_worktrees(repository, 1) as trees:
        yield trees.slots[0]
        assert list(trees.slots[0].scratch.iterdir()) == []
    assert fingerprint(repository) == before
    assert left_in(cache) == []


@pytest.fixture
async def has_walls(slot):
    """Skip the test if this system does not permit all restrictions."""
    ran = await run_confined(["true"], slot)
    if ran.confinement.missing:
        pytest.skip(f"not on this system: {ran.confinement.missing}")


async def python(code, slot, *args, **options):
    return await run_confined([*PYTHON, code, *map(str, args)], slot, **options)


@pytest.mark.parametrize("walls", WALLS)
async def test_a_command_runs_in_the_slot_and_its_end_is_told(slot, walls):
    code = "import os, sys; print(os.getcwd()); print('no', file=sys.stderr); sys.exit(3)"
    ran = await python(code, slot, walls=walls)
    assert ran.stdout.decode() == f"{slot.path}\n"
    assert ran.stderr == b"no\n"
    assert (ran.exit_code, ran.signal, ran.why, ran.ok) == (3, None, "exit", False)
    assert ran.wall_seconds > 0
    assert ran.cpu_seconds > 0
    assert ran.peak_bytes > 1 << 20
    assert (await run_confined(["true"], slot, walls=walls)).ok
    elsewhere = await run_confined(["pwd"], slot, cwd="pkg", walls=walls)
    assert elsewhere.stdout.decode() == f"{slot.path}/pkg\n"


@pytest.mark.parametrize("walls", WALLS)
async def test_the_environment_has_no_key_and_home_is_empty(slot, walls, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = """
import os, json
environment = dict(os.environ)
print(json.dumps([environment, *(os.listdir(environment[name]) for name in ("HOME", "TMPDIR"))]))
"""
    ran = await python(code, slot, walls=walls, extra_env={"MINE": "1"})
    environment, home, tmp = json.loads(ran.stdout)
    assert environment.keys() - {"LC_CTYPE"} == {"PATH", "LANG", "HOME", "TMPDIR", "MINE"}
    assert environment["HOME"] != os.environ["HOME"]
    assert home == tmp == []
    assert "environment" in ran.confinement


@pytest.mark.usefixtures("has_walls")
async def test_no_key_is_to_be_found_in_other_processes(slot, monkeypatch):
    process = start_python("input()", OPENAI_API_KEY="sk-secret")
    code = """
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: print(open(f'/proc/{pid}/environ').read())
    except OSError: pass
print(sorted(map(int, filter(str.isdigit, os.listdir('/proc')))), os.getpid())
"""
    ran = await python(code, slot)
    process.communicate("\n")
    assert b"sk-secret" not in ran.stdout
    assert ran.stdout.splitlines()[-1] == b"[1, 2] 2"
    assert {"processes apart", "processes unseen"} <= set(ran.confinement.layers)


@pytest.mark.usefixtures("has_walls")
async def test_what_opens_other_doors_is_hidden(slot, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("key")
    (tmp_path / "home/.netrc").write_text("key")
    # With the default, all of /tmp is hidden, and HOME with it.
    monkeypatch.setattr(confinement, "_MASKED", ("/dev",))
    ran = await run_confined(
        ["sh", "-c", "ls $0/.ssh; cat $0/.netrc; ls -A $0", str(tmp_path / "home")], slot
    )
    assert ran.stdout == b".netrc\n.ssh\n"


@pytest.mark.parametrize("walls", WALLS)
async def test_the_network_is_refused_where_that_wall_stands(slot, walls):
    server = socket.create_server(("127.0.0.1", 0))
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
    ran = await python(code, slot, server.getsockname()[1], walls=walls)
    server.close()
    if "seccomp" in ran.confinement:
        assert b"PermissionError" in ran.stderr
    elif "network" in ran.confinement:
        assert b"ConnectionRefusedError" in ran.stderr
        outside = await python(
            "import socket; socket.create_connection(('192.0.2.1', 80), 5)", slot, walls=walls
        )
        assert b"Network is unreachable" in outside.stderr
    else:
        assert ran.ok
        assert ran.confinement.missing["network"]


@pytest.mark.parametrize("walls", WALLS)
async def test_writing_outside_is_refused_where_that_wall_stands(slot, walls, repository, tmp_path):
    (tmp_path / "open").mkdir()
    code = """
import os, sys
for path in sys.argv[1:]:
    try: open(path, 'w').close(); print('written')
    except OSError as error: print(error.strerror)
"""
    targets = [slot.path / "x", tmp_path / "open/x", repository / "README", "/usr/x", "/etc/x"]
    if walls == "none":
        targets[2:] = [tmp_path / "free"]
    ran = await python(code, slot, *targets, writable=[tmp_path / "open"], walls=walls)
    said = ran.stdout.decode().splitlines()
    if "landlock" in ran.confinement:
        assert said == ["written", "written", *["Permission denied"] * 3]
    elif "read-only files" in ran.confinement:
        assert said == ["written", "written", *["Read-only file system"] * 3]
        assert (await python("open('/tmp/abreast-x', 'w')", slot)).ok  # a /tmp of its own
        assert "abreast-x" not in os.listdir("/tmp")  # noqa: PTH208 - Path is refused in async code
    else:
        assert said == ["written"] * 3
        assert ran.confinement.missing["read-only files"]
    assert (tmp_path / "open/x").exists()


@pytest.mark.usefixtures("has_walls")
async def test_walls_cannot_be_taken_down_from_inside(slot, repository):
    script = f"""
        mount -o remount,rw / ; mount -o remount,rw,bind {repository}; umount -l {repository}
        unshare -Urm sh -c 'mount -o remount,rw,bind {repository}; echo > {repository}/README'
        echo > {repository}/README; mknod /dev/shm/disk b 1 0; kill -9 1
        chmod 777 /proc/sys/kernel/hostname
        test -w /proc/sysrq-trigger && echo machine; test -w /sys/kernel/mm && echo kernel
        echo alive
    """
    ran = await run_confined(["sh", "-c", script], slot)
    assert (repository / "README").read_text() == "read\n"
    assert ran.stdout == b"alive\n"


@pytest.mark.usefixtures("has_walls")
async def test_sockets_of_others_in_tmp_are_out_of_reach(slot):
    place = Path(f"/tmp/abreast-test-{os.getpid()}")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(place))
        server.listen()
        code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        ran = await python(code, slot, place)
        os.unlink(place)  # noqa: PTH108 - Path is refused in async code
    assert b"FileNotFoundError" in ran.stderr


@pytest.mark.parametrize("walls", WALLS)
async def test_ten_gigabytes_are_told_as_memory(slot, walls):
    ran = await python(
        "x = bytearray(10 << 30)", slot, walls=walls, limits=ResourceLimits(memory=1 << 30)
    )
    assert (ran.why, ran.exit_code) == ("memory", 1)


@pytest.mark.parametrize(("walls", "ignore"), [("own", True), ("none", False)])
async def test_cpu_without_end_is_told_as_cpu(slot, walls, ignore):
    code = (
        "import signal\nif IGNORE: signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    )
    ran = await python(
        code.replace("IGNORE", str(ignore)), slot, walls=walls, limits=ResourceLimits(cpu=1)
    )
    assert ran.why == "cpu"
    assert ran.exit_code is None
    assert ran.signal == (signal.SIGKILL if ignore else signal.SIGXCPU)
    assert ran.cpu_seconds > 0.5


@pytest.mark.usefixtures("has_walls")
async def test_forks_without_end_are_bounded_and_told_as_processes(slot):
    # Far more than the limit, but not endless: if the restriction fails, this test must not
    # overload the machine.
    code = "import os, signal\nfor _ in range(300): os.fork() or signal.pause()"
    ran = await python(code, slot, limits=ResourceLimits(processes=20, seconds=30))
    assert (ran.why, ran.exit_code) == ("processes", 1)
    count = """
import os, signal
number = 0
try:
    while number < 300 and os.fork(): number += 1
    signal.pause()
except OSError: print(number)
"""
    ran = await python(count, slot, limits=ResourceLimits(processes=20))
    assert ran.stdout == b"19\n"
    assert "processes" in ran.confinement


@pytest.mark.parametrize("walls", WALLS)
async def test_a_file_without_end_is_told_as_file_size(slot, walls):
    code = "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))"
    ran = await python(code, slot, walls=walls, limits=ResourceLimits(file_size=4 << 20))
    assert ran.why == "file size"
    by_signal = await run_confined(
        ["head", "-c", "9M", "/dev/zero"],
        slot,
        walls=walls,
        limits=ResourceLimits(file_size=1 << 20),
    )
    assert by_signal.ok  # a pipe is no file
    assert by_signal.stdout_bytes == 9 << 20
    assert len(by_signal.stdout) == 1 << 20
    script = "head -c 9M /dev/zero > big"
    ran = await run_confined(
        ["sh", "-c", f"exec {script}"], slot, walls=walls, limits=ResourceLimits(file_size=1 << 20)
    )
    assert (ran.why, ran.signal) == ("file size", signal.SIGXFSZ)
    assert (slot.path / "big").stat().st_size == 1 << 20


@pytest.mark.parametrize("walls", WALLS)
async def test_one_that_ignores_sigterm_and_goes_on_is_told_as_timeout(slot, walls, tmp_path):
    pipe, fifo = open_pipe(tmp_path)
    endless = "while :; do sleep 1000; done"
    script = f"trap '' TERM HUP INT; exec 9> $0; ({endless}) & {endless}"
    words = ["sh", "-c", script, fifo]
    ran = await run_confined(
        words, slot, walls=walls, writable=[fifo], limits=ResourceLimits(seconds=0.5)
    )
    assert (ran.why, ran.exit_code, ran.signal) == ("timeout", None, None)
    assert os.read(pipe, 10) == b""  # no process holds it
    os.close(pipe)


DAEMON = """
import os, signal, sys
if os.fork(): os._exit(int(os.read(ready := os.open(sys.argv[2], os.O_RDONLY), 1) != b'.'))
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = os.open(sys.argv[1], os.O_WRONLY)
os.write(os.open(sys.argv[2], os.O_WRONLY), b'.')
os.close(1); os.close(2)
while True: signal.pause()
"""


@pytest.mark.parametrize("walls", WALLS)
async def test_a_daemon_does_not_outlive_its_command(slot, walls, tmp_path):
    pipe, fifo = open_pipe(tmp_path)
    os.mkfifo(tmp_path / "ready")
    options = {"walls": walls, "writable": [fifo, tmp_path / "ready"]}
    ran = await python(DAEMON, slot, fifo, tmp_path / "ready", **options)
    assert ran.ok
    assert os.read(pipe, 10) == b""
    os.close(pipe)


def open_pipe(tmp_path):
    """A pipe that reaches its end only when all processes that opened it have ended."""
    os.mkfifo(tmp_path / "fifo")
    return os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK), str(tmp_path / "fifo")


@pytest.mark.parametrize("walls", WALLS)
async def test_other_signals_are_told_as_killed(slot, walls):
    ran = await python("import os; os.kill(os.getpid(), 9)", slot, walls=walls)
    assert (ran.why, ran.exit_code, ran.signal) == ("killed", None, signal.SIGKILL)


@pytest.mark.parametrize("walls", WALLS)
async def test_cancelled_everything_is_gone_when_the_cancellation_goes_on(
    slot, walls, tmp_path, monkeypatch
):
    # Other commands are killed at once. A sandbox must not be, before it has ended its daemons.
    monkeypatch.setattr("abreast.executors.commands.GRACE", 0.0)
    pipe, fifo = open_pipe(tmp_path)
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe, heard.set)
    script = (
        "trap '' TERM; exec 9> $0; (setsid sh -c 'echo >&9; exec sleep 1000' &) ; "
        "while :; do sleep 1000; done"
    )
    task = asyncio.create_task(
        run_confined(["sh", "-c", script, fifo], slot, walls=walls, writable=[fifo])
    )
    await heard.wait()
    asyncio.get_running_loop().remove_reader(pipe)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert os.read(pipe, 10) == b"\n"
    assert os.read(pipe, 10) == b""
    os.close(pipe)


@pytest.mark.parametrize("walls", WALLS)
async def test_stdin_is_empty_and_programs_give_no_new_privileges(slot, walls):
    ran = await run_confined(
        ["sh", "-c", "cat; readlink /proc/self/fd/0; grep NoNew /proc/self/status"],
        slot,
        walls=walls,
    )
    assert ran.ok
    assert ran.stdout.split() == [b"/dev/null", b"NoNewPrivs:", b"1"]


@pytest.mark.parametrize(
    "bad", [{"seconds": 0}, {"cpu": 1.5}, {"memory": -1}, {"seconds": float("inf")}]
)
def test_what_is_no_limit_is_refused(bad):
    with pytest.raises(ValueError, match="a number above 0"):
        ResourceLimits(**bad)


async def test_two_commands_that_wait_for_each_other_both_end_for_the_loop_waits_for_neither(
    slot, tmp_path
):
    os.mkfifo(tmp_path / "between")
    both = [
        run_confined(
            ["sh", "-c", script, str(tmp_path / "between")], slot, writable=[tmp_path / "between"]
        )
        for script in ('read said < "$0"; echo "heard $said"', 'echo you > "$0"; echo said >&2')
    ]
    heard, said = await asyncio.gather(*both)
    assert (heard.ok, heard.stdout, heard.stderr) == (True, b"heard you\n", b"")
    assert (said.ok, said.stdout, said.stderr) == (True, b"", b"said\n")


async def test_the_output_is_kept_up_to_a_bound_and_counted(slot):
    ran = await run_confined(
        ["sh", "-c", "head -c 100000 /dev/zero; echo oops >&2"],
        slot,
        limits=ResourceLimits(output=10),
    )
    assert (ran.stdout, ran.stdout_bytes, ran.stderr, ran.stderr_bytes) == (
        bytes(10),
        100_000,
        b"oops\n",
        5,
    )


@pytest.mark.parametrize("walls", WALLS)
async def test_what_cannot_be_started_is_said(slot, walls):
    with pytest.raises(CommandMissing, match="no-such-command"):
        await run_confined(["no-such-command"], slot, walls=walls)
    with pytest.raises(CommandRefused, match="Permission denied"):
        await run_confined([str(slot.path / "README")], slot, walls=walls)
    with pytest.raises(CommandRefused, match="a name"):
        await run_confined([], slot, walls=walls)


async def test_limits_that_the_system_has_already_are_not_an_obstacle(slot):
    ran = await run_confined(
        ["sh", "-c", "ulimit -c; ulimit -n"], slot, limits=ResourceLimits(files=1 << 40)
    )
    assert ran.ok
    assert ran.stdout.startswith(b"0\n")


async def test_the_walls_are_named_with_what_is_missing(slot):
    ran = await run_confined(["true"], slot, walls="none")
    assert {"process group", "environment", "memory", "cpu", "file size", "no core"} <= set(
        ran.confinement.layers
    )
    assert {"network", "read-only files", "processes apart"} <= ran.confinement.missing.keys()
    assert not set(ran.confinement.layers) & ran.confinement.missing.keys()
    if not os.getuid():
        assert "root" in ran.confinement.missing["processes"]


async def test_a_jail_that_is_killed_says_so_and_takes_its_command_along(slot, tmp_path):
    pipe, fifo = open_pipe(tmp_path)
    script = "exec 9> $0; kill -9 $PPID; sleep 1000"
    with pytest.raises(WorkerDied, match="its sandbox ended with -9"):
        await run_confined(["sh", "-c", script, fifo], slot, walls="none", writable=[fifo])
    assert os.read(pipe, 10) == b""
    os.close(pipe)


async def test_a_jail_that_is_stopped_is_given_up_after_a_while(slot):
    ran = await run_confined(
        ["sh", "-c", "kill -STOP $PPID; sleep 1000"],
        slot,
        walls="none",
        limits=ResourceLimits(seconds=1000),
        grace=3 - 1000,  # given up after 3 seconds, long before the command's own time is over
    )
    assert ran.why == "timeout"
    assert ran.confinement.layers == ()


async def test_a_report_that_the_command_forged_is_not_believed(slot):
    script = (
        "echo '{}' > $HOME/../report; rm -f $HOME/../report; echo '{}' > $HOME/../report; exit 4"
    )
    ran = await run_confined(["sh", "-c", script], slot, walls="none")
    assert (ran.why, ran.exit_code) == ("exit", 4)


# --- bubblewrap


def use_bubblewrap(tmp_path, monkeypatch, script):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


async def test_bubblewrap_is_asked_for_the_same_walls(slot, tmp_path, monkeypatch, repository):
    script = f'echo "$@" > {tmp_path}/asked; while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    use_bubblewrap(tmp_path, monkeypatch, script)
    ran = await run_confined(["echo", "there"], slot, walls="bubblewrap")
    asked = (tmp_path / "asked").read_text()
    for words in (
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind / /",
        f"--bind {slot.path} {slot.path}",
    ):
        assert words in asked
    assert ran.ok
    assert ran.stdout == b"there\n"
    assert "bubblewrap" in ran.confinement
    # It was only a script: the report has what is in effect, not what was requested.
    assert (
        ran.confinement.missing["network"]
        == ran.confinement.missing["read-only files"]
        == "bubblewrap did not give it"
    )


async def test_where_bubblewrap_fails_the_command_runs_and_that_is_said(
    slot, tmp_path, monkeypatch
):
    use_bubblewrap(tmp_path, monkeypatch, "echo bwrap: no permissions >&2; exit 1")
    ran = await run_confined(["echo", "there"], slot, walls="bubblewrap")
    assert ran.ok
    assert ran.confinement.missing["bubblewrap"] == "it failed"
    assert ran.confinement.missing["network"]


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
async def test_bubblewrap_builds_the_walls(slot, repository):
    ran = await run_confined(
        ["sh", "-c", f"echo > {repository}/README; echo $$; touch here"], slot, walls="bubblewrap"
    )
    assert {"network", "read-only files", "processes apart", "processes unseen"} <= set(
        ran.confinement.layers
    )
    assert ran.stdout == b"2\n"
    assert (slot.path / "here").exists()


# --- systems that permit less


@pytest.mark.parametrize("refused", ["unshare", "mount", "syscall"])
async def test_a_wall_that_the_system_refuses_is_missing_and_the_rest_stands(
    slot, monkeypatch, tmp_path, refused
):
    """One libc function fails in the sandbox, as it does in many containers."""
    refuse(monkeypatch, tmp_path, refused)
    ran = await run_confined(["echo", "there"], slot, walls="own")
    assert ran.stdout == b"there\n"
    assert ran.confinement.missing["read-only files"] == "Operation not permitted"
    if refused != "unshare" and "user namespace" in ran.confinement:
        assert "network" in ran.confinement
    assert not set(ran.confinement.layers) & ran.confinement.missing.keys()


async def test_when_the_driver_is_killed_its_command_ends(repository, tmp_path, unmeasured):
    pipe, fifo = open_pipe(tmp_path)
    program = """
import asyncio, sys
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.confinement import run_confined

async def main():
    async with open_worktrees(sys.argv[1], 1) as trees:
        script = "trap '' TERM; exec 9> $0; (setsid sh -c 'echo >&9; exec sleep 1000' &) ; "
        script += "while :; do sleep 1000; done"
        fifo = sys.argv[2]
        await run_confined(["sh", "-c", script, fifo], trees.slots[0], writable=[fifo])

asyncio.run(main())
"""
    process = start_python(program, repository, fifo)
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe, heard.set)
    await heard.wait()
    asyncio.get_running_loop().remove_reader(pipe)
    assert os.read(pipe, 10) == b"\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    os.set_blocking(pipe, True)
    assert os.read(pipe, 10) == b""
    os.close(pipe)
    async with open_worktrees(repository, 1):
        pass


@pytest.mark.skipif(bool(os.getuid()), reason="only root is split in two")
@pytest.mark.usefixtures("has_walls")
async def test_root_has_power_over_its_own_files_alone(slot):
    for name, owner in (("mine", 0), ("another's", 12345)):
        (slot.path / name).write_text("x")
        (slot.path / name).chmod(0o400)
        os.chown(slot.path / name, owner, owner)
    script = (
        "cat mine; chmod 600 mine && echo y > mine; cat another*; "
        "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status"
    )
    ran = await run_confined(["sh", "-c", script], slot)
    assert b"Permission denied" in ran.stderr
    assert (slot.path / "mine").read_text() == "y\n"
    assert {line.split()[1] for line in ran.stdout.splitlines()[1:]} == {b"000000000000000a"}
