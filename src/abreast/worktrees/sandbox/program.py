"""The sandbox program: runs one untrusted command under every restriction that Linux permits.

It reads its request (JSON) from stdin and writes its report (JSON) to a file that the command can't
reach. It starts for every command, so it imports nothing of abreast and little else. A process that
has imported this module can also fork and call `run_request`, with a function in place of the
command.

    sandbox       waits, enforces the time limit, ends every process; leads the process group that
    |             the supervisor process ends
    `- init       process 1 of a new PID namespace; when it ends, the kernel ends the namespace
       `- the command and all that it starts

Without namespaces there is no `init`: the sandbox is a subreaper, inherits the processes that the
command leaves behind, and kills them. What namespaces do not confine, the command itself gives up
before it starts, by `landlock` and `seccomp`. The report names every restriction that could not be
applied, with the reason, and lists only restrictions that are in effect.
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
import time  # noqa: TID251 - a separate program, which can't use abreast's clock

TYPE_CHECKING = False  # importing typing's constant costs 2 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
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
# DAC_OVERRIDE and FOWNER: in the namespace they apply only to files of the slot's owner.
_CAPS = 1 << 1 | 1 << 3
# DAC_OVERRIDE alone, outside of a namespace, where Landlock limits what it applies to.
_FILTERED_CAPS = 1 << 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# Restrictions of namespaces that filters can replace: the part of `seccomp` for each.
_FILTERED = {
    "network": "network",
    "read-only files": "files",
    "processes apart": "processes",
    "shared memory apart": "shared memory",
}
_NOBODY_UID = 65534
_SHM = "/dev/shm"  # noqa: S108 - a new tmpfs is mounted there
_LAST_CAP = 40

libc = ctypes.CDLL(None, use_errno=True)


class SandboxTimedOut(Exception):
    """The command has reached its time limit."""


class SandboxTerminated(Exception):
    """The sandbox received SIGTERM."""


def check(result: int) -> None:
    """Raise OSError with errno if a system call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def prctl(option: int, value: int, third: int = 0) -> None:
    """Change an attribute of this process."""
    check(libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0))


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount a file system, or change a mount."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    check(libc.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode()))


def set_writable(place: str, *, writable: bool, below: bool = False) -> None:
    """Make a mount writable or read-only; with `below`, also all mounts beneath it."""
    attributes = struct.pack("QQQQ", 0 if writable else _RDONLY, _RDONLY if writable else 0, 0, 0)
    flags = _AT_RECURSIVE if below else 0
    check(
        libc.syscall(
            _SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), flags, attributes, len(attributes)
        )
    )


class Restrictions:
    """The restrictions in effect for the command, and those that failed, with the reason."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.missing: dict[str, str] = {}

    def apply(self, name: str, how: Callable[[], None]) -> bool:
        """Apply one restriction; returns whether it is in effect."""
        try:
            how()
        except (OSError, AttributeError) as error:
            self.missing[name] = str(getattr(error, "strerror", None) or error)
            return False
        self.applied.append(name)
        return True


# --- namespaces ---


def enter_user_namespace() -> None:
    """Enter a user namespace, which gives the right to make the other namespaces.

    For root, two users are mapped: root itself, and a second one whose processes the kernel counts.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid:
        check(libc.unshare(NEWUSER))
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    ready, write_end = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if not helper:  # only a process outside of the namespace may map two users into it
        try:
            os.close(write_end)
            os.read(ready, 1)
            write(f"/proc/{me}/uid_map", f"0 0 1\n1 {_NOBODY_UID} 1")
            write(f"/proc/{me}/gid_map", "0 0 1")
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    try:
        check(libc.unshare(NEWUSER))
    finally:
        os.close(write_end)
        os.close(ready)
        status = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    if status:
        raise OSError(status, os.strerror(status))


def write(path: str, text: str) -> None:
    """Write all of `text` to a file of the kernel in a single call."""
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())


def unshare_network() -> None:
    """Enter a network namespace that has only a loopback interface."""
    check(libc.unshare(NEWNET))
    any_socket = libc.socket(2, 2, 0)
    # SIOCSIFFLAGS, IFF_UP. The result is not checked: without loopback it is isolated as well.
    libc.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 1))
    os.close(any_socket)


