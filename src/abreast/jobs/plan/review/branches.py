"""A branch and a commit for each part of a plan, in the user's repository, for pull requests.

A part starts from HEAD, unless it changes a file that another part changes too, or waits for
another: such parts are stacked, each on the one before. The working tree, the index and the branch
that is checked out are not touched.
"""

import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final
from urllib.parse import quote

from abreast.jobs.plan.errors import PlanInvalid
from abreast.worktrees.git import GitFailed, names, run_git
from abreast.worktrees.merge.merge import SOURCE, Merged
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Snapshots

PREFIX: Final = "abreast"
HEAD: Final = "HEAD"
_NO_OBJECT: Final = "0" * 40
_SUBMODULE_MODE: Final = "160000"


@dataclass(frozen=True, slots=True)
class PartBranch:
    """A branch that was made, or was there already with the same content."""

    part: str
    name: str
    base: str
    """The branch that it is on top of, or HEAD."""
    commit: str
    files: int


@dataclass(frozen=True, slots=True)
class PartCommit:
    """What becomes a commit: a snapshot with the change of a part, and its message."""

    part: str
    tree: str
    message: str


def stacks_of(
    parts: Sequence[str],
    changed: Mapping[str, Collection[str]],
    needs: Mapping[str, Collection[str]],
) -> list[list[str]]:
    """Parts that change a file in common, or wait for each other, together; in a working order.

    `parts` are in the order of the plan. Within a stack a part comes after those that it needs, and
    else in that order.
    """
    stack_of = {part: {part} for part in parts}
    first: dict[str, str] = {}
    pairs = [(part, first.setdefault(path, part)) for part in parts for path in changed[part]]
    pairs += [(part, need) for part in parts for need in needs.get(part, ()) if need in stack_of]
    for one, other in pairs:
        if stack_of[one] is not stack_of[other]:
            stack_of[one] |= stack_of[other]
            stack_of |= dict.fromkeys(stack_of[other], stack_of[one])
    order = {part: place for place, part in enumerate(_in_order(parts, needs))}
    found = {id(stack): sorted(stack, key=order.__getitem__) for stack in stack_of.values()}
    return [*found.values()]


def _in_order(parts: Sequence[str], needs: Mapping[str, Collection[str]]) -> Iterator[str]:
    """The parts, each after those that it needs, else in their order."""
    place = {part: number for number, part in enumerate(parts)}
    sorter = TopologicalSorter(
        {part: [need for need in needs.get(part, ()) if need in place] for part in parts}
    )
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        yield from ready
        sorter.done(*ready)


def branch_faults(run: str, merged: Merged, blocked: Sequence[str]) -> Iterator[str]:
    """What stands in the way of branches: the lines of a merge into HEAD, with what to do."""
    conflicts = {str(each): each for each in merged.conflicts}
    for line in blocked:
        conflict = conflicts.get(line)
        if conflict is None:
            yield line
            continue
        path = printable(conflict.path)
        choose = f"choose with: abreast plan resolve {run} {path} --take PART|source|edit"
        if conflict.other != SOURCE:
            yield f"{line}; {choose}"
        else:
            yield (
                f"{path}, which {conflict.leaf} changed, is not in HEAD as the part found it: "
                f"commit it, then make the branches, or {choose}"
            )


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

    def take_head(self) -> str:
        """A snapshot of the directory as HEAD has it, with the bytes of a checkout."""
        listed = self._run("ls-tree", "-r", "-z", "--full-tree", self._head)
        entries = [line.split("\t", 1) for line in names(listed)]
        paths = [
            path.removeprefix(self._beneath)
            for facts, path in entries
            if path.startswith(self._beneath) and not facts.startswith(_SUBMODULE_MODE)
        ]
        with tempfile.TemporaryDirectory(prefix="abreast-branch-") as place:
            index = {"GIT_INDEX_FILE": str(Path(place, "index"))}
            self._git("read-tree", self._head, extra=index)
            self._git("checkout-index", "-a", f"--prefix={place}/files/", extra=index)
            root = Path(place, "files", self._beneath)
            root.mkdir(parents=True, exist_ok=True)
            return self._snapshots.take_paths(root, paths)

    def make(self, run: str, head: str, stacks: Sequence[Sequence[PartCommit]]) -> list[PartBranch]:
        """Make a branch for each part that changed something: all of them, or none.

        `head` is the snapshot of HEAD; the parts of a stack are on top of each other. Raises
        `PlanInvalid` if a branch of that name has another content.
        """
        ready: list[tuple[PartBranch, str]] = []
        for stack in stacks:
            base, below, parent = HEAD, head, self._head
            for each in stack:
                changed = len(self._snapshots.changes(below, each.tree).changed)
                if not changed:
                    continue
                tree = self._tree(head, each.tree)
                name = f"{PREFIX}/{_ref_part(run)}/{_ref_part(each.part)}"
                there = self._existing(name, tree, parent)
                commit = there or self._commit(tree, parent, each.message)
                branch = PartBranch(each.part, name, base, commit, changed)
                ready.append((branch, "" if there else f"create refs/heads/{name} {commit}\n"))
                base, below, parent = name, each.tree, commit
        if lines := "".join(line for _, line in ready):
            # One transaction: git makes all of them, or none.
            self._git("update-ref", "--stdin", stdin=lines.encode())
        return [branch for branch, _ in ready]

    def _existing(self, name: str, tree: str, parent: str) -> str | None:
        """The commit of a branch that has this tree on this parent already."""
        try:
            commit = self._git("rev-parse", "--verify", "-q", f"refs/heads/{name}").strip()
        except GitFailed:
            return None
        facts = self._git("show", "-s", "--format=%T %P", commit).split()
        if facts != [tree, parent]:
            raise PlanInvalid(
                f"the branch {name} is there with another content: delete it (git branch -D {name})"
            )
        return commit

    def _tree(self, head: str, tree: str) -> str:
        """The tree of HEAD with all that a snapshot has changed in it."""
        changed = self._snapshots.changes(head, tree).changed
        contents = self._snapshots.read_many(
            one.after.blob for one in changed if one.after is not None
        )
        lines: list[bytes] = []
        for one in changed:
            path, mode, blob = self._beneath + one.path, "0", _NO_OBJECT
            if one.after is not None:
                mode = one.after.mode
                blob = self._store(path, contents[one.after.blob], link=one.after.link)
            lines.append(f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0")
        with tempfile.TemporaryDirectory(prefix="abreast-branch-") as place:
            index = {"GIT_INDEX_FILE": str(Path(place, "index"))}
            self._git("read-tree", self._head, extra=index)
            self._git("update-index", "-z", "--index-info", stdin=b"".join(lines), extra=index)
            return self._git("write-tree", extra=index).strip()

    def _store(self, path: str, content: bytes, *, link: bool) -> str:
        """Store a content as `git add` would: with the filters and line ends of its path."""
        how = ("--no-filters",) if link else (f"--path={path}",)
        return self._git("hash-object", "-w", "--stdin", *how, stdin=content).strip()

    def _commit(self, tree: str, parent: str, message: str) -> str:
        try:
            return self._git(
                "commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode()
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
