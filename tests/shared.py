"""What all workers of a session of tests share: a folder, which is there while the session is.

The session is the process that all workers belong to, or the only one.
"""

import os
import select
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

_FOLDER = "ABREAST_TEST_FOLDER"
_PROCESS = "ABREAST_TEST_SESSION"
_ENDED_WITH_IT = ".pid"  # a file with this ending names a process


def begin():
    """Make the folder; True in the process that workers belong to."""
    if _FOLDER in os.environ:
        return False
    os.environ[_FOLDER] = tempfile.mkdtemp(prefix="abreast-tests-")
    os.environ[_PROCESS] = str(os.getpid())
    return True


def end():
    """End the processes that `end_with_it` names, wait for their end, remove the folder."""
    for file in folder().glob(f"*{_ENDED_WITH_IT}"):
        with suppress(ProcessLookupError):
            _end_process(int(file.read_text()))
    shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)


def folder():
    """The folder of this session."""
    return Path(os.environ[_FOLDER])


def process():
    """The process to end with."""
    return int(os.environ[_PROCESS])


def end_with_it(name, pid):
    """Have a process ended at the end of the session, whichever worker has started it."""
    folder().joinpath(name + _ENDED_WITH_IT).write_text(str(pid))


def _end_process(pid):
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        select.select([handle], [], [], 60)
    finally:
        os.close(handle)
