"""The `abreast` that pages type: has the real one forked by the process at the other end of a line.

To start an interpreter and import abreast takes most of a short command. The process has this one's
arguments, directory, environment and standard files, as `tests/warm.py` says; this one ends as it
does.

    python typed.py LINE PROGRAM ARGUMENT...
"""

import json
import os
import signal
import socket
import sys


def main():
    line, program, *arguments = sys.argv[1:]
    ended, theirs = os.pipe()
    request = (program, arguments, os.getcwd(), dict(os.environ), False)  # noqa: PTH109 - started often
    with socket.socket(fileno=os.dup(int(line))) as warm:
        socket.send_fds(warm, [json.dumps(request).encode()], [0, 1, 2, theirs])
    os.close(theirs)
    pid = int(os.read(ended, 20))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    with os.fdopen(ended, "rb") as end:
        code = os.waitstatus_to_exitcode(int(end.read()))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
