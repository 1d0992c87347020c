"""Child processes for the store's tests: they run a script and report through a pipe."""

import os
import subprocess
import sys
from contextlib import contextmanager

PREAMBLE = """
import json, os, sys
from pathlib import Path
import abreast.store.sqlite.sql
from abreast.core.errors import StoreError
from abreast.store.sqlite.sql import migrations, sql
from abreast.store.sqlite.store import SqliteStore
from tests.store.rows import ANN, BOB, begin, event, settled

def say(*words):
    print(*words, flush=True)

def try_it(do):
    try:
        say("fine", do())
    except StoreError as error:
        say(type(error).__name__, str(error))

def step_down():
    # Read now: abreast's own files may be out of reach afterwards.
    migrations()
    for file in Path(abreast.store.sqlite.sql.__file__).parent.glob("*.sql"):
        sql(file.stem)
    if os.geteuid() == 0:  # who may write everything, whatever its mode
        os.setuid(65534)

"""


@contextmanager
def child(script, *arguments):
    """A process running `script`; it is dead when the block ends, whatever happened."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def said_by(script, *arguments):
    """All the lines that a child says until it ends by itself."""
    with child(script, *arguments) as process:
        lines = process.communicate(timeout=100)[0].splitlines()
    assert process.returncode == 0, lines
    return lines