def build_filesystem_view(request: dict[str, Any]) -> None:
    """Make all files read-only, except those that the request lists as writable.

    /dev has only the devices of `_DEVICES`. The masked directories (/run, /tmp and others) are
    empty, so that the sockets of other processes are out of reach.
    """
    check(libc.unshare(NEWNS))
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    devices = [f"/dev/{name}" for name in _DEVICES]
    kept = {
        path: os.open(path, os.O_PATH)
        for path in [*request["writable"], *request["readable"], *devices]
        if os.path.exists(path)
    }
    masks = [
        place for place in request["masks"] if os.path.isdir(place) and not os.path.islink(place)
    ]
    for place in masks:
        mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    for path in sorted(kept):
        make_target(path, os.fstat(kept[path]).st_mode)
        mount(f"/proc/self/fd/{kept[path]}", path, None, MS_BIND | MS_REC)
        os.close(kept[path])
    for path in request["hidden"]:
        hide(path)
    if "/dev" in masks:
        os.mkdir(_SHM)
        os.symlink("/proc/self/fd", "/dev/fd")
        mount("tmpfs", _SHM, "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=1777")
    set_writable("/", writable=False, below=True)
    for path in [
        *request["writable"],
        *(place for place in masks if place != "/dev"),
        *[_SHM] * ("/dev" in masks),
    ]:
        set_writable(path, writable=True)


def make_target(path: str, mode: int) -> None:
    """Create a mount point of the right kind if a mask has hidden the original."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if stat.S_ISDIR(mode):
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def hide(path: str) -> None:
    """Hide the content of a file or directory."""
    if os.path.isdir(path):
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=755")
    elif os.path.exists(path):
        mount("/dev/null", path, None, MS_BIND)


# --- the command ---


def drop_privileges(user: int, capabilities: int) -> None:
    """Change from root to a user whose processes the kernel counts.

    These capabilities are kept, so that this user can still use the slot's files.
    """
    for cap in range(_LAST_CAP + 1):
        if not capabilities >> cap & 1:
            with contextlib.suppress(OSError):  # an older kernel has fewer capabilities
                prctl(_CAPBSET_DROP, cap)
    prctl(_KEEPCAPS, 1)
    os.setgroups([])
    os.setresuid(user, user, user)
    header = struct.pack("Ii", _CAP_VERSION, 0)
    kept = struct.pack("IIIIII", *[capabilities] * 3, 0, 0, 0)
    check(libc.capset(header, kept))
    for cap in range(_LAST_CAP + 1):
        if capabilities >> cap & 1:
            prctl(_CAP_AMBIENT, 2, cap)  # PR_CAP_AMBIENT_RAISE


def become_second_user(split: tuple[int, int], restrictions: Restrictions, *, needed: bool) -> None:
    """Drop the privileges of root. Raises OSError if that fails and is `needed`."""
    applied = restrictions.apply("processes", lambda: drop_privileges(*split))
    if needed and not applied:
        raise PermissionError(1, restrictions.missing["processes"])


def load_sibling(name: str) -> ModuleType:
    """Import a module of this directory, which is no package when this is a program."""
    import importlib

    if __package__:
        return importlib.import_module(f"{__package__}.{name}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


def apply_filters(request: dict[str, Any], restrictions: Restrictions) -> None:
    """Confine this process by Landlock and seccomp in what namespaces have not confined it in."""
    lacking = request["lacking"]
    parts = [_FILTERED[name] for name in lacking]
    landlock, seccomp = load_sibling("landlock"), load_sibling("seccomp")
    version = 0

    def restrict_files_and_signals() -> None:
        nonlocal version
        version = landlock.version()
        landlock.restrict(
            files="files" in parts,
            writable=request["writable"],
            readable=request["readable"],
            # A terminal would be the user's own: there is no new session.
            devices=[f"/dev/{name}" for name in _DEVICES if name != "tty"],
            closed=[*request["masks"], *request["hidden"]],
        )

    def refuse_system_calls() -> None:
        seccomp.restrict(parts, truncate=version < landlock.TRUNCATE_VERSION)

    restrictions.apply("landlock", restrict_files_and_signals)
    restrictions.apply("seccomp", refuse_system_calls)
    unfit = restrictions.missing.get("seccomp", "")
    for name in lacking:
        why = unfit
        if name != "network":
            why = why or restrictions.missing.get("landlock", "")
        if name == "processes apart" and not why and version < landlock.SIGNAL_VERSION:
            why = f"Landlock here is version {version}; from 6 on it refuses signals to others"
        if why:
            restrictions.missing[name] = why
        else:
            restrictions.applied.append(name)


def set_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a resource limit, never above this process's own hard limit."""
    most = resource.getrlimit(kind)[1]
    bound = [
        soft if most == resource.RLIM_INFINITY else min(soft, most) for soft in (soft, hard or soft)
    ]
    resource.setrlimit(kind, (bound[0], bound[1]))


