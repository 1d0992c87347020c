"""Reads candidates from files of a directory, patches and git refs, without running them."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from abreast.core.errors import AbreastError
from abreast.jobs.candidates.results import Proposal
from abreast.jobs.candidates.source.changes import (
    MAX_FILES,
    FileChange,
    read_change,
    refuse_path,
)
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, read_source
from abreast.worktrees.background import StopRequest
from abreast.worktrees.git import Git, GitFailed

_MAX_CANDIDATE_SIZE: Final = 2 << 20  # bytes
_NO_FILE: Final = "000000"
_PLAIN_MODES: Final = frozenset({_NO_FILE, "100644", "100755"})  # git's modes of files


class SourceMissing(AbreastError, ValueError):
    """There is no such directory, patch or ref; the message names it."""

    retryable = False


def from_directory(directory: Path) -> list[Proposal]:
    """Return the Python files of a directory as candidates, sorted by name.

    Raises `SourceMissing`.
    """
    return [from_file(path) for path in _list_files(directory, (".py",))]


def from_file(path: Path) -> Proposal:
    """Return a Python file as a candidate, with an error as its result if it can't be read."""
    proposal = Proposal(path.stem, "", "file")
    try:
        _check_size(path)
        return replace(proposal, text=read_source(path))
    except (CandidateInvalid, OSError) as error:
        return replace(proposal, fault="error", reason=str(error))


@dataclass(frozen=True, slots=True)
class Project:
    """Where candidates are for: the target, its file's text, the top of the repository.

    Attributes:
        protected: The tests and scripts that call the target; no candidate may change them.
    """

    target: Target
    original: str
    root: Path
    protected: tuple[str, ...] = ()

    def refuse(self, path: str) -> str:
        """Return why a candidate may not change a file; empty if it may."""
        return "" if path == self.target.file else refuse_path(path, self.protected)


def from_patches(
    paths: Iterable[Path], project: Project, stop: StopRequest | None = None
) -> list[Proposal]:
    """Return the files of each patch with it applied, in a directory outside of the project.

    A patch that touches tests, configuration or links is refused. It blocks while git runs; `stop`
    ends git.
    """
    return [_from_patch(path, project, stop or StopRequest()) for path in paths]


def patches_in(directory: Path) -> list[Path]:
    """Return the patches of a directory, sorted by name. Raises `SourceMissing`."""
    return _list_files(directory, (".patch", ".diff"))


def from_refs(
    refs: Sequence[str], project: Project, stop: StopRequest | None = None
) -> list[Proposal]:
    """Return the target's file as it is in each of these commits or branches.

    And the other Python files that it has changed since it left HEAD, as far as a candidate may
    change them; tests and configuration stay as they are here. Raises `SourceMissing` for an
    unknown one. It blocks while git runs; `stop` ends git.
    """
    git, found = Git(project.root, stop or StopRequest()), []
    for ref in refs:
        try:
            commit = _commit_of(git, ref)
        except GitFailed:
            message = f"there is no commit or branch {ref!r} in {project.root}"
            raise SourceMissing(message) from None
        proposal = Proposal(ref, "", "ref", whole=True)
        try:
            text = _show(git, commit, project.target.file)
        except GitFailed:
            reason = f"it has no {project.target.file}"
            found.append(replace(proposal, fault="error", reason=reason))
            continue
        try:
            files = tuple(_changed_in(git, commit, project))
            found.append(replace(proposal, text=text, files=files))
        except CandidateInvalid as error:
            found.append(replace(proposal, text=text, fault="error", reason=str(error)))
    return found


def _commit_of(git: Git, ref: str) -> str:
    """Return the commit of a ref. Raises GitFailed."""
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return found.decode().strip()


def _show(git: Git, commit: str, file: str) -> str:
    return git("show", f"{commit}:./{file}").decode("utf-8", "replace")


