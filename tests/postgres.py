"""One PostgreSQL, with a PgBouncer in front of it, for all workers of a session of tests.

The first worker that needs it starts it; it ends with the process that all workers belong to.
"""

import fcntl
import importlib
import os
import random
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests import shared

SCRIPT = Path(__file__).parents[1] / "scripts" / "postgres.py"


def addresses():
    """The addresses of the server and of its PgBouncer; started if they are not yet.

    Only CI may install them: a developer's machine is theirs.
    """
    options = ["--install"] if "CI" in os.environ else ["--find"]
    place = shared.folder() / "addresses"
    with (shared.folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            found = subprocess.run(
                [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False
            )
            if "no P" in found.stdout and "CI" not in os.environ:
                pytest.skip(
                    f"{found.stdout.strip()} here: python scripts/postgres.py --install, as root"
                )
            assert found.returncode == 0, found.stderr
            place.write_text(_start())
    _leave_random_numbers_alone()
    return place.read_text().split()


def _leave_random_numbers_alone():
    """Give the threads of connection pools random numbers of their own.

    To Hypothesis, a change of the global ones while it draws is a fault of the strategy.
    """
    pools = importlib.import_module("psycopg_pool.base")
    pools.random = random.Random().random


def _start():
    server = subprocess.Popen(
        # Tests that crash a server start one of their own, which waits for its disk.
        [sys.executable, SCRIPT, "--bouncer", "--while", str(shared.process()), "--set=fsync=off"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={name: os.environ[name] for name in os.environ if not name.startswith("COVERAGE")},
    )
    with server.stdout as said:
        lines = said.readline() + said.readline()
    server.returncode = 0  # it goes on for other workers
    return lines


def in_new_schema(address):
    """The address of an empty store in that database."""
    return f"{address}?schema=t_{uuid4().hex}"
