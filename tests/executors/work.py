"""The functions that items call in these tests: at module level, so that workers find them."""

import asyncio
import atexit
import contextvars
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading

import abreast

COLOUR = contextvars.ContextVar("colour", default="none")


def double(x):
    return 2 * x


async def double_later(x):
    await asyncio.sleep(0)
    return 2 * x


def double_in_a_coroutine(x):
    return double_later(x)


class Odd(Exception):
    """Its __init__ takes other arguments than pickle would give it."""

    def __init__(self, code, *, why):
        super().__init__(f"odd {code}")
        self.code = code
        self.why = why


class Wordy(Exception):
    """Plain pickling would pass its message to its __init__, which would change it."""

    def __init__(self, what):
        super().__init__(f"it was {what}")


class Locked(Exception):
    """Contains something that can't be pickled."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


class Mute(Exception):
    def __init__(self):
        super().__init__(threading.Lock())

    def __str__(self):
        raise RuntimeError("says nothing")


class Unreadable:
    """Can be pickled, but not unpickled in the process that receives it."""

    def __reduce__(self):
        return _read_in, (os.getpid(),)


def _read_in(pid):
    if pid != os.getpid():
        raise LookupError("not from here")
    return Unreadable()


class Stop(BaseException):
    pass


_FAILURES = {
    "value": lambda: ValueError("no such number"),
    "os": lambda: FileNotFoundError(2, "No such file", "there"),
    "odd": lambda: Odd(3, why=["x"]),
    "wordy": lambda: Wordy("me"),
    "locked": lambda: Locked("shut"),
    "mute": Mute,
    "exit": lambda: SystemExit(5),
    "interrupt": KeyboardInterrupt,
    "stop": lambda: Stop("at once"),
    "cancelled": lambda: asyncio.CancelledError("by itself"),
    "stopiteration": lambda: StopIteration(7),
    "group": lambda: ExceptionGroup("both", [ValueError("a"), KeyError("b")]),
}


def fail(how):
    if how in _FAILURES:
        failure = _FAILURES[how]()
        raise failure
    return how


async def fail_later(how):
    await asyncio.sleep(0)
    return fail(how)


def give_back(what):
    return {"lambda": lambda: None, "unreadable": Unreadable(), "nothing": None}[what]


def die(how):
    if isinstance(how, int):
        os._exit(how)
    if how in signal.Signals.__members__:
        os.kill(os.getpid(), signal.Signals[how])
    return how


def die_once(_):
    attempt = abreast.current().attempt
    if attempt == 1:
        os._exit(1)
    return attempt


def where(_):
    here = abreast.current()
    return here.path, here.key, here.attempt, here.seed, here.lane, dict(here.held)


async def where_later(x):
    await asyncio.sleep(0)
    return where(x)


def run_of_mine(_):
    return abreast.current().run


def colour(_):
    seen = COLOUR.get()
    COLOUR.set("spoilt")
    return seen


def who(_):
    return os.getpid(), os.getsid(0), os.getpgrp()


def meet(ticket):
    """Connect to a Meeting and wait until released; return the name of the item."""
    port, name = ticket
    _attend(port, name, os.getpid())
    return name


async def meet_later(ticket):
    port, name = ticket
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{name} {os.getpid()}\n".encode())
        await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()
    return name


def bring_a_child(ticket):
    """The same, with a child process that would live on."""
    port, name = ticket
    child = subprocess.Popen(["sleep", "1000"])
    _attend(port, name, os.getpid(), child.pid)
    return child.pid


def _attend(port, *facts):
    with socket.create_connection(("127.0.0.1", port), timeout=100) as connection:
        connection.sendall((" ".join(map(str, facts)) + "\n").encode())
        connection.recv(1)


def key_to_managers(_):
    return bytes(multiprocessing.current_process().authkey)


def start_a_program(_):
    """What a program that an item starts has open, if nothing is closed for it."""
    return subprocess.run(
        ["ls", "-l", "/proc/self/fd"], close_fds=False, check=True, capture_output=True
    ).stdout


def refuse_to_leave(_):
    atexit.register(signal.pause)
    return os.getpid()


def close_everything(_):
    os.closerange(3, 1000)
    signal.pause()


def speak(words):
    sys.stdout.write(words)
    return words


def map_in_processes(values):
    return [outcome.value for outcome in abreast.map(double, values, width=2, executor="process")]