def _changed_in(git: Git, commit: str, project: Project) -> Iterator[FileChange]:
    """Yield what a commit has changed since it left HEAD, besides the target's file.

    Raises `CandidateInvalid` if a file has changed here too: one of the changes would be lost.
    """
    try:
        base = git("merge-base", "HEAD", commit).decode().strip()
    except GitFailed:  # they have nothing in common, or there is no HEAD yet
        return
    options = ("--no-renames", "--no-ext-diff", "--no-textconv", "--relative", "-z")
    fields = git("diff", "--raw", *options, base, commit, "--").decode("utf-8", "replace")
    pairs = fields.split("\0")
    for facts, path in zip(pairs[::2], pairs[1::2], strict=False):
        before_mode, after_mode = facts.removeprefix(":").split(" ")[:2]
        if path == project.target.file or not path.endswith(".py") or project.refuse(path):
            continue
        if not {before_mode, after_mode} <= _PLAIN_MODES:
            raise CandidateInvalid(f"its {path} is a link or a module of git")
        after = _show(git, commit, path) if after_mode != _NO_FILE else None
        base_text = _show(git, base, path) if before_mode != _NO_FILE else None
        change = read_change(project.root, path, after)
        if change is not None and change.before != base_text:
            raise CandidateInvalid(f"{path} has changed here too since: merge that first")
        if change is not None:
            yield change


def _list_files(directory: Path, endings: tuple[str, ...]) -> list[Path]:
    try:
        return sorted(
            path
            for path in directory.iterdir()
            if path.suffix in endings and path.name[0] not in "._"
        )
    except NotADirectoryError:
        raise SourceMissing(f"{directory} is no directory") from None
    except OSError:
        raise SourceMissing(f"there is no directory {directory}") from None


def _check_size(path: Path) -> None:
    if path.stat().st_size > _MAX_CANDIDATE_SIZE:
        raise CandidateInvalid(
            f"it has more than {_MAX_CANDIDATE_SIZE >> 20} MiB, which no candidate needs"
        )


def _from_patch(path: Path, project: Project, stop: StopRequest) -> Proposal:
    proposal = Proposal(path.stem, "", "patch", whole=True)
    try:
        _check_size(path)
        patch = path.read_bytes()
        with tempfile.TemporaryDirectory(prefix="abreast-patch-") as directory:
            return _apply_patch(Git(Path(directory), stop), patch, proposal, project)
    except GitFailed as error:
        message = str(error).splitlines()[-1].removeprefix("error: ")
        return replace(proposal, fault="error", reason=f"it can't be applied: {message}")
    except (CandidateInvalid, OSError) as error:
        return replace(proposal, fault="error", reason=str(error))


def _apply_patch(git: Git, patch: bytes, proposal: Proposal, project: Project) -> Proposal:
    git("init", "--quiet")
    touched = git("apply", "--numstat", "-z", "-", stdin=patch).decode("utf-8", "replace")
    # A renamed file has two names, each in its own field.
    files = {field.rpartition("\t")[2] for field in touched.split("\0")} - {""}
    target = project.target.file
    if refused := _refuse_files(sorted(files - {target}), project):
        return replace(proposal, fault="refused", reason=refused)
    for name in sorted(files | {target}):
        place, here = git.place / name, project.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if name == target:
            place.write_bytes(project.original.encode())
        elif here.is_file():
            place.write_bytes(here.read_bytes())
    git("apply", "--whitespace=nowarn", "-", stdin=patch)
    file = git.place / target
    if not file.is_file() or file.is_symlink():
        reason = f"it removes {target}, or makes a link of it"
        return replace(proposal, fault="refused", reason=reason)
    changes = []
    for name in sorted(files - {target}):
        place = git.place / name
        if place.is_symlink():
            return replace(proposal, fault="refused", reason=f"it makes a link of {name}")
        try:
            after = read_source(place) if place.exists() else None
            changes.append(read_change(project.root, name, after))
        except CandidateInvalid as error:
            return replace(proposal, fault="refused", reason=str(error))
    text = file.read_bytes().decode("utf-8", "replace")
    return replace(proposal, text=text, files=tuple(one for one in changes if one is not None))


def _refuse_files(files: Sequence[str], project: Project) -> str:
    """Return why a patch may not touch these files; empty if it may."""
    for name in files:
        if why := project.refuse(name):
            return f"it touches {name}: {why}"
        above = [project.root / name, *(project.root / name).parents]
        if any(one.is_symlink() for one in above[: above.index(project.root)]):
            return f"it touches {name}, which is a link, or behind one"
    if len(files) > MAX_FILES:
        return f"it touches {len(files)} files besides {project.target.file}"
    return ""
