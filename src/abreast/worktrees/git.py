"""Git, called so that it changes nothing it isn't asked to: no hooks, no index refreshed in passing, no daemons."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abreast.core.errors import AbreastError
from abreast.worktrees.background import StopRequest

# Worktrees get neither hooks nor a watcher, and the commands never start a collection that would
# outlive them.
_QUIETLY: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "worktree.guessRemote=false"),
    *("-c", "advice.detachedHead=false"),
)
_GRACE: Final = 1.0  # s; git takes its lock files away when it is asked to end
_KEPT: Final = frozenset(
    {
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CEILING_DIRECTORIES",
        "GIT_EXEC_PATH",
    }
)
_NO_GIT: Final = ("not a git repository", "can't be started")
TIMEOUT: Final = 120.0
"""Seconds that one git command may take."""


class GitFailed(AbreastError):
    """A git command did not succeed; the message ends with what it said."""

    retryable = False


@dataclass(frozen=True, slots=True)
class Git:
    """Git commands in one directory. `lock` is an open file that they hold as long as they live."""

    place: Path
    stop: StopRequest
    timeout: float = TIMEOUT
    lock: int | None = None

    def __call__(self, *words: str | Path, stdin: bytes | None = None) -> bytes:
        """What a command prints; GitFailed if it fails, can't be started or takes too long."""
        argv = ["git", *_QUIETLY, *map(str, words)]
        try:
            process = subprocess.Popen(
                argv,
                cwd=self.place,
                env=environment(),
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Out of reach of the terminal's Ctrl-C: it is ended by whoever waits for it.
                start_new_session=True,
                # If this process is killed, the lock is held until the orphan has ended too.
                pass_fds=() if self.lock is None else (self.lock,),
            )
        except OSError as error:
            raise GitFailed(f"git can't be started in {self.place}: {error.strerror}") from error
        with process:
            try:
                with self.stop.calling(lambda: _hurry(process)):
                    output, complaint = process.communicate(stdin, self.timeout)
            except subprocess.TimeoutExpired:
                raise GitFailed(f"git {words[0]} took longer than {self.timeout:g} s") from None
            finally:
                _finish(process)
        self.stop.check()
        if process.returncode:
            raise GitFailed(
                f"git {words[0]}: {_said(complaint) or f'ended with {process.returncode}'}"
            )
        return output


def environment() -> dict[str, str]:
    """Ours, without what would point git elsewhere (a hook that started us has set it), and in plain words."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT
    }
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to all that a command consists of."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _hurry(process: subprocess.Popen[bytes]) -> None:
    """Ask a command to end, and make it if it doesn't; somebody else waits for it."""
    _end(process, signal.SIGTERM)
    timer = threading.Timer(_GRACE, _finish, (process, 0.0))
    timer.daemon = True
    timer.start()


def _finish(process: subprocess.Popen[bytes], grace: float = _GRACE) -> None:
    """See to it that nothing of a command goes on."""
    if process.poll() is None:
        _end(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    if process.poll() is None:
        _end(process, signal.SIGKILL)


def _said(complaint: bytes) -> str:
    lines = complaint.decode(errors="replace").strip().splitlines()
    return next(
        (line for line in lines if line.startswith(("fatal:", "error:"))),
        lines[-1] if lines else "",
    )


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a project is, and what git knows about it."""

    top: Path
    """The top of its working tree, with no symbolic link in it."""
    root: Path
    """The directory asked for: `top`, or one beneath it."""
    common: Path | None = None
    """The git directory that its worktrees share; None if there is none."""
    head: str | None = None
    """The commit that is checked out; None before the first one."""

    @property
    def is_linked(self) -> bool:
        """Whether slots are worktrees that git knows of; else they are plain copies."""
        return self.common is not None and self.head is not None

    @property
    def place(self) -> Path:
        """The directory that stands for the repository, whatever worktree of it one is in."""
        return self.common or self.top

    @property
    def name(self) -> str:
        """A short name of its own, for directories."""
        return f"{self.top.name[:40] or 'root'}-{hashlib.sha256(os.fsencode(self.place)).hexdigest()[:12]}"


def find_repository(root: Path, stop: StopRequest, timeout: float = TIMEOUT) -> Repository:
    """The repository that `root` is in.

    A plain directory if it is in none. GitFailed if git refuses to say.
    """
    real = root.resolve(strict=True)
    if not real.is_dir():
        raise NotADirectoryError(f"{root} is not a directory")
    git = Git(real, stop, timeout)
    try:
        top = _line(git("rev-parse", "--show-toplevel"))
    except GitFailed as error:
        has_git = any((place / ".git").exists() for place in (real, *real.parents))
        if has_git or not any(words in str(error) for words in _NO_GIT):
            raise
        return Repository(real, real)
    common = _line(git("rev-parse", "--git-common-dir"))
    return Repository(Path(top).resolve(), real, (real / common).resolve(), _head(git))


def find_project(root: Path, stop: StopRequest, timeout: float = TIMEOUT) -> Repository:
    """The repository that `root` is in, unless that ignores all of it: then `root` is a plain directory.

    A worktree of the repository would have nothing of such a directory in it.
    """
    repository = find_repository(root, stop, timeout)
    if repository.common is None or repository.root == repository.top:
        return repository
    git = Git(repository.root, stop, timeout)
    known = git(
        "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--directory", "--", "."
    )
    return repository if known else Repository(repository.root, repository.root)


def _line(answer: bytes) -> str:
    """A name that git printed; it may have line breaks of its own."""
    return os.fsdecode(answer.removesuffix(b"\n"))


def _head(git: Git) -> str | None:
    try:
        return git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    except GitFailed:  # no commit yet
        return None
