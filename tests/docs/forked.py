"""A command of a page, forked from a process that has imported abreast: LINE PROGRAM ARGUMENTS...

It asks for the fork at the socket with that number (`tests/warm.py`), hands on its own standard
files, and ends as the fork does. Started for every command, so it imports next to nothing.
"""

import os
import sys
from _json import encode_basestring_ascii as quoted
from _signal import SIG_DFL, SIGKILL, signal
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket


def main(line, program, *arguments):
    ended, theirs = os.pipe()
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2, theirs))
    words = ",".join(map(quoted, arguments))
    variables = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in os.environ.items())
    cwd = os.getcwd()  # noqa: PTH109 - pathlib takes longer than all that is imported here
    request = f"[{quoted(program)},[{words}],{quoted(cwd)},{{{variables}}},false]"
    asked = socket(AF_UNIX, SOCK_SEQPACKET, fileno=int(line))
    asked.sendmsg([request.encode()], [(SOL_SOCKET, SCM_RIGHTS, files)])
    os.close(theirs)
    told = b""
    while piece := os.read(ended, 20):
        told += piece
    code = os.waitstatus_to_exitcode(int(told.split()[1]))
    if code < 0:
        if -code != SIGKILL:
            signal(-code, SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
