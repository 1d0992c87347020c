"""A directory in which a job runs: its files, its commands, and what they leave."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PATIENCE = 240.0  # seconds until a command that should end by itself is taken to hang
_OWN = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
_SOURCES = str(Path(__file__).parents[2] / "src")


class Said(NamedTuple):
    """The exit code and the output of a command; `hung` if it had to be killed."""

    code: int
    out: str
    err: str
    hung: bool = False


class Place:
    """A project, its store and a log of what was executed, in an environment of its own."""

    def __init__(
        self, folder: Path, store: str = "", storm: str = "", log: Path | None = None
    ) -> None:
        """The `log` is outside of the disk that is disturbed, so that nothing of it is lost."""
        self.folder, self.project = folder, folder / "project"
        self.log = log or folder.with_name(f"{folder.name}.log")
        self._output_to = folder.with_name(folder.name)
        self.storm = storm
        self.patience = PATIENCE
        self.store = store or str(folder / "runs.db")
        for name in ("project", "home", "tmp", "cache", "state"):
            (folder / name).mkdir(parents=True)
        self.log.touch()
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": _SOURCES,
            "LANG": "C.UTF-8",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "LOG": str(self.log),
            "CHAOS_PLACE": str(folder),
            "ABREAST_CACHE": str(folder / "cache"),
            "ABREAST_STATE": str(folder / "state"),
            "ABREAST_LOCKS": str(folder / "state"),
            "ABREAST_STORE": self.store,
        }

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        """Make the project a repository with one commit."""
        for git in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
            subprocess.run(["git", *_OWN, *git], cwd=self.project, check=True)

    def start(
        self,
        *arguments: str,
        stdout: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start abreast in a session of its own; its output goes to the files `out` and `err`."""
        out, err = self._output("out"), self._output("err")
        with out.open("wb") as to_out, err.open("wb") as to_err:
            return subprocess.Popen(
                [sys.executable, "-m", "abreast", *arguments],
                cwd=self.project,
                env=self.environment | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=to_out if stdout is None else stdout,
                stderr=to_err,
                start_new_session=True,
            )

    def wait(self, process: subprocess.Popen[bytes]) -> Said:
        """Wait for its end; it is killed, with its session, if that does not come."""
        hung = False
        try:
            process.wait(self.patience)
        except subprocess.TimeoutExpired:
            hung = True
            for pid in processes_of(self.folder):
                kill(pid)
            process.wait()
        texts = [self._output(name).read_text(errors="replace") for name in ("out", "err")]
        return Said(process.returncode, texts[0], texts[1], hung)

    def run(self, *arguments: str, beside: bool = False) -> Said:
        """Run abreast to its end, perhaps `beside` another that keeps the files of its output."""
        usual = self._output_to
        self._output_to = usual.with_name(f"{usual.name}-beside") if beside else usual
        try:
            return self.wait(self.start(*arguments))
        finally:
            self._output_to = usual

    def executed(self) -> list[str]:
        """What commands wrote when they began, in that order."""
        return self.log.read_text().splitlines()

    def tree(self) -> dict[str, str]:
        """A digest of each file of the project, and of its branches; not what is abreast's."""
        found = {}
        for path in sorted(self.project.rglob("*")):
            name = str(path.relative_to(self.project))
            if path.is_file() and not name.startswith((".abreast/", ".git/")):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for name in ("HEAD", "refs/heads/main"):
            with suppress(OSError):
                found[f".git/{name}"] = (self.project / ".git" / name).read_text()
        return found

    def files(self) -> set[str]:
        """Where files are that ought to be gone: in the cache and in the temporary directory."""
        places = ("tmp", "cache/worktrees", "cache/nodes")
        left = {path for name in places for path in (self.folder / name).rglob("*")}
        left |= set(self.folder.rglob("*.part"))
        return {str(path.relative_to(self.folder)) for path in left if not path.is_dir()}

    def _output(self, name: str) -> Path:
        return self._output_to.with_name(f"{self._output_to.name}.{name}")


def processes_of(folder: Path) -> list[int]:
    """The processes that work in a place: by their environment or their directory."""
    mark, found = f"CHAOS_PLACE={folder}\0".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            where = os.readlink(path / "cwd")  # noqa: PTH115 - a directory that was removed, too
            if mark in (path / "environ").read_bytes() or where.startswith(str(folder)):
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid() and not _is_zombie(pid)]


def wait_for_processes(folder: Path, patience: float = 15.0) -> list[int]:
    """The processes that are still there after some time; it returns when there are none."""
    deadline = time.monotonic() + patience
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"
