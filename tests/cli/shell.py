"""abreast as a person starts it: real processes, in a project of their own."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from abreast.store.sqlite.store import SqliteStore

PATIENCE = 280  # seconds until a process that should end by itself is taken to hang
ABREAST = (sys.executable, "-m", "abreast")


@dataclass(frozen=True)
class Said:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.splitlines()

    @property
    def rows(self):
        return [json.loads(line) for line in self.out.splitlines()]


def plain_environment():
    """This process's environment without settings of abreast, and with the paths to import it.

    Nor has it `CI`, where workflows say more.
    """
    kept = ("ABREAST_STATE",)  # of this session's tests alone
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in kept or (name != "CI" and not name.startswith("ABREAST_"))
    }
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def unmeasured(environment):
    """The same without coverage, for a process that needs none: measuring starts 10 x slower."""
    return {name: value for name, value in environment.items() if not name.startswith("COVERAGE_")}


class Shell:
    """A directory, and abreast in it.

    A project has a mark, so that no store of ours above it is found.
    """

    def __init__(self, folder, warm=None):
        self.folder = Path(folder)
        self._warm = warm
        (self.folder / ".git").mkdir()
        self.environment = plain_environment()

    @property
    def store(self):
        return self.folder / ".abreast/abreast.db"

    def file(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat().st_mtime if path.exists() else None
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        if before is not None:
            # Python takes bytecode of a file of the same second and size for this file's.
            later = max(before + 1, path.stat().st_mtime)
            os.utime(path, (later, later))
        return path

    def __call__(self, *arguments, given=b"", cwd=None, **environment):
        """Run it to its end, in a process forked from one that has imported it already."""
        if self._warm is None or any(name.startswith("PYTHON") for name in environment):
            return self.anew(*arguments, given=given, cwd=cwd, **environment)
        code, out, err = self._warm.run(
            "abreast",
            [*map(str, arguments)],
            given if isinstance(given, bytes) else given.encode(),
            cwd=cwd or self.folder,
            # No coverage for the supervisors; this process is measured.
            environment=unmeasured({**self.environment, **environment}),
            patience=PATIENCE,
        )
        return Said(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def anew(self, *arguments, given=b"", cwd=None, **environment):
        """Run it to its end, in an interpreter of its own."""
        process = subprocess.run(
            [*ABREAST, *map(str, arguments)],
            cwd=cwd or self.folder,
            env={**self.environment, **environment},
            input=given if isinstance(given, bytes) else given.encode(),
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        out, err = (wrote.decode("utf-8", "replace") for wrote in (process.stdout, process.stderr))
        return Said(process.returncode, out, err)

    @contextmanager
    def start(
        self,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        own_group=True,
        measured=True,
    ):
        """Start it, and let the test say how it ends.

        It is gone when the block is, whatever happened.
        """
        environment = self.environment if measured else unmeasured(self.environment)
        process = subprocess.Popen(
            [*ABREAST, *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=own_group,
        )
        with process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    process.kill()

    def recorded(self, run_id="map-1", state="done"):
        """The keys of the items that are recorded in that state."""
        with closing(SqliteStore(self.store)) as store:
            found = store.outcomes(run_id, limit=1_000_000)
        return {
            outcome.path.rpartition("/")[2] for outcome in found if outcome.data["state"] == state
        }

    def noted(self, run_id="map-1"):
        """The process groups that are recorded in the journal."""
        with closing(SqliteStore(self.store)) as store:
            return [event.data["pgid"] for event in store.events(run_id, kinds={"child-started"})]


def end(process):
    """Wait until a started process has ended by itself; return its exit code and output."""
    out, err = process.communicate(timeout=PATIENCE)
    return Said(process.returncode, (out or b"").decode(), err.decode())


def children_of(run_id, folder):
    """The living processes that a run in that folder has started, found by their environment."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            environment = (
                (entry / "environ").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            )
            if (
                f"ABREAST_RUN_ID={run_id}".encode() in environment
                and f"PWD={folder}".encode() in environment
            ):
                found.add(int(entry.name))
    return found


@contextmanager
def ended_at_last(pids):
    """End a process that a test has started."""
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