def run_command(request: dict[str, Any], write_end: int) -> NoReturn:
    """Replace this process by the command.

    Writes to `write_end` a line with the filters that it is under, then what prevented it. With
    `become` in the request, that function is called instead; it closes `write_end`.
    """
    limits, split, filters = request["limits"], request["split"], Restrictions()
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Without a namespace it stays in the process group that the supervisor ends if the sandbox
        # is killed.
        if request["apart"]:
            os.setsid()
        if split:
            become_second_user(split, filters, needed=not request["lacking"])
        with contextlib.suppress(OSError):
            prctl(_PDEATHSIG, signal.SIGKILL)
            prctl(_NO_NEW_PRIVS, 1)
        for kind, *bounds in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, limits["file_size"]),
            (resource.RLIMIT_NPROC, request["nproc"]),
            (resource.RLIMIT_CPU, limits["cpu"], limits["cpu"] + 1),
            (resource.RLIMIT_NOFILE, limits["files"]),
        ):
            set_limit(kind, *bounds)
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        os.chdir(request["cwd"])
        if request["lacking"]:
            apply_filters(request, filters)
        set_limit(resource.RLIMIT_AS, limits["memory"])
        facts = {"applied": filters.applied, "missing": filters.missing}
        os.write(write_end, json.dumps(facts).encode() + b"\n")
        if "become" in request:
            request["become"](write_end)
        argv, env = request["argv"], request["env"]
        os.execvpe(argv[0], argv, env)  # noqa: S606 - argv, no shell
    except BaseException as error:  # noqa: BLE001 - reported by the pipe
        number = getattr(error, "errno", None) or 22
        os.write(
            write_end,
            f"{number} {os.strerror(number) if isinstance(error, OSError) else error!r}".encode(),
        )
    os._exit(127)


