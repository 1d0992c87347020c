"""Confines this process to a few directories by Landlock, which needs neither root nor namespaces.

Landlock permits and never forbids: a rule opens all that is beneath a path. To keep a few places
closed, everything beside them is opened, entry by entry.

What it does not cover, and `seccomp` has to: modes, owners and times of files, sockets, and limits
and priorities of other processes. Reading another process's memory or environment is refused as
soon as any ruleset is in effect.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

TYPE_CHECKING = False  # importing typing's constant costs 2 ms
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIGNAL_VERSION = 6  # the first that keeps signals and abstract sockets inside
TRUNCATE_VERSION = 3  # the first that refuses truncate(2)
_NETWORK_VERSION, _IOCTL_VERSION, _REFER_VERSION = 4, 5, 2

_SYS_CREATE, _SYS_ADD_RULE, _SYS_RESTRICT = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_VERSION = (1 << 13) - 1  # all rights of version 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> int:
    """Return the result of a system call; raise OSError with errno if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def version() -> int:
    """Return the version of Landlock in this kernel. Raises OSError if it is off."""
    return check(libc.syscall(_SYS_CREATE, None, 0, _VERSION_FLAG))


def restrict(
    *,
    files: bool,
    writable: Sequence[str] = (),
    readable: Sequence[str] = (),
    devices: Sequence[str] = (),
    closed: Sequence[str] = (),
) -> None:
    """Restrict this thread and all that it starts, for good. Needs `no_new_privs`.

    Signals reach only processes that are restricted by it too, from version 6 on. With `files`,
    all files can be read and executed but those in `closed`; `readable` may be in there and can
    be read, `writable` can also be written to and `devices` only read and written to.
    Raises OSError.
    """
    found = version()
    rights = _rights(found) if files else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if found >= SIGNAL_VERSION else 0
    if not rights and not scopes:
        return
    attributes = struct.pack("QQQ", rights, 0, scopes)
    size = 8 if found < _NETWORK_VERSION else 16 if found < SIGNAL_VERSION else 24
    rules = check(libc.syscall(_SYS_CREATE, attributes, ctypes.c_size_t(size), 0))
    try:
        if files:
            reading = _EXECUTE | _READ_FILE | _READ_DIR
            _open(rules, "/", _READ_DIR)  # names are no secret
            for path in _around("/", [os.path.realpath(one) for one in closed]):
                _open(rules, path, reading)
            for path in readable:
                _open(rules, path, reading)
            for path in writable:
                _open(rules, path, rights & ~(_MAKE_CHAR | _MAKE_BLOCK))
            for path in devices:
                _open(rules, path, rights & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
        check(libc.syscall(_SYS_RESTRICT, rules, 0))
    finally:
        os.close(rules)


def _rights(found: int) -> int:
    """Return all rights to files that this version can refuse."""
    later = ((_REFER_VERSION, _REFER), (TRUNCATE_VERSION, _TRUNCATE), (_IOCTL_VERSION, _IOCTL_DEV))
    return _FIRST_VERSION | sum(right for first, right in later if found >= first)


def _open(rules: int, path: str, rights: int) -> None:
    """Permit this beneath a path; nothing if there is no such path."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        if rights:
            rule = struct.pack("=Qi", rights, place)
            check(libc.syscall(_SYS_ADD_RULE, rules, _PATH_BENEATH, rule, 0))
    finally:
        os.close(place)


def _around(place: str, closed: Sequence[str]) -> Iterator[str]:
    """Yield paths that together hold all that is beneath `place` but what is closed."""
    inside = [one for one in closed if one == place or one.startswith(place.rstrip("/") + "/")]
    if place in inside:
        return
    if not inside:
        yield place
        return
    try:
        names = os.listdir(place)
    except OSError:
        return
    for name in names:
        path = os.path.join(place, name)
        if not os.path.islink(path):  # what it leads to is opened where it is
            yield from _around(path, inside)
