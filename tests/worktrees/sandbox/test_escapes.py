"""No way out of the sandbox, by namespaces or by the kernel's filters."""

import contextlib
import ctypes
import errno
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from abreast.worktrees import confinement
from abreast.worktrees.confinement import ResourceLimits, probe_confinement, run_confined
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.sandbox import landlock, seccomp
from tests.worktrees.repositories import start_python

PROGRAM = Path(__file__).with_name("escapes.py")
SHM_KEY, SHM_CREATE, SHM_REMOVE = 0x5EC4E7, 0o1600, 0
FILTERED = {"network", "read-only files", "processes apart", "shared memory apart", "processes"}


@pytest.fixture
async def slot(repository, cache):
    async with open_worktrees(repository, 1) as trees:
        yield trees.slots[0]


@pytest.fixture
def listeners(tmp_path):
    """Sockets of every kind that a command could reach, and where."""
    name = f"abreast-test-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        stream = {
            "socket": str(tmp_path / "stream"),
            "abstract": name,
        }
        datagram = {"datagram": str(tmp_path / "datagram")}
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for kind, address in (
            (socket.SOCK_STREAM, stream["socket"]),
            (socket.SOCK_STREAM, f"\0{name}"),
            (socket.SOCK_DGRAM, datagram["datagram"]),
            (socket.SOCK_DGRAM, f"\0{name}-datagram"),
        ):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            one.bind(address)
            if kind == socket.SOCK_STREAM:
                one.listen()
        yield {**stream, **datagram, "port": tcp.getsockname()[1]}


@pytest.fixture
def shared_memory():
    """Shared memory of both kinds, of another process."""
    libc = ctypes.CDLL(None)
    number = libc.shmget(SHM_KEY, 4096, SHM_CREATE)
    place = Path(f"/dev/shm/abreast-test-{os.getpid()}")
    place.write_text("shared")
    yield str(place)
    place.unlink()
    libc.shmctl(number, SHM_REMOVE, None)


@pytest.fixture
def prey():
    """A process of the same user with a key in its environment."""
    process = start_python("input()", OPENAI_API_KEY="sk-secret")
    yield process
    process.communicate("\n")
    assert process.returncode == 0


@pytest.fixture
def targets(listeners, shared_memory, prey):
    """All that a command could reach outside but files."""
    return {**listeners, "shm": shared_memory, "pid": prey.pid}


@pytest.mark.parametrize("walls", ["own", "filters"])
async def test_there_is_no_way_out(slot, walls, tmp_path, targets, monkeypatch):
    # With the default, all of /tmp is closed, and with it the places that are to be seen and not
    # written to.
    monkeypatch.setattr(confinement, "_MASKED", ("/dev", "/run", str(tmp_path / "masked")))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home/.ssh", "outside", "masked"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/.ssh/id", "outside/kept", "masked/file"):
        (tmp_path / name).write_text("before")
    before = os.stat(tmp_path / "outside/kept")  # noqa: PTH116 - Path is refused in async code
    given = {
        **targets,
        "outside": str(tmp_path / "outside"),
        "secret": str(tmp_path / "home/.ssh/id"),
        "masked": str(tmp_path / "masked/file"),
        "filters": walls == "filters",
    }
    ran = await run_confined(
        [sys.executable, "-I", "-S", str(PROGRAM), json.dumps(given)], slot, walls=walls
    )
    needed = {"user namespace"} if walls == "own" else {"landlock", "seccomp"}
    if missing := needed - set(ran.confinement.layers):
        pytest.skip(f"not on this system: {missing}")
    assert ran.ok, ran
    allowed = [b"unix", b"datagram"] if walls == "own" else []  # they are not in a masked place
    said = [line for line in ran.stdout.splitlines() if line not in allowed]
    assert said == [b"tried 49"]
    after = os.stat(tmp_path / "outside/kept")  # noqa: PTH116 - Path is refused in async code
    assert after[:6] == before[:6]
    assert after.st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]
    assert (tmp_path / "outside/kept").read_text() == "before"


