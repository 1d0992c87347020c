"""A git directory of its own for a copy of a working tree: git commands in the copy don't reach the repository.

    POOL/git/         the model, made once for a pool from the first copy: it says what is tracked and ignored in copies
    POOL/SLOT/.git/   a copy of it without objects, for those who work there; made anew whenever the slot is reset

Objects are found by alternates: the history at HEAD is there, and nothing that is written, packed
or pruned in a copy changes the repository. HEAD has the name of the branch that is checked out.
Where the working tree isn't as committed, one commit more has it as it is: `git diff` shows what
was done in the copy, and `git stash` or `git checkout .` goes back to where it began, not behind
the user's own edits. Of references only that branch and the tags are copied; of the configuration
what names, filters and line ends need; no remotes, hooks, stashes, includes or worktrees.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from pathlib import Path
from typing import Final

from abreast.worktrees.git import Git, GitFailed, Repository
from abreast.worktrees.staging import Snapshot, remove_tree

# Sections and keys of a repository's configuration that a copy gets. Not among them: what leads
# elsewhere (remotes, worktrees, includes, hooks, a watcher), credentials, and what signs commits,
# as a passphrase may be asked for.
_COPIED: Final = re.compile(
    r"(user|author|committer)\.(name|email)|(filter|diff|merge|i18n|apply|whitespace|blame|log|grep)\..*"
    r"|core\.(autocrlf|eol|safecrlf|ignorecase|filemode|symlinks|precomposeunicode|quotepath|whitespace|abbrev"
    r"|bigfilethreshold|excludesfile|attributesfile|checkroundtripencoding|protecthfs|protectntfs|longpaths|trustctime)"
    r"|extensions\.(objectformat|partialclone)|remote\..*\.(promisor|partialclonefilter)",
    re.DOTALL,
)
_FIXED: Final = (
    ("core.bare", "false"),
    ("core.logallrefupdates", "true"),
    ("core.hookspath", os.devnull),
    ("core.fsmonitor", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("commit.gpgsign", "false"),
    ("tag.gpgsign", "false"),
)
_SAYS: Final = "The working tree as it was when the work began"
_GIT_LINK: Final = b"160000"


class OwnGit:
    """Makes git directories for the slots of one pool."""

    def __init__(self, repository: Repository, snapshot: Snapshot, place: Path) -> None:
        """`place` is where the model is to be; nothing is made yet."""
        self.place = place
        self._repository = repository
        self._snapshot = snapshot
        self._lock = threading.Lock()

    def install(self, path: Path, git: Git) -> None:
        """Give the copy at `path` its git directory.

        The first one makes the model, while others wait.
        """
        with self._lock:
            if not self.place.exists():
                part = self.place.with_suffix(".part")
                _Model(part, path, self._repository, git).make(self._names())
                part.rename(self.place)
        remove_tree(path / ".git")
        shutil.copytree(self.place, path / ".git", ignore=shutil.ignore_patterns("objects"))
        borrowed = (self.place / "objects/info/alternates").read_bytes()
        _write_alternates(path / ".git", _line(self.place / "objects") + borrowed)

    def commit_files(self, path: Path, git: Git) -> None:
        """Make what is in the copy the state that it began with: one commit more, in the copy alone."""
        tree = _At(git, path / ".git", path)
        tree("add", "--all")
        _commit(tree, path / ".git", tree("write-tree").decode().strip())

    def _names(self) -> list[str]:
        return [name for name, piece in self._snapshot.pieces.items() if piece.kind != stat.S_IFDIR]


class _Model:
    """A git directory in the making, for the files at `path`."""

    def __init__(self, place: Path, path: Path, repository: Repository, git: Git) -> None:
        self._place = place
        self._path = path
        self._repository = repository
        self._git = git

    def make(self, names: list[str]) -> None:
        remove_tree(self._place)
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (self._place / folder).mkdir(parents=True)
        (self._place / "config").write_bytes(_spelled([*self._settings(), *_FIXED]))
        _write_alternates(self._place, b"".join(map(_line, self._object_folders())))
        for name in ("info/exclude", "info/attributes", "shallow"):
            source = (self._repository.common or Path()) / name
            if source.is_file():
                shutil.copyfile(source, self._place / name)
        branch, head = self._branch(), self._repository.head
        tags = self._git("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
        (self._place / "packed-refs").write_bytes(tags)
        (self._place / "HEAD").write_text(f"ref: {branch}\n" if branch else f"{head}\n")
        if head is not None and branch:
            _write_reference(self._place, branch, head)
        self._fill_index(names)

    def _settings(self) -> list[tuple[str, str]]:
        listed = self._git("config", "--local", "--includes", "-z", "--list")
        pairs = [os.fsdecode(each).partition("\n") for each in listed.split(b"\0") if each]
        found = [
            (key, value if newline else "true")
            for key, newline, value in pairs
            if _COPIED.fullmatch(key)
        ]
        version = "1" if any(key.startswith("extensions.") for key, _ in found) else "0"
        return [("core.repositoryformatversion", version), *found]

    def _object_folders(self) -> list[Path]:
        """Where the repository's objects are, in it and in those that it borrows from."""
        printed = self._git("rev-parse", "--git-path", "objects").removesuffix(b"\n")
        counted = self._git("count-objects", "-v").splitlines()
        others = [
            line.removeprefix(b"alternate: ") for line in counted if line.startswith(b"alternate: ")
        ]
        return [(self._git.place / os.fsdecode(folder)).resolve() for folder in (printed, *others)]

    def _branch(self) -> str | None:
        try:
            return self._git("symbolic-ref", "--quiet", "HEAD").decode().strip()
        except GitFailed:  # a commit is checked out, not a branch
            return None

    def _fill_index(self, names: list[str]) -> None:
        """All that is in the copy is known to git.

        Where that is not what was committed, it is one commit more.
        """
        git = _At(self._git, self._place, self._path)
        committed: set[bytes] = set()
        if self._repository.head is not None:
            git("read-tree", "HEAD")
            staged = git("ls-files", "-z", "--stage").split(b"\0")
            committed = {
                line.partition(b"\t")[2]
                for line in staged
                if line and not line.startswith(_GIT_LINK)
            }
        wanted = sorted(committed.union(map(os.fsencode, names)))
        git(
            "update-index",
            "-z",
            "--add",
            "--remove",
            "--replace",
            "--stdin",
            stdin=b"\0".join(wanted) + b"\0",
        )
        tree = git("write-tree").decode().strip()
        if (
            self._repository.head is None
            or git("rev-parse", "HEAD^{tree}").decode().strip() != tree
        ):
            _commit(git, self._place, tree)


