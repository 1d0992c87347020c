"""A branch and a commit for each part of a plan, in the user's repository, for pull requests.

Each commit has the changes of one part on top of HEAD. The working tree, the index and the branch
that is checked out are not touched.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from abreast.jobs.plan.errors import PlanInvalid
from abreast.worktrees.git import GitFailed, names, run_git
from abreast.worktrees.merge.merge import Change
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Changed, Snapshots, TreeEntry

PREFIX: Final = "abreast"
_NO_OBJECT: Final = "0" * 40


@dataclass(frozen=True, slots=True)
class PartBranch:
    """A branch that was made, or was there already with the same content."""

    part: str
    name: str
    commit: str
    files: int


@dataclass(frozen=True, slots=True)
class PartCommit:
    """What becomes a commit: the change of a part, the paths of it that count, and its message."""

    change: Change
    left_out: frozenset[str]
    message: str


class Branches:
    """Makes branches in the repository of a directory."""

    def __init__(self, root: Path, snapshots: Snapshots) -> None:
        """Raises `PlanInvalid` if the directory is in no repository, or it has no commit."""
        self._root, self._snapshots = root, snapshots
        try:
            self._head = self._git("rev-parse", "--verify", "HEAD^{commit}").strip()
            self._beneath = self._git("rev-parse", "--show-prefix").removesuffix("\n")
        except GitFailed:
            raise PlanInvalid(
                f"{root} has no commit to start branches from: commit it first"
            ) from None

    def make(self, run: str, commits: Sequence[PartCommit]) -> list[PartBranch]:
        """Make a branch for each part that changed something: all of them, or none.

        Raises `PlanInvalid` if a file has changes that are not committed, or a branch of that name
        has another content.
        """
        ready: list[tuple[PartBranch, str]] = []
        for each in commits:
            difference = self._snapshots.changes(each.change.base, each.change.result)
            changed = [one for one in difference.changed if one.path not in each.left_out]
            if not changed:
                continue
            tree = self._tree(each.change.leaf, changed)
            name = f"{PREFIX}/{_ref_part(run)}/{_ref_part(each.change.leaf)}"
            there = self._existing(name, tree)
            commit = there or self._commit(tree, each.message)
            branch = PartBranch(each.change.leaf, name, commit, len(changed))
            ready.append((branch, "" if there else f"create refs/heads/{name} {commit}\n"))
        if lines := "".join(line for _, line in ready):
            # One transaction: git makes all of them, or none.
            self._git("update-ref", "--stdin", stdin=lines.encode())
        return [branch for branch, _ in ready]

    def _existing(self, name: str, tree: str) -> str | None:
        """The commit of a branch that has this tree on this HEAD already."""
        try:
            commit = self._git("rev-parse", "--verify", "-q", f"refs/heads/{name}").strip()
        except GitFailed:
            return None
        facts = self._git("show", "-s", "--format=%T %P", commit).split()
        if facts != [tree, self._head]:
            raise PlanInvalid(
                f"the branch {name} is there with another content: delete it (git branch -D {name})"
            )
        return commit

    def _tree(self, part: str, changed: Sequence[Changed]) -> str:
        committed = self._committed([self._beneath + one.path for one in changed])
        contents = self._snapshots.read_many(
            entry.blob for one in changed for entry in (one.before, one.after) if entry is not None
        )

        def stored(path: str, entry: TreeEntry | None) -> tuple[str, str] | None:
            if entry is None:
                return None
            return entry.mode, self._store(path, contents[entry.blob], link=entry.link)

        lines: list[bytes] = []
        for one in changed:
            path = self._beneath + one.path
            if committed.get(path) != stored(path, one.before):
                raise PlanInvalid(
                    f"{printable(one.path)}, which {part} changed, is not in HEAD "
                    "as the part found it: commit it, then make the branches"
                )
            after = stored(path, one.after)
            mode, blob = ("0", _NO_OBJECT) if after is None else after
            lines.append(f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0")
        with tempfile.TemporaryDirectory(prefix="abreast-branch-") as place:
            index = {"GIT_INDEX_FILE": str(Path(place, "index"))}
            self._git("read-tree", self._head, extra=index)
            self._git("update-index", "-z", "--index-info", stdin=b"".join(lines), extra=index)
            return self._git("write-tree", extra=index).strip()

    def _committed(self, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
        """The mode and the blob of each of these files in HEAD."""
        literal = {"GIT_LITERAL_PATHSPECS": "1"}
        printed = self._run(
            "ls-tree", "-r", "-z", "--full-tree", self._head, "--", *paths, extra=literal
        )
        found: dict[str, tuple[str, str]] = {}
        for line in names(printed):
            facts, path = line.split("\t", 1)
            mode, _, blob = facts.split(" ")
            found[path] = (mode, blob)
        return found

    def _store(self, path: str, content: bytes, *, link: bool) -> str:
        """Store a content as `git add` would: with the filters and line ends of its path."""
        how = ("--no-filters",) if link else (f"--path={path}",)
        return self._git("hash-object", "-w", "--stdin", *how, stdin=content).strip()

    def _commit(self, tree: str, message: str) -> str:
        try:
            return self._git(
                "commit-tree", tree, "-p", self._head, "-F", "-", stdin=message.encode()
            ).strip()
        except GitFailed as error:
            raise PlanInvalid(f"a commit can't be made: {error}") from None

    def _git(self, *words: str, stdin: bytes = b"", extra: dict[str, str] | None = None) -> str:
        return os.fsdecode(self._run(*words, stdin=stdin, extra=extra))

    def _run(self, *words: str, stdin: bytes = b"", extra: dict[str, str] | None = None) -> bytes:
        return run_git(*words, cwd=self._root, stdin=stdin, extra=extra).stdout


def commit_message(scope: str, run: str, leaf: str, task: str) -> str:
    """The message of a part's commit: the first line of the task, and where it comes from."""
    task = next((line.strip() for line in task.splitlines() if line.strip()), "")
    head = printable(f"{scope}: {task}" if task else scope)
    return f"{head[:100]}\n\nPart {leaf} of {run}.\n"


def _ref_part(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
