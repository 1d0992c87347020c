"""As `timeout -s SIGNAL SECONDS COMMAND...`, but patient.

An abreast is not ended before it has recorded something.

A reader's machine is fast enough for what the pages say; one that runs many tests at once may not
be.
"""

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

STORE = Path(".abreast/abreast.db")
ENOUGH = 4  # outcomes
LOOK = 0.05


def recorded():
    """How many outcomes the store of this directory holds."""
    if not STORE.exists():
        return 0
    try:
        with closing(sqlite3.connect(STORE, timeout=10)) as db:
            return db.execute("SELECT count(*) FROM events WHERE kind = 'item-settled'").fetchone()[
                0
            ]
    except sqlite3.OperationalError:  # it is being made
        return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", "--signal", default="TERM")
    parser.add_argument("seconds", type=float)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.command[0] != "abreast":
        os.execvpe(shutil.which("timeout", path=os.defpath), ["timeout", *sys.argv[1:]], os.environ)
    number = signal.Signals[f"SIG{asked.signal}"]
    before, due = recorded(), time.monotonic() + asked.seconds
    itself = Path(sys.executable).with_name("abreast")  # a fork would not get the signal
    child = subprocess.Popen([itself, *asked.command[1:]])
    while True:
        try:
            return child.wait(LOOK)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= due and recorded() >= before + ENOUGH:
                child.send_signal(number)
                child.wait()
                return 128 + number if number == signal.SIGKILL else 124


if __name__ == "__main__":
    sys.exit(main())
