"""Runs one command that nobody trusts, within as many walls as Linux lets us build.

A program of its own.

It reads its orders (JSON) from stdin, and writes its report (JSON) to a file that the command can't
reach. Nothing of abreast is imported, and little of anything else: it starts for every command.

    jail          waits, keeps the time, ends everything; leads the process group that the warden knows
    `- first      process 1 of its own process namespace, with which every process in it ends
       `- the command, and whatever it starts

Without namespaces there is no `first`: the jail inherits what the command leaves behind (it is a
subreaper), and ends that. Every wall that can't be built is named in the report with the reason;
none is claimed that isn't there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
import time  # noqa: TID251 - a program of its own, out of reach of abreast's clock

TYPE_CHECKING = False  # typing's own costs 2 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    0x1000,
    0x4000,
    0x40000,
)
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE, _RDONLY = -100, 0x8000, 1
_PDEATHSIG, _SUBREAPER, _KEEPCAPS, _NO_NEW_PRIVS, _CAP_AMBIENT, _CAPBSET_DROP = 1, 36, 8, 38, 47, 24
_CAP_VERSION = 0x20080522
_CAPS = 1 << 1 | 1 << 3  # DAC_OVERRIDE and FOWNER, over files of the slot's owner alone
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_NOBODY = 65534
_SHM = "/dev/shm"  # noqa: S108 - of its own
_LAST_CAP = 40

libc = ctypes.CDLL(None, use_errno=True)


class SandboxTimedOut(Exception):
    """The command's time is over."""


class Ended(Exception):
    """We were asked to end."""


def check(result: int) -> None:
    """Raise what a call to the system failed with."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def prctl(option: int, value: int, third: int = 0) -> None:
    """Change something about this process."""
    check(libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0))


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount something."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    check(libc.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode()))


def set_writable(place: str, *, writable: bool, below: bool = False) -> None:
    """Make a mount read-only, and those below it; or writable again."""
    attributes = struct.pack("QQQQ", 0 if writable else _RDONLY, _RDONLY if writable else 0, 0, 0)
    flags = _AT_RECURSIVE if below else 0
    check(
        libc.syscall(
            _SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), flags, attributes, len(attributes)
        )
    )


class Walls:
    """What stands between the command and the rest, and what doesn't, with the reason."""

    def __init__(self) -> None:
        """None yet."""
        self.up: list[str] = []
        self.missing: dict[str, str] = {}

    def build(self, name: str, how: Callable[[], None]) -> bool:
        """Try one; whether it stands."""
        try:
            how()
        except (OSError, AttributeError) as error:
            self.missing[name] = str(getattr(error, "strerror", None) or error)
            return False
        self.up.append(name)
        return True


# --- namespaces -------------------------------------------------------------------------------------------------------


def enter_user_namespace() -> None:
    """Become able to make the other namespaces.

    Root is split in two: itself, and one whose processes are counted.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid:
        check(libc.unshare(NEWUSER))
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    ready, tell = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if not helper:  # only a process outside may give two users to the inside
        try:
            os.close(tell)
            os.read(ready, 1)
            write(f"/proc/{me}/uid_map", f"0 0 1\n1 {_NOBODY} 1")
            write(f"/proc/{me}/gid_map", "0 0 1")
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    try:
        check(libc.unshare(NEWUSER))
    finally:
        os.close(tell)
        os.close(ready)
        status = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    if status:
        raise OSError(status, os.strerror(status))


def write(path: str, text: str) -> None:
    """Write to a file of the kernel's, in one go."""
    opened = os.open(path, os.O_WRONLY)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)


def leave_network() -> None:
    """A network of its own, with nothing in it but itself."""
    check(libc.unshare(NEWNET))
    any_socket = libc.socket(2, 2, 0)
    libc.ioctl(
        any_socket, 0x8914, struct.pack("16sh22x", b"lo", 1)
    )  # SIOCSIFFLAGS, IFF_UP; without it, no less apart
    os.close(any_socket)