def start_command(request: dict[str, Any], restrictions: Restrictions) -> tuple[int, str]:
    """Start the command; returns its pid, and the error if it could not be started, else ''.

    Adds the filters that it is under to the restrictions.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read_end)
        run_command(request, write_end)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        line, _, refused = pipe.read().decode(errors="replace").rpartition("\n")
    facts = json.loads(line or "{}")
    restrictions.applied += facts.get("applied", [])
    restrictions.missing |= facts.get("missing", {})
    return pid, refused


def run_as_init(
    request: dict[str, Any], report: int, restrictions: Restrictions | None = None
) -> NoReturn:
    """Be process 1 of the namespace: start the command, reap children until it ends, then exit.

    When process 1 exits, the kernel kills all other processes of the namespace.
    """
    with contextlib.suppress(OSError):
        prctl(_PDEATHSIG, signal.SIGKILL)
    if restrictions is None:
        restrictions = Restrictions()
        restrictions.apply("processes unseen", mount_own_proc)
    request["lacking"] = lacking_in(request, restrictions, request["applied"])
    pid, refused = start_command(request, restrictions)
    facts = {
        "refused": refused,
        **wait_for(pid),
        "applied": restrictions.applied,
        "missing": restrictions.missing,
    }
    os.write(report, json.dumps(facts).encode())
    os._exit(0)


def mount_own_proc() -> None:
    """Mount a /proc that shows only the processes of this namespace.

    It is in a mount namespace of its own, as the sandbox process needs the outer /proc. It is
    read-only: root, even with two mapped users, could otherwise write to files that control the
    whole machine (`/proc/sysrq-trigger`).
    """
    check(libc.unshare(NEWNS))
    mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def wait_for(pid: int) -> dict[str, Any]:
    """Reap children until the command has ended.

    Returns its wait status and the seconds of CPU that it used.
    """
    while True:
        ended, status, used = os.wait4(-1, 0)
        if ended == pid:
            return {"status": status, "own_cpu": used.ru_utime + used.ru_stime}


# --- the sandbox process ---


def run_sandboxed(request: dict[str, Any]) -> dict[str, Any]:
    """Apply the restrictions, run the command, and kill all processes that are left of it."""
    restrictions = Restrictions()
    restrictions.applied += [
        "process group",
        "environment",
        "memory",
        "cpu",
        "file size",
        "no core",
    ]
    began = time.monotonic()
    with contextlib.suppress(OSError):
        prctl(_SUBREAPER, 1)
    facts: dict[str, Any] = {}
    why = "exit"
    try:
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        if "own" in request["walls"] and enter_namespaces(request, restrictions):
            request["applied"] = restrictions.applied
            facts = (
                fork_init(lambda write_end: run_as_init(request, write_end))
                if request["apart"]
                else run_as_child(request, restrictions)
            )
        elif request["bubblewrap"]:
            facts = run_in_bubblewrap(request, restrictions)
        if not facts:
            facts = run_as_child(set_process_limit(request, restrictions, own=False), restrictions)
    except SandboxTimedOut:
        why = "timeout"
    except SandboxTerminated:
        why = "ended"
    signal.setitimer(signal.ITIMER_REAL, 0)
    wall = time.monotonic() - began
    kill_children()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    restrictions.applied += facts.pop("applied", [])
    restrictions.missing |= facts.pop("missing", {})
    for name in ("network", "read-only files", "processes apart", "processes unseen"):
        # A command that was killed has reported none.
        reason = restrictions.missing.get("user namespace", "not asked for")
        restrictions.missing.setdefault(name, reason)
    restrictions.missing = {
        name: reason
        for name, reason in restrictions.missing.items()
        if name not in restrictions.applied
    }
    measured = {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024, "wall": wall}
    return {
        "why": why,
        **facts,
        **measured,
        "layers": restrictions.applied,
        "missing": restrictions.missing,
    }


def fork_init(become: Callable[[int], None]) -> dict[str, Any]:
    """Fork a child that becomes process 1 and writes its report to a pipe.

    Returns the report, empty if there is none.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.close(read_end)
        become(write_end)
        os._exit(126)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        report = pipe.read()
    os.waitpid(child, 0)
    facts: dict[str, Any] = json.loads(report or b"{}")
    return facts


def lacking_in(
    request: dict[str, Any], restrictions: Restrictions, applied: list[str]
) -> list[str]:
    """Return what filters have to confine, as nothing else does."""
    if not request["filters"]:
        return []
    return [name for name in _FILTERED if name not in [*restrictions.applied, *applied]]


def run_as_child(request: dict[str, Any], restrictions: Restrictions) -> dict[str, Any]:
    """Run the command as a direct child of the sandbox process."""
    lacking = lacking_in(request, restrictions, [])
    pid, refused = start_command({**request, "apart": False, "lacking": lacking}, restrictions)
    return {"refused": refused, **wait_for(pid)}


def enter_namespaces(request: dict[str, Any], restrictions: Restrictions) -> bool:
    """Make the namespaces without bubblewrap; returns whether there is a user namespace."""
    if not restrictions.apply("user namespace", enter_user_namespace):
        return False
    restrictions.apply("network", unshare_network)
    restrictions.apply("read-only files", lambda: build_filesystem_view(request))
    restrictions.apply("processes apart", lambda: check(libc.unshare(NEWPID)))
    restrictions.apply("shared memory apart", lambda: check(libc.unshare(NEWIPC)))
    request["apart"] = "processes apart" in restrictions.applied
    set_process_limit(request, restrictions, own=True)
    return True


def set_process_limit(
    request: dict[str, Any], restrictions: Restrictions, *, own: bool
) -> dict[str, Any]:
    """Compute the value for RLIMIT_NPROC.

    In our own user namespace (`own`) and under filters, the command of root runs as a second user,
    whose processes the kernel counts: `split` has this user and the capabilities that it keeps.
    """
    second: tuple[int, int] | None = None
    if own:
        second = (1, _CAPS)
    elif request["filters"]:
        second = (_NOBODY_UID, _FILTERED_CAPS)
    request["split"] = None if os.getuid() else second
    request["nproc"] = request["limits"]["processes"]
    user = os.getuid() or (_NOBODY_UID if second and not own else 0)
    if user:
        # The kernel counts all processes of the user in this namespace. In our own namespace these
        # include two more: the sandbox and `init`.
        request["nproc"] += 2 if own else count_tasks(user)
    if os.getuid():
        restrictions.applied.append("processes")
    elif not second:
        restrictions.missing["processes"] = "the kernel does not count those of root"
    return request