class _At:
    """Git commands with a git directory and a working tree that are not found but told."""

    def __init__(self, git: Git, git_dir: Path, tree: Path) -> None:
        self._git = Git(tree, git.stop, git.timeout)
        self._told = (f"--git-dir={git_dir}", f"--work-tree={tree}")

    def __call__(self, *words: str | Path, stdin: bytes | None = None) -> bytes:
        return self._git(*self._told, *words, stdin=stdin)


def _commit(git: Git | _At, git_dir: Path, tree: str) -> None:
    """Put a commit of `tree` on top of HEAD; the same bytes whenever and by whomever it is made."""
    try:
        parent = git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
        when = git("log", "-1", "--format=%ct", "HEAD").decode().strip()
    except GitFailed:  # the first one
        parent, when = "", "0"
    person = f"abreast <abreast@localhost> {when} +0000"
    lines = [
        f"tree {tree}",
        *([f"parent {parent}"] if parent else []),
        f"author {person}",
        f"committer {person}",
    ]
    text = "\n".join([*lines, "", _SAYS, ""]).encode()
    made = git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).decode().strip()
    head = (git_dir / "HEAD").read_text().strip()
    if head.startswith("ref: "):
        _write_reference(git_dir, head.removeprefix("ref: "), made)
    else:
        (git_dir / "HEAD").write_text(f"{made}\n")


def _write_reference(git_dir: Path, name: str, commit: str) -> None:
    place = git_dir / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{commit}\n")


def _write_alternates(git_dir: Path, lines: bytes) -> None:
    for folder in ("info", "pack"):
        (git_dir / "objects" / folder).mkdir(parents=True, exist_ok=True)
    (git_dir / "objects/info/alternates").write_bytes(lines)


def _line(folder: Path) -> bytes:
    """A line of `alternates`: quoted, as a name may have a line break in it or begin with a `#`."""
    return _quoted(os.fsencode(folder)) + b"\n"


def _spelled(settings: list[tuple[str, str]]) -> bytes:
    """A configuration file."""
    lines: list[bytes] = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        head = os.fsencode(section) + (b" " + _quoted(os.fsencode(inner)) if inner else b"")
        lines.append(
            b"["
            + head
            + b"]\n\t"
            + os.fsencode(name)
            + b" = "
            + _quoted(os.fsencode(value))
            + b"\n"
        )
    return b"".join(lines)


def _quoted(text: bytes) -> bytes:
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