def build_view(orders: dict[str, Any]) -> None:
    """All files read-only but those named; no devices but the harmless.

    No sockets of others in /run and /tmp.
    """
    check(libc.unshare(NEWNS))
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    devices = [f"/dev/{name}" for name in _DEVICES]
    kept = {
        path: os.open(path, os.O_PATH)
        for path in [*orders["writable"], *orders["readable"], *devices]
        if os.path.exists(path)
    }
    masks = [
        place for place in orders["masks"] if os.path.isdir(place) and not os.path.islink(place)
    ]
    for place in masks:
        mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    for path in sorted(kept):
        make_target(path, os.fstat(kept[path]).st_mode)
        mount(f"/proc/self/fd/{kept[path]}", path, None, MS_BIND | MS_REC)
        os.close(kept[path])
    for path in orders["hidden"]:
        hide(path)
    if "/dev" in masks:
        os.mkdir(_SHM)
        os.symlink("/proc/self/fd", "/dev/fd")
        mount("tmpfs", _SHM, "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=1777")
    set_writable("/", writable=False, below=True)
    for path in [
        *orders["writable"],
        *(place for place in masks if place != "/dev"),
        *[_SHM] * ("/dev" in masks),
    ]:
        set_writable(path, writable=True)


def make_target(path: str, mode: int) -> None:
    """Something of the right kind to mount on, where a mask has taken it away."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if stat.S_ISDIR(mode):
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def hide(path: str) -> None:
    """Nothing is to be read there."""
    if os.path.isdir(path):
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=755")
    elif os.path.exists(path):
        mount("/dev/null", path, None, MS_BIND)


# --- the command ------------------------------------------------------------------------------------------------------


def become_nobody() -> None:
    """As root, of our own namespace: a user whose processes the kernel counts, who can still use the slot's files."""
    for cap in range(_LAST_CAP + 1):
        if not _CAPS >> cap & 1:
            with contextlib.suppress(OSError):  # an older kernel has fewer
                prctl(_CAPBSET_DROP, cap)
    prctl(_KEEPCAPS, 1)
    os.setgroups([])
    os.setresuid(1, 1, 1)
    header = struct.pack("Ii", _CAP_VERSION, 0)
    check(libc.capset(header, struct.pack("IIIIII", _CAPS, _CAPS, _CAPS, 0, 0, 0)))
    for cap in range(_LAST_CAP + 1):
        if _CAPS >> cap & 1:
            prctl(_CAP_AMBIENT, 2, cap)  # PR_CAP_AMBIENT_RAISE


def limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, never above the one that we have ourselves."""
    most = resource.getrlimit(kind)[1]
    bound = [
        soft if most == resource.RLIM_INFINITY else min(soft, most) for soft in (soft, hard or soft)
    ]
    resource.setrlimit(kind, (bound[0], bound[1]))


def run_command(orders: dict[str, Any], tell: int, *, split: bool) -> NoReturn:
    """Become the command; what prevents it is told."""
    limits = orders["limits"]
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if orders["apart"]:  # else it stays in the group that the warden ends if we are killed
            os.setsid()
        if split:
            become_nobody()
        with contextlib.suppress(OSError):
            prctl(_PDEATHSIG, signal.SIGKILL)
            prctl(_NO_NEW_PRIVS, 1)
        limit(resource.RLIMIT_CORE, 0)
        limit(resource.RLIMIT_FSIZE, limits["file_size"])
        limit(resource.RLIMIT_NPROC, orders["nproc"])
        limit(resource.RLIMIT_CPU, limits["cpu"], limits["cpu"] + 1)
        limit(resource.RLIMIT_NOFILE, limits["files"])
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        os.chdir(orders["cwd"])
        limit(resource.RLIMIT_AS, limits["memory"])
        os.execvpe(orders["argv"][0], orders["argv"], orders["env"])  # noqa: S606 - what we are for
    except BaseException as error:  # noqa: BLE001 - told to the one who asked
        number = getattr(error, "errno", None) or 22
        os.write(
            tell,
            f"{number} {os.strerror(number) if isinstance(error, OSError) else error!r}".encode(),
        )
    os._exit(127)


def start(orders: dict[str, Any]) -> tuple[int, str]:
    """Start the command; its number, and why it could not be if it couldn't."""
    hear, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(hear)
        run_command(orders, tell, split=orders["split"])
    os.close(tell)
    with open(hear, "rb") as pipe:
        return pid, pipe.read().decode(errors="replace")


