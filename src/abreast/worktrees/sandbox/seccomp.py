"""Refuses system calls by seccomp, which needs neither root nor namespaces.

It closes what Landlock leaves open. System calls that this module does not know, those of later
kernels, are refused as unknown.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # importing typing's constant costs 2 ms
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# By machine: its number for the kernel, and its place in the tables below.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_LAST_KNOWN = 462  # the last system call that was considered here; the same on both machines
_X32 = 0x40000000  # x86_64 has its system calls twice; the second set begins here

# By name: the numbers on x86_64 and aarch64; None where there is no such call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "truncate": (76, 45),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "socketpair": (53, 199),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "ioctl": (16, 29),
    "iopl": (172, None),
    "ioperm": (173, None),
    "lookup_dcookie": (212, 18),
}
# They have no effect and report success: programs that copy a file set its mode and times, too.
_IGNORED = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
_REFUSED: dict[str, tuple[str, ...]] = {
    "always": (
        *("bpf", "keyctl", "add_key", "request_key", "userfaultfd", "lookup_dcookie"),
        *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
        *("reboot", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "syslog"),
        *("sethostname", "setdomainname", "vhangup", "iopl", "ioperm", "unshare", "setns"),
    ),
    "files": (
        *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
        *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen"),
        *("fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at"),
        *("quotactl", "quotactl_fd", "swapon", "swapoff", "acct"),
    ),
    "network": ("socket", "connect", "bind", "listen", "accept", "accept4"),
    "processes": (
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
        *("process_madvise", "migrate_pages", "move_pages"),
    ),
    "shared memory": (
        *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
        *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
    ),
}
# As if the kernel lacked them. Sockets could be made by io_uring unseen; the flags of clone3 can't
# be looked at, and the C library then calls clone.
_UNKNOWN = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")
# These may change only the caller: by name, the place of the argument that must be 0.
_OWN_ONLY = {
    "prlimit64": 0,
    "setpriority": 1,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "ioprio_set": 1,
}
_NEW_NAMESPACES = 0x7E020000  # all flags of clone that make a namespace
_SOCKET_TYPE, _STREAM = 0xF, 1
# Commands of ioctl: typing into a terminal, and setting attributes of a file.
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FILE_ATTRIBUTES = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS (two), FS_IOC_FSSETXATTR

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_SET_SECCOMP, _FILTER_MODE = 22, 2
_INSTRUCTION = "HBBI"

libc = ctypes.CDLL(None, use_errno=True)


class SystemCallsUnknown(OSError):
    """The numbers of system calls are not known for this machine."""


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack(_INSTRUCTION, code, yes, no, value)


class FilterProgram:
    """The instructions of a filter, for one machine."""

    def __init__(self, machine: str) -> None:
        """Begin a filter. Raises SystemCallsUnknown."""
        if machine not in _MACHINES:
            raise SystemCallsUnknown(errno.ENOSYS, f"system calls of {machine} are not known")
        architecture, self._column = _MACHINES[machine]
        unknown = _instruction(_RETURN, _ERRNO | errno.ENOSYS)
        self._code = [
            _instruction(_LOAD, _ARCH_OFFSET),
            _instruction(_EQUAL, architecture, 1, 0),
            unknown,  # programs of another machine's kind, such as 32 bits
            _instruction(_LOAD, _NUMBER_OFFSET),
            _instruction(_AT_LEAST, _LAST_KNOWN + 1, 0, 1),
            unknown,
        ]
        if machine == "x86_64":
            self._code += [_instruction(_AT_LEAST, _X32, 0, 1), unknown]

    def answer(self, names: Iterable[str], number: int) -> None:
        """Answer these calls with an error; 0 is success."""
        for name in names:
            if (call := _CALLS[name][self._column]) is not None:
                self._code += [
                    _instruction(_EQUAL, call, 0, 1),
                    _instruction(_RETURN, _ERRNO | number),
                ]

    def refuse_unless(self, name: str, argument: int, test: bytes, mask: int | None = None) -> None:
        """Refuse a call unless `test`, a jump over one instruction, holds for an argument."""
        block = [_instruction(_LOAD, _ARGS_OFFSET + 8 * argument)]
        if mask is not None:
            block.append(_instruction(_AND, mask))
        block += [
            test,
            _instruction(_RETURN, _ERRNO | errno.EPERM),
            _instruction(_LOAD, _NUMBER_OFFSET),
        ]
        if (call := _CALLS[name][self._column]) is not None:
            self._code += [_instruction(_EQUAL, call, 0, len(block)), *block]

    def install(self) -> None:
        """Put it into effect for this thread and all that it starts. Raises OSError."""
        code = b"".join([*self._code, _instruction(_RETURN, _ALLOW)])
        held = ctypes.create_string_buffer(code, len(code))
        size = len(code) // struct.calcsize(_INSTRUCTION)
        program = struct.pack("HxxxxxxP", size, ctypes.addressof(held))
        if libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), program, 0, 0) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def restrict(parts: Sequence[str], *, truncate: bool = False) -> None:
    """Refuse what would leave these parts: files, network, processes, shared memory.

    With `truncate`, files can't be truncated by name, which Landlock allows before version 3.
    Needs `no_new_privs`. Raises OSError.
    """
    program = FilterProgram(os.uname().machine)
    program.answer(_UNKNOWN, errno.ENOSYS)
    program.answer(_REFUSED["always"], errno.EPERM)
    for part in parts:
        program.answer(_REFUSED[part], errno.EPERM)
    no_bit = _instruction(_ANY_BIT, _NEW_NAMESPACES, 0, 1)
    program.refuse_unless("clone", 0, no_bit)
    if "files" in parts:
        program.answer(_IGNORED, 0)
        program.answer(["truncate"] if truncate else [], errno.EPERM)
    if "network" in parts:
        # Pairs of streams have no address; pairs of datagrams can send to one.
        program.refuse_unless("socketpair", 1, _instruction(_EQUAL, _STREAM, 1, 0), _SOCKET_TYPE)
    if "processes" in parts:
        for name, place in _OWN_ONLY.items():
            program.refuse_unless(name, place, _instruction(_EQUAL, 0, 1, 0))
    for command in (*_TERMINAL_INPUT, *_FILE_ATTRIBUTES):
        program.refuse_unless("ioctl", 1, _instruction(_EQUAL, command, 0, 1))
    program.install()
