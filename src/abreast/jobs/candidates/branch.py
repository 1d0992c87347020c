"""A branch with a commit for each winner, made without touching index, working tree or HEAD."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from abreast.jobs.candidates.results import Tried
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.git import GitFailed, run_git

_SUBJECT_CHARACTERS: Final = 72
_NEW_FILE_MODE: Final = "100644"


@dataclass(frozen=True, slots=True)
class WinnerCommit:
    """A commit to be made: its message, and all files that it changes."""

    message: str
    changes: tuple[FileChange, ...]


@dataclass(frozen=True, slots=True)
class MadeBranch:
    """A branch that was made: its name, the commit it starts from, and its own, oldest first."""

    name: str
    base: str
    commits: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**asdict(self), "commits": list(self.commits)}


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What a message says of the run besides the winner's own figures."""

    run: str
    noise_floor: float | None
    confinement: str


class CandidateBranch:
    """A branch to be made in the repository of a directory, which is its top."""

    def __init__(self, root: Path, name: str) -> None:
        self._root, self.name = root, name

    def check(self, file: str | None, *, resumed: bool = False) -> None:
        """Raise ValueError if it can't be made; git runs for that.

        `file` is the target's: if it differs from HEAD, the commit would be of another text. A
        resumed run may have made the branch already.
        """
        if self._ask("check-ref-format", "--branch", self.name) != self.name:
            raise ValueError(f"{self.name!r} is no name of a branch")
        if self._ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
            raise ValueError(f"{self._root} has no commit that {self.name} could start from")
        if not resumed and self._commit_of_branch() is not None:
            raise ValueError(f"there is a branch {self.name} already")
        if file is not None:
            text = (self._root / file).read_bytes()
            self._check_file(file, text)

    def make(self, commits: Sequence[WinnerCommit]) -> MadeBranch:
        """Make the commits on HEAD, one on the other, and then the branch.

        If it is there with the same commits, it stays. Raises ValueError, GitFailed.
        """
        base = parent = self._git("rev-parse", "--verify", "HEAD^{commit}")
        seen: set[str] = set()
        made = []
        for one in commits:
            for change in one.changes:
                if change.path not in seen:
                    before = change.before
                    self._check_file(change.path, None if before is None else before.encode())
            seen |= {change.path for change in one.changes}
            tree = self._tree(parent, one.changes)
            words = ("commit-tree", tree, "-p", parent, "-F", "-")
            parent = self._git(*words, stdin=one.message, extra=_identity())
            made.append(parent)
        there = self._commit_of_branch()
        if there is not None:
            # A run that was killed after it had made the branch makes the same commits again,
            # but for their dates.
            if self._trees(there, base) != self._trees(parent, base):
                raise ValueError(f"there is a branch {self.name} already")
            own = self._git("rev-list", "--reverse", f"{base}..{there}").split()
            return MadeBranch(self.name, base, tuple(own))
        self._git("update-ref", f"refs/heads/{self.name}", parent, "0" * len(parent))
        return MadeBranch(self.name, base, tuple(made))

    def _commit_of_branch(self) -> str | None:
        return self._ask("rev-parse", "--verify", "--quiet", f"refs/heads/{self.name}^{{commit}}")

    def _trees(self, commit: str, base: str) -> list[str]:
        return self._git("log", "--format=%T", f"{base}..{commit}").split()

    def _check_file(self, path: str, content: bytes | None) -> None:
        """Raise ValueError unless HEAD has a file with that content, or none for None."""
        try:
            # With the line ends and filters of a checkout.
            there = run_git("cat-file", "--filters", f"HEAD:{path}", cwd=self._root).stdout
        except GitFailed:
            there = None
        if there != content:
            raise ValueError(f"{path} differs from HEAD, where {self.name} starts: commit it first")

    def _tree(self, parent: str, changes: Iterable[FileChange]) -> str:
        """The tree of a commit with these changes, by an index of its own."""
        lines = []
        for one in changes:
            mode, blob = "0", "0" * len(parent)  # how git is told that a file is removed
            if one.after is not None:
                blob = self._git(
                    "hash-object", "-w", "--stdin", f"--path={one.path}", stdin=one.after
                )
                mode = self._mode(parent, one.path)
            lines.append(f"{mode} {blob}\t".encode() + os.fsencode(one.path) + b"\0")
        with tempfile.TemporaryDirectory(prefix="abreast-branch-") as place:
            index = {"GIT_INDEX_FILE": str(Path(place, "index"))}
            self._git("read-tree", parent, extra=index)
            self._git("update-index", "-z", "--index-info", stdin=b"".join(lines), extra=index)
            return self._git("write-tree", extra=index)

    def _mode(self, commit: str, path: str) -> str:
        listed = self._git("ls-tree", "--full-tree", commit, "--", path)
        return listed.split(" ")[0] if listed else _NEW_FILE_MODE

    def _ask(self, *words: str) -> str | None:
        """What git prints; None if it fails."""
        try:
            return self._git(*words)
        except GitFailed:
            return None

    def _git(
        self, *words: str, stdin: str | bytes = b"", extra: dict[str, str] | None = None
    ) -> str:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return os.fsdecode(run_git(*words, cwd=self._root, stdin=data, extra=extra).stdout).strip()


def _identity() -> dict[str, str]:
    """The variables that say whose commit it is; other variables of git are not passed on."""
    prefixes = ("GIT_AUTHOR_", "GIT_COMMITTER_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def commit_message(target: Target, winner: Tried, evidence: RunEvidence) -> str:
    """The message of a winner's commit: what it gains, and what that stands on."""
    timed, checked = winner.timed, winner.checked
    ratio = timed.ratio if timed and timed.ratio is not None else 1.0
    subject = f"Make {target.qualname} {ratio:.2f}x as fast"
    if len(subject) > _SUBJECT_CHARACTERS:
        subject = f"Make {target.name} {ratio:.2f}x as fast"[:_SUBJECT_CHARACTERS]
    lines = [f"Function: {target}"]
    if timed is not None and timed.low is not None and timed.high is not None:
        interval = f"[{timed.low:.2f}, {timed.high:.2f}]"
        lines.append(f"Speed: {ratio:.2f}x {interval} in {timed.blocks} blocks")
    if evidence.noise_floor is not None:
        lines.append(f"Noise floor: {evidence.noise_floor:.1%}")
    if checked is not None:
        named = "" if checked.kinds == ("tests",) else f" ({' and '.join(checked.kinds)})"
        lines += [
            f"Tests: {checked.passed} of {checked.tests} pass{named}",
            f"Calls compared: {checked.invocations}",
            f"Generated inputs compared: {checked.generated}",
        ]
    lines.append(f"Confinement: {evidence.confinement}")
    lines.append(f"Run: {evidence.run or 'in memory'}, candidate {winner.name}")
    return "\n".join([subject, "", *(_one_line(line) for line in lines)]) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