def be_first(orders: dict[str, Any], report: int, walls: Walls | None = None) -> NoReturn:
    """Be process 1: start the command, wait for it among all that end, and end.

    That ends the rest.
    """
    with contextlib.suppress(OSError):
        prctl(_PDEATHSIG, signal.SIGKILL)
    if walls is None:
        walls = Walls()
        walls.build("processes unseen", see_own_processes)
    pid, refused = start(orders)
    facts = {"refused": refused, **wait_for(pid), "up": walls.up, "missing": walls.missing}
    os.write(report, json.dumps(facts).encode())
    os._exit(0)


def see_own_processes() -> None:
    """A /proc that shows the processes of this namespace.

    In a view of our own, as the jail needs the other one.

    Read-only: root, even split, could otherwise write to what controls the whole machine
    (`/proc/sysrq-trigger`).
    """
    check(libc.unshare(NEWNS))
    mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def wait_for(pid: int) -> dict[str, Any]:
    """Wait until the command has ended, and reap what else does.

    Its status, and the seconds of CPU that it used.
    """
    while True:
        ended, status, used = os.wait4(-1, 0)
        if ended == pid:
            return {"status": status, "own_cpu": used.ru_utime + used.ru_stime}


# --- the jail ---------------------------------------------------------------------------------------------------------


def guard(orders: dict[str, Any]) -> dict[str, Any]:
    """Build the walls, run the command, and end all that is left of it."""
    walls = Walls()
    walls.up += ["process group", "environment", "memory", "cpu", "file size", "no core"]
    began = time.monotonic()
    with contextlib.suppress(OSError):
        prctl(_SUBREAPER, 1)
    facts: dict[str, Any] = {}
    why = "exit"
    try:
        signal.setitimer(signal.ITIMER_REAL, orders["seconds"])
        if "own" in orders["walls"] and build(orders, walls):
            facts = (
                run_first(lambda tell: be_first(orders, tell))
                if orders["apart"]
                else run_beside(orders)
            )
        elif orders["bubblewrap"]:
            facts = run_wrapped(orders, walls)
        if not facts:
            facts = run_beside(count_processes(orders, walls, own=False))
    except SandboxTimedOut:
        why = "timeout"
    except Ended:
        why = "ended"
    signal.setitimer(signal.ITIMER_REAL, 0)
    wall = time.monotonic() - began
    sweep()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    walls.up += facts.pop("up", [])
    walls.missing |= facts.pop("missing", {})
    for name in ("network", "read-only files", "processes apart", "processes unseen"):
        if name not in walls.up:  # a command that was ended can't say what it saw
            walls.missing.setdefault(name, walls.missing.get("user namespace", "not asked for"))
    walls.missing = {name: reason for name, reason in walls.missing.items() if name not in walls.up}
    measured = {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024, "wall": wall}
    return {"why": why, **facts, **measured, "layers": walls.up, "missing": walls.missing}


def run_first(become: Callable[[int], None]) -> dict[str, Any]:
    """Have a child become process 1, with the pipe for its report.

    What it reported, nothing if it didn't.
    """
    hear, tell = os.pipe()
    child = os.fork()
    if not child:
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.close(hear)
        become(tell)
        os._exit(126)
    os.close(tell)
    with open(hear, "rb") as pipe:
        report = pipe.read()
    os.waitpid(child, 0)
    facts: dict[str, Any] = json.loads(report or b"{}")
    return facts


def run_beside(orders: dict[str, Any]) -> dict[str, Any]:
    """Run the command as a child of the jail itself."""
    pid, refused = start({**orders, "apart": False})
    return {"refused": refused, **wait_for(pid)}


def build(orders: dict[str, Any], walls: Walls) -> bool:
    """Build what can be built by ourselves; whether that is anything."""
    if not walls.build("user namespace", enter_user_namespace):
        return False
    walls.build("network", leave_network)
    walls.build("read-only files", lambda: build_view(orders))
    walls.build("processes apart", lambda: check(libc.unshare(NEWPID)))
    walls.build("shared memory apart", lambda: check(libc.unshare(NEWIPC)))
    orders["apart"] = "processes apart" in walls.up
    count_processes(orders, walls, own=True)
    return True


