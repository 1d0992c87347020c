"""A program that tries to leave its sandbox in every way; prints a line for each that works.

Started with a JSON object: `outside` is a directory that it may not write to, `secret` a file that
it may not read, `pid` a process of the same user, `port` and `socket` addresses where one listens.
"""

import contextlib
import ctypes
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading

given = json.loads(sys.argv[1])
outside, pid = given["outside"], given["pid"]
kept = f"{outside}/kept"
libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def write(path):
    with open(path, "w") as file:
        file.write("changed")


def read_environment():
    with open(f"/proc/{pid}/environ", "rb") as file:
        if not file.read():
            raise OSError("nothing there")


def read_secret(path):
    with open(path) as file:
        file.read()


def through_a_link():
    os.symlink(kept, "link")
    write("link")


def through_a_thread():
    worked = []

    def work():
        with contextlib.suppress(OSError):
            write(f"{outside}/thread")
            worked.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if not worked:
        raise OSError("refused")


def change(attribute, how):
    """Whether this changes the kept file: some calls only claim to have worked."""
    before = attribute(os.stat(kept))
    how()
    if attribute(os.stat(kept)) == before:
        raise OSError("no change")


def datagram(address):
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"out", address)


def shared_memory():
    check(libc.shmget(0x5EC4E7, 4096, 0))  # made beforehand, outside


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(address)
        one.send(b"out")


def hard_link():
    os.link(kept, "hard")
    write("hard")


def child_process():
    subprocess.run(["sh", "-c", f"echo > {outside}/child"], check=True, capture_output=True)


def limits_of_another():
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def terminal_input():
    with open("/dev/tty", "w") as terminal:
        import fcntl

        fcntl.ioctl(terminal, 0x5412, b"x")


ATTEMPTS = {
    "write": lambda: write(kept),
    "create": lambda: write(f"{outside}/new"),
    "create in /tmp's owner": lambda: write(f"{outside}/../new"),
    "append": lambda: os.open(kept, os.O_WRONLY | os.O_APPEND),
    "truncate": lambda: os.truncate(kept, 0),
    "delete": lambda: os.unlink(kept),
    "rename": lambda: os.rename(kept, f"{outside}/other"),
    "take away": lambda: os.rename(kept, "taken"),
    "put there": lambda: (write("mine"), os.rename("mine", f"{outside}/mine")),
    "mkdir": lambda: os.mkdir(f"{outside}/directory"),
    "fifo": lambda: os.mkfifo(f"{outside}/fifo"),
    "symbolic link": through_a_link,
    "hard link": hard_link,
    "symlink there": lambda: os.symlink("x", f"{outside}/symlink"),
    "thread": through_a_thread,
    "child process": child_process,
    "mode": lambda: change(lambda one: one.st_mode, lambda: os.chmod(kept, 0o777)),
    "mode by descriptor": lambda: change(
        lambda one: one.st_mode, lambda: os.fchmod(os.open(kept, os.O_RDONLY), 0o777)
    ),
    "times": lambda: change(lambda one: one.st_mtime, lambda: os.utime(kept, (1, 1))),
    "owner": lambda: change(lambda one: one.st_uid, lambda: os.chown(kept, 12345, 12345)),
    "attribute": lambda: os.setxattr(kept, "user.x", b"1"),
    "shared mapping": lambda: mmap.mmap(os.open(kept, os.O_RDWR), 1),
    "device": lambda: os.mknod("disk", 0o60600, os.makedev(1, 0)),
    "sysrq": lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY),
    "kernel setting": lambda: os.open("/proc/sys/kernel/hostname", os.O_WRONLY),
    "mount": lambda: check(libc.mount(b"tmpfs", outside.encode(), b"tmpfs", 0, None)),
    # In a namespace of its own it may make more of them, which opens nothing.
    "namespace": lambda: check(libc.unshare(0x10020000) if given["filters"] else -1),
    "chroot": lambda: os.chroot(".") if given["filters"] else check(-1),
    "secret": lambda: read_secret(given["secret"]),
    "masked": lambda: read_secret(given["masked"]),
    "environment of another": read_environment,
    "memory of another": lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR),
    "signal": lambda: os.kill(pid, signal.SIGUSR1),
    "signal to the group": lambda: os.kill(os.getppid(), 0),
    "ptrace": lambda: check(libc.ptrace(16, pid, 0, 0)),
    "limits of another": limits_of_another,
    "priority of another": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "affinity of another": lambda: os.sched_setaffinity(pid, {0}),
    "tcp": lambda: connect(socket.AF_INET, ("127.0.0.1", given["port"])),
    "udp": lambda: connect(socket.AF_INET, ("192.0.2.1", 9), socket.SOCK_DGRAM),
    "unix": lambda: connect(socket.AF_UNIX, given["socket"]),
    "abstract": lambda: connect(socket.AF_UNIX, "\0" + given["abstract"]),
    "netlink": lambda: (
        socket.socket(16, socket.SOCK_RAW, 0).bind((0, 0)) if given["filters"] else check(-1)
    ),
    "datagram": lambda: datagram(given["datagram"]),
    "abstract datagram": lambda: datagram("\0" + given["abstract"] + "-datagram"),
    "shared memory": shared_memory,
    "posix shared memory": lambda: read_secret(given["shm"]),
    "io_uring": lambda: check(libc.syscall(425, 4, bytes(120))) if given["filters"] else check(-1),
    "terminal": terminal_input,
}

for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except (OSError, ValueError, subprocess.CalledProcessError):
        continue
    print(name)
print("tried", len(ATTEMPTS))