async def test_what_a_program_needs_works_under_filters(slot):
    code = """
import asyncio, multiprocessing, os, shutil, signal, socket, subprocess, sys, tempfile, threading
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
os.mkdir("d"); open("d/a", "w").close(); os.rename("d/a", "b"); os.link("b", "c"); os.remove("c")
shutil.copy2("b", "d/copied"); os.truncate("b", 0); shutil.rmtree("d")
asyncio.run(asyncio.sleep(0))
one, other = socket.socketpair(); one.send(b"x"); assert other.recv(1) == b"x"
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
with subprocess.Popen(["sleep", "1000"]) as child:
    child.kill()
assert subprocess.run(["sh", "-c", "kill -9 $$"]).returncode == -9
open("/dev/null", "w").write("x"); open("/dev/urandom", "rb").read(1)
import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(1)
os.sched_setaffinity(0, os.sched_getaffinity(0))
print("all")
"""
    ran = await run_confined([sys.executable, "-c", code], slot, walls="filters")
    assert (ran.stdout, ran.stderr) == (b"all\n", b"")


async def test_more_processes_than_allowed_are_refused_under_filters(slot):
    code = """
import os, time
made = 0
try:
    while made < 200:
        if not os.fork():
            time.sleep(1000)
        made += 1
except BlockingIOError:
    print("refused")
"""
    ran = await run_confined(
        [sys.executable, "-I", "-S", "-c", code],
        slot,
        walls="filters",
        limits=ResourceLimits(processes=20),
    )
    assert ran.stdout == b"refused\n"
    assert "processes" in ran.confinement


async def test_the_restrictions_are_named_by_what_they_confine(slot):
    ran = await run_confined(["true"], slot, walls="filters")
    if "landlock" not in ran.confinement:
        pytest.skip(f"not on this system: {ran.confinement.missing}")
    assert set(ran.confinement.layers) >= FILTERED
    assert ran.confinement.missing.keys() == {"processes unseen"}


def test_the_probe_says_what_a_command_would_be_confined_by():
    found = probe_confinement()
    assert {"memory", "cpu", "environment"} <= set(found.layers)
    assert not set(found.layers) & found.missing.keys()


# --- kernels that have less


def in_a_fork(work):
    """Run a function in a fork, as restrictions can't be taken back; return what it printed."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write_end, str(work()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_an_older_landlock_is_asked_only_for_what_it_knows(version, monkeypatch, tmp_path):
    monkeypatch.setattr(landlock, "version", lambda: version)
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)

    def work():
        landlock.restrict(files=True, writable=[str(tmp_path)])
        (tmp_path / "inside").write_text("x")
        try:
            (tmp_path.parent / "outside").write_text("x")
        except PermissionError:
            return "refused"
        return "written"

    assert in_a_fork(lambda: (ctypes.CDLL(None).prctl(38, 1, 0, 0, 0), work())[1]) == "refused"
    assert in_a_fork(lambda: landlock.restrict(files=False)) == "None"


def test_a_machine_of_another_kind_has_no_filter():
    with pytest.raises(seccomp.SystemCallsUnknown, match="riscv64"):
        seccomp.FilterProgram("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_that_is_refused_has_a_number(machine):
    libseccomp = pytest.importorskip("ctypes.util").find_library("seccomp")
    if libseccomp is None:
        pytest.skip("libseccomp is not installed")
    resolve = ctypes.CDLL(libseccomp).seccomp_syscall_resolve_name_arch
    architecture, column = seccomp._MACHINES[machine]
    for name, numbers in seccomp._CALLS.items():
        found = resolve(ctypes.c_uint32(architecture), name.encode())
        assert (found if found >= 0 else None) == numbers[column], name


async def test_a_kernel_without_filters_is_said_to_have_none(slot, tmp_path, monkeypatch):
    from tests.worktrees.jails import refuse

    refuse(monkeypatch, tmp_path, "unshare")
    for module in ("landlock", "seccomp"):
        path = tmp_path / f"sandbox/{module}.py"
        path.write_text(
            path.read_text().replace(
                "libc = ctypes.CDLL(None, use_errno=True)",
                "class Libc:\n"
                "    def __getattr__(self, _):\n"
                f"        return lambda *_: (ctypes.set_errno({errno.ENOSYS}), -1)[1]\n"
                "libc = Libc()",
            )
        )
    monkeypatch.setattr(confinement.shutil, "which", lambda _: None)
    ran = await run_confined(["/bin/echo", "there"], slot)
    assert ran.stdout == b"there\n"
    for name in ("landlock", "seccomp", "network", "read-only files", "processes apart"):
        assert ran.confinement.missing[name] == "Function not implemented"