# --- bubblewrap: for systems that permit namespaces to it, but not to this program ---


def run_in_bubblewrap(request: dict[str, Any], restrictions: Restrictions) -> dict[str, Any]:
    """Run the command by bubblewrap; returns an empty report if that fails."""
    words = [
        request["bubblewrap"],
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for place in request["masks"]:
        words += (
            ["--tmpfs", place]
            if place != "/dev" and os.path.isdir(place) and not os.path.islink(place)
            else []
        )
    for path in request["readable"]:
        words += ["--ro-bind", path, path]
    for path in request["writable"]:
        words += ["--bind", path, path]
    for path in request["hidden"]:
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    set_process_limit(request, Restrictions(), own=False)
    outside = os.stat("/proc/self/ns/net").st_ino
    request |= {"apart": True, "split": None, "applied": [], "outside": outside}

    def become(write_end: int) -> None:
        request_fd = os.memfd_create("request", 0)
        plain = {name: one for name, one in request.items() if name != "become"}
        os.write(request_fd, json.dumps(plain).encode())
        os.set_inheritable(write_end, True)  # noqa: FBT003 - the function takes no keyword
        inner = [*request["sandbox"], str(request_fd), str(write_end)]
        with contextlib.suppress(OSError):
            os.execv(words[0], [*words, "--", *inner])  # noqa: S606 - argv, no shell

    facts = fork_init(become)
    if facts:
        restrictions.applied.append("bubblewrap")
        set_process_limit(request, restrictions, own=False)
    else:
        restrictions.missing["bubblewrap"] = "it failed"
    return facts


def run_inside_bubblewrap(request_fd: int, write_end: int) -> NoReturn:
    """Run inside of bubblewrap, and report the restrictions found there, not those requested."""
    with open(request_fd, "rb") as file:
        file.seek(0)
        request = json.load(file)
    restrictions = Restrictions()
    seen = {
        "network": os.stat("/proc/self/ns/net").st_ino != request["outside"],
        "read-only files": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        "processes apart": os.getpid() == 1,
        "processes unseen": os.getpid() == 1 and os.readlink("/proc/self") == "1",
    }
    restrictions.applied += [name for name, there in seen.items() if there]
    restrictions.missing = {
        name: "bubblewrap did not give it" for name, there in seen.items() if not there
    }
    run_as_init(request, write_end, restrictions)


# --- processes and signals ---


def count_tasks(uid: int) -> int:
    """Count the processes and threads of a user."""
    count = 0
    for entry in os.scandir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += len(os.listdir(f"{entry.path}/task"))
    return count


def kill_children() -> None:
    """Kill the children of this process until there are none.

    With process 1 its whole namespace ends; orphaned grandchildren become our children.
    """
    me = os.getpid()
    while True:
        with open(f"/proc/{me}/task/{me}/children") as file:
            pids = [int(word) for word in file.read().split()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def raise_on_signals() -> None:
    """Make SIGALRM and SIGTERM raise an exception, only once in all.

    Further signals are ignored, so that they can't interrupt the killing of the children.
    """

    def raise_once(number: int, _: object) -> None:
        for each in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise SandboxTimedOut if number == signal.SIGALRM else SandboxTerminated

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, raise_once)


def main() -> None:
    """Run the request from stdin.

    Inside of bubblewrap: the request in the file whose descriptor is the first argument.
    """
    if sys.argv[1:]:
        run_inside_bubblewrap(int(sys.argv[1]), int(sys.argv[2]))
    run_request(json.loads(sys.stdin.buffer.read()))


def run_request(request: dict[str, Any]) -> None:
    """Run the command of a request, and write the report to its file."""
    report = os.open(request["report"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    raise_on_signals()
    with contextlib.suppress(SandboxTerminated, SandboxTimedOut):  # before the command was started
        facts = run_sandboxed(request)
        os.ftruncate(report, 0)  # remove anything that the command may have written there
        os.write(report, json.dumps(facts).encode())


if __name__ == "__main__":
    main()
