"""Runs a command for which the kernel makes no namespaces, as in most containers.

python without_namespaces.py COMMAND...
"""

import ctypes
import errno
import os
import sys

from abreast.worktrees.sandbox import seccomp

if __name__ == "__main__":
    program = seccomp.FilterProgram(os.uname().machine)
    program.answer(["unshare", "setns"], errno.EPERM)
    ctypes.CDLL(None).prctl(38, ctypes.c_ulong(1), 0, 0, 0)
    program.install()
    os.execv(sys.argv[1], sys.argv[1:])