def count_processes(orders: dict[str, Any], walls: Walls, *, own: bool) -> dict[str, Any]:
    """Find out what the kernel's limit on processes has to be.

    In a namespace of our own root is split, and counted.
    """
    orders["split"] = own and not os.getuid()
    orders["nproc"] = orders["limits"]["processes"]
    if os.getuid():
        # The kernel counts all processes of the user in this namespace: in one of our own, the jail
        # and `first`.
        orders["nproc"] += 2 if own else count_tasks(os.getuid())
    if os.getuid() or own:
        walls.up.append("processes")
    else:
        walls.missing["processes"] = "the kernel does not count those of root"
    return orders


# --- bubblewrap: for systems that let it make namespaces, and not us --------------------------------------------------


def run_wrapped(orders: dict[str, Any], walls: Walls) -> dict[str, Any]:
    """Run the command by way of bubblewrap; nothing if that fails."""
    words = [
        orders["bubblewrap"],
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for place in orders["masks"]:
        words += (
            ["--tmpfs", place]
            if place != "/dev" and os.path.isdir(place) and not os.path.islink(place)
            else []
        )
    for path in orders["readable"]:
        words += ["--ro-bind", path, path]
    for path in orders["writable"]:
        words += ["--bind", path, path]
    for path in orders["hidden"]:
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    count_processes(orders, Walls(), own=False)
    orders |= {"apart": True, "split": False, "outside": os.stat("/proc/self/ns/net").st_ino}

    def become(tell: int) -> None:
        orders_in = os.memfd_create("orders", 0)
        os.write(orders_in, json.dumps(orders).encode())
        os.set_inheritable(tell, True)  # noqa: FBT003 - it has no keyword
        inner = [*orders["jail"], str(orders_in), str(tell)]
        with contextlib.suppress(OSError):
            os.execv(words[0], [*words, "--", *inner])  # noqa: S606 - what we are for

    facts = run_first(become)
    if facts:
        walls.up.append("bubblewrap")
        count_processes(orders, walls, own=False)
    else:
        walls.missing["bubblewrap"] = "it failed"
    return facts


def be_wrapped(orders_in: int, tell: int) -> NoReturn:
    """Inside of bubblewrap: believe what we see, not what we asked for."""
    with open(orders_in, "rb") as file:
        file.seek(0)
        orders = json.load(file)
    walls = Walls()
    seen = {
        "network": os.stat("/proc/self/ns/net").st_ino != orders["outside"],
        "read-only files": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        "processes apart": os.getpid() == 1,
        "processes unseen": os.getpid() == 1 and os.readlink("/proc/self") == "1",
    }
    for name, there in seen.items():
        if there:
            walls.up.append(name)
        else:
            walls.missing[name] = "bubblewrap did not give it"
    be_first(orders, tell, walls)


# --- the rest ---------------------------------------------------------------------------------------------------------


def count_tasks(uid: int) -> int:
    """How many processes and threads a user has."""
    count = 0
    for entry in os.scandir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += len(os.listdir(f"{entry.path}/task"))
    return count


def sweep() -> None:
    """Kill our children until there are none: with process 1 its namespace ends, orphans of others become ours."""
    while True:
        for pid in children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    """Those whose parent we are."""
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as file:
        return [int(word) for word in file.read().split()]


def hear_signals() -> None:
    """Turn signals into exceptions, each once: the sweep must not be broken off."""

    def ring(number: int, _: object) -> None:
        for each in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise SandboxTimedOut if number == signal.SIGALRM else Ended

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, ring)


def main() -> None:
    """Do what the orders on stdin say; or, wrapped, those in the file whose number we are given."""
    if sys.argv[1:]:
        be_wrapped(int(sys.argv[1]), int(sys.argv[2]))
    orders = json.loads(sys.stdin.buffer.read())
    report = os.open(orders["report"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    hear_signals()
    with contextlib.suppress(Ended, SandboxTimedOut):  # before there was a command
        facts = guard(orders)
        os.ftruncate(report, 0)  # whatever the command may have put there
        os.write(report, json.dumps(facts).encode())


if __name__ == "__main__":
    main()
