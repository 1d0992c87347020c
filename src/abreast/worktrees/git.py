"""Runs git commands without side effects: no prompts, no refresh of the index, no daemons."""

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abreast.core.errors import AbreastError
from abreast.worktrees.background import StopRequest

# No hooks and no file system monitor, and no garbage collection that would outlive the command.
_SAFE_OPTIONS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "worktree.guessRemote=false"),
    *("-c", "advice.detachedHead=false"),
)
# Seconds between SIGTERM and SIGKILL: on SIGTERM git removes its lock files.
_TERM_GRACE: Final = 1.0
_KEPT_VARIABLES: Final = frozenset(
    {
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CEILING_DIRECTORIES",
        "GIT_EXEC_PATH",
    }
)
_NO_REPOSITORY_MESSAGES: Final = ("not a git repository", "can't be started")
# For repositories of our own: git reads no configuration of the user or the system. In a user's
# repository it does, as that configuration lists the safe directories.
OURS: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
# Seconds that one git command, or the wait for the repository's lock, may take.
TIMEOUT: Final = 120.0


# The variables that `git rev-parse --local-env-vars` lists, and similar ones. A git hook that
# started abreast sets them, and they lead git to that hook's repository.
_REPOSITORY_VARIABLES: Final = re.compile(
    r"GIT_(ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|CONFIG|CONFIG_COUNT|CONFIG_PARAMETERS"
    r"|CONFIG_(KEY|VALUE)_\d+|DIR|GRAFT_FILE|IMPLICIT_WORK_TREE|INDEX_FILE|INTERNAL_SUPER_PREFIX"
    r"|NAMESPACE|NO_REPLACE_OBJECTS|OBJECT_DIRECTORY|PREFIX|QUARANTINE_PATH|REPLACE_REF_BASE"
    r"|SHALLOW_FILE|WORK_TREE)"
)


class GitFailed(AbreastError, retryable=False):
    """A git command failed; the message ends with its error line."""


@dataclass(frozen=True, slots=True)
class Git:
    """Git commands in one directory; each process inherits the open file `lock`."""

    place: Path
    stop: StopRequest
    timeout: float = TIMEOUT
    lock: int | None = None

    def __call__(self, *words: str | Path, stdin: bytes | None = None) -> bytes:
        """Run a command and return its stdout.

        Raises GitFailed if it fails, can't be started or takes too long.
        """
        argv = ["git", *_SAFE_OPTIONS, *map(str, words)]
        try:
            process = subprocess.Popen(
                argv,
                cwd=self.place,
                env=environment(),
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # The terminal's Ctrl-C does not reach it: the code that waits for it ends it.
                start_new_session=True,
                # If this process is killed, the lock is held until the orphan has ended too.
                pass_fds=() if self.lock is None else (self.lock,),
            )
        except OSError as error:
            raise GitFailed(f"git can't be started in {self.place}: {error.strerror}") from error
        with process:
            try:
                ending = threading.Thread(target=_ensure_ended, args=(process,), daemon=True)
                with self.stop.calling(ending.start):
                    output, complaint = process.communicate(stdin, self.timeout)
            except subprocess.TimeoutExpired:
                raise GitFailed(f"git {words[0]} took longer than {self.timeout:g} s") from None
            finally:
                _ensure_ended(process)
        self.stop.check()
        if process.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines()
            errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
            reason = (*errors[:1], *lines[-1:], f"ended with {process.returncode}")[0]
            raise GitFailed(f"git {words[0]}: {reason}")
        return output


def environment() -> dict[str, str]:
    """Our environment without variables that redirect git, and with untranslated messages.

    A hook that started this process sets such variables.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def without_repository(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without variables that lead git to another repository."""
    return {name: value for name, value in env.items() if not _REPOSITORY_VARIABLES.fullmatch(name)}


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _ensure_ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_GRACE)
    if process.poll() is None:
        _signal_group(process, signal.SIGKILL)


def folder_in_repository(root: Path) -> str:
    """The path of a directory in its repository, with a slash at the end; empty for its top.

    Empty, too, if it is in no repository.
    """
    try:
        printed = run_git("rev-parse", "--show-prefix", cwd=root).stdout
    except GitFailed:
        return ""
    return os.fsdecode(printed).removesuffix("\n")


def run_git(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    extra: Mapping[str, str] | None = None,
    accept: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command, without the options and limits of `Git`, and wait for it.

    Raises `GitFailed` if its exit code is not in `accept`, or if git is not installed.
    """
    command = ["git", *map(str, arguments)]
    variables = {**environment(), **(extra or {})}
    try:
        done = subprocess.run(
            command, cwd=cwd, input=stdin, capture_output=True, env=variables, check=False
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise
        raise GitFailed("git is not installed, or not on the PATH") from error
    if done.returncode not in accept:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [
            f"exit code {done.returncode}"
        ]
        raise GitFailed(f"git {command[1]}: {lines[-1]}")
    return done


def names(listed: bytes) -> list[str]:
    """The paths that a command printed with -z; `os.fsencode` gives back their bytes."""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a project is, and what git knows about it."""

    top: Path  # the top of its working tree, with no symbolic link in it
    root: Path  # the directory that was given: `top`, or one beneath it
    common: Path | None = None  # the git directory that its worktrees share; None if there is none
    head: str | None = None  # the commit that is checked out; None before the first one

    @property
    def is_linked(self) -> bool:
        """Whether slots are registered with git as worktrees; else they are plain copies."""
        return self.common is not None and self.head is not None

    @property
    def place(self) -> Path:
        """The directory that identifies the repository, the same for all of its worktrees."""
        return self.common or self.top

    @property
    def name(self) -> str:
        """A short unique name, for directories."""
        digest = hashlib.sha256(os.fsencode(self.place)).hexdigest()
        return f"{self.top.name[:40] or 'root'}-{digest[:12]}"


def find_repository(root: Path, stop: StopRequest, timeout: float = TIMEOUT) -> Repository:
    """The repository that `root` is in, or a plain directory if it is in none.

    Raises GitFailed if git refuses to work there.
    """
    real = root.resolve(strict=True)
    if not real.is_dir():
        raise NotADirectoryError(f"{root} is not a directory")
    git = Git(real, stop, timeout)
    try:
        top = _line(git("rev-parse", "--show-toplevel"))
    except GitFailed as error:
        has_git = any((place / ".git").exists() for place in (real, *real.parents))
        if has_git or not any(words in str(error) for words in _NO_REPOSITORY_MESSAGES):
            raise
        return Repository(real, real)
    common = _line(git("rev-parse", "--git-common-dir"))
    head = None
    with contextlib.suppress(GitFailed):  # no commit yet
        head = git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    return Repository(Path(top).resolve(), real, (real / common).resolve(), head)


def find_project(root: Path, stop: StopRequest, timeout: float = TIMEOUT) -> Repository:
    """The repository that `root` is in, or a plain directory if the repository ignores all of it.

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
