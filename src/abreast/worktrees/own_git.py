"""A separate git directory for each copy of a working tree.

With it, git commands in a copy don't reach the repository.

    POOL/git/         the template, made once for a pool from the first copy: it defines what is
                      tracked and ignored in copies
    POOL/SLOT/.git/   a copy of the template without objects, made anew whenever the slot is reset

Objects are found by alternates: the history at HEAD is readable, and nothing that is written,
packed or pruned in a copy changes the repository. HEAD has the name of the branch that is checked
out. Where the working tree differs from the commit, one additional commit records it as it is: so
`git diff` shows what was changed in the copy, and `git stash` or `git checkout .` goes back to its
start and keeps the user's own edits. Only that branch and the tags are copied of the references,
and of the configuration only names, filters and line ends; no remotes, hooks, stashes, includes or
worktrees.
"""

import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from abreast.worktrees.git import Git, GitFailed, Repository
from abreast.worktrees.staging import Snapshot, remove_tree

# Sections and keys of a repository's configuration that a copy gets. Not included: settings that
# point elsewhere (remotes, worktrees, includes, hooks, a file system monitor), credentials, and
# commit signing, which may ask for a passphrase.
_COPIED_SETTINGS: Final = re.compile(
    r"(user|author|committer)\.(name|email)"
    r"|(filter|diff|merge|i18n|apply|whitespace|blame|log|grep)\..*"
    r"|core\.(autocrlf|eol|safecrlf|ignorecase|filemode|symlinks|precomposeunicode|quotepath"
    r"|whitespace|abbrev|bigfilethreshold|excludesfile|attributesfile|checkroundtripencoding"
    r"|protecthfs|protectntfs|longpaths|trustctime)"
    r"|extensions\.(objectformat|partialclone)|remote\..*\.(promisor|partialclonefilter)",
    re.DOTALL,
)
_FIXED_SETTINGS: Final = (
    ("core.bare", "false"),
    ("core.logallrefupdates", "true"),
    ("core.hookspath", os.devnull),
    ("core.fsmonitor", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("commit.gpgsign", "false"),
    ("tag.gpgsign", "false"),
)
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"\n')
_COMMIT_MESSAGE: Final = "The working tree as it was when the work began"
_SUBMODULE_MODE: Final = b"160000"


class OwnGit:
    """Makes git directories for the slots of one pool."""

    def __init__(self, repository: Repository, snapshot: Snapshot, place: Path) -> None:
        """`place` is the directory of the template, which is made by the first `install`."""
        self.place = place
        self._repository = repository
        self._snapshot = snapshot
        self._lock = threading.Lock()

    def install(self, path: Path, git: Git) -> None:
        """Make the git directory of the copy at `path`.

        The first call makes the template, while others wait.
        """
        with self._lock:
            if not self.place.exists():
                part = self.place.with_suffix(".part")
                _Template(part, path, self._repository, git).make(
                    [
                        name
                        for name, piece in self._snapshot.pieces.items()
                        if piece.kind != stat.S_IFDIR
                    ]
                )
                part.rename(self.place)
        remove_tree(path / ".git")
        shutil.copytree(self.place, path / ".git", ignore=shutil.ignore_patterns("objects"))
        write_alternates(path / ".git", self.object_folders())

    def object_folders(self) -> list[Path]:
        """Where git finds the objects of slots, once there is a template."""
        lines = (self.place / "objects/info/alternates").read_bytes()
        return [self.place / "objects", *map(_unquote, _QUOTED.findall(lines))]

    def commit_files(self, path: Path, git: Git) -> None:
        """Commit the files of the copy, in the copy alone: they become its initial state."""
        tree = _git_at(git, path / ".git", path)
        tree("add", "--all")
        _commit(tree, path / ".git", tree("write-tree").decode().strip())


@dataclass(frozen=True, slots=True)
class _Template:
    """Makes a git directory for the files at `_path`."""

    _place: Path
    _path: Path
    _repository: Repository
    _git: Git

    def make(self, names: list[str]) -> None:
        remove_tree(self._place)
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (self._place / folder).mkdir(parents=True)
        (self._place / "config").write_bytes(_format_config([*self._settings(), *_FIXED_SETTINGS]))
        write_alternates(self._place, self._object_folders())
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
            if _COPIED_SETTINGS.fullmatch(key)
        ]
        version = "1" if any(key.startswith("extensions.") for key, _ in found) else "0"
        return [("core.repositoryformatversion", version), *found]

    def _object_folders(self) -> list[Path]:
        """The object directories of the repository, and of those that it borrows from."""
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
        """Add all files of the copy to the index.

        Where the result differs from HEAD, it is committed.
        """
        git = _git_at(self._git, self._place, self._path)
        committed: set[bytes] = set()
        if self._repository.head is not None:
            git("read-tree", "HEAD")
            staged = git("ls-files", "-z", "--stage").split(b"\0")
            committed = {
                line.partition(b"\t")[2]
                for line in staged
                if line and not line.startswith(_SUBMODULE_MODE)
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


def _git_at(git: Git, git_dir: Path, tree: Path) -> Callable[..., bytes]:
    return partial(Git(tree, git.stop, git.timeout), f"--git-dir={git_dir}", f"--work-tree={tree}")


def _commit(git: Callable[..., bytes], git_dir: Path, tree: str) -> None:
    """Put a commit of `tree` on top of HEAD; its bytes don't depend on the time or the user."""
    try:
        parent = git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
        when = git("log", "-1", "--format=%ct", "HEAD").decode().strip()
    except GitFailed:  # there is no commit yet
        parent, when = "", "0"
    person = f"abreast <abreast@localhost> {when} +0000"
    lines = [
        f"tree {tree}",
        *([f"parent {parent}"] if parent else []),
        f"author {person}",
        f"committer {person}",
    ]
    text = "\n".join([*lines, "", _COMMIT_MESSAGE, ""]).encode()
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


def write_alternates(git_dir: Path, folders: Iterable[Path]) -> None:
    """Have a git directory find objects in these folders."""
    for folder in ("info", "pack"):
        (git_dir / "objects" / folder).mkdir(parents=True, exist_ok=True)
    lines = b"".join(map(_alternates_line, folders))
    (git_dir / "objects/info/alternates").write_bytes(lines)


def _alternates_line(folder: Path) -> bytes:
    """A line of `alternates`, quoted: a name may contain a line break or begin with a `#`."""
    return _quote(os.fsencode(folder)) + b"\n"


def _format_config(settings: list[tuple[str, str]]) -> bytes:
    lines: list[bytes] = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        head = os.fsencode(section) + (b" " + _quote(os.fsencode(inner)) if inner else b"")
        setting = os.fsencode(name) + b" = " + _quote(os.fsencode(value))
        lines.append(b"[" + head + b"]\n\t" + setting + b"\n")
    return b"".join(lines)


def _quote(text: bytes) -> bytes:
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _unquote(text: bytes) -> Path:
    """The folder of a quoted line, without its quotes."""
    found = re.sub(rb"\\(.)", lambda one: {b"n": b"\n"}.get(one[1], one[1]), text)
    return Path(os.fsdecode(found))
