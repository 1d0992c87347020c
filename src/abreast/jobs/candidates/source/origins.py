"""Reads candidates from files of a directory, patches and git refs, without running them."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from abreast.core.errors import AbreastError
from abreast.jobs.candidates.results import Proposal
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, read_source
from abreast.worktrees.background import StopRequest
from abreast.worktrees.git import Git, GitFailed

_MAX_CANDIDATE_SIZE: Final = 2 << 20  # bytes


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


def from_patches(
    paths: Iterable[Path], target: Target, original: str, stop: StopRequest | None = None
) -> list[Proposal]:
    """Return the target's file with each patch applied, in a directory outside of the project.

    A patch that touches another file is refused. It blocks while git runs; `stop` ends git.
    """
    return [_from_patch(path, target, original, stop or StopRequest()) for path in paths]


def patches_in(directory: Path) -> list[Path]:
    """Return the patches of a directory, sorted by name. Raises `SourceMissing`."""
    return _list_files(directory, (".patch", ".diff"))


def from_refs(
    refs: Sequence[str], target: Target, root: Path, stop: StopRequest | None = None
) -> list[Proposal]:
    """Return the target's file as it is in each of these commits or branches.

    Raises `SourceMissing` for an unknown one. It blocks while git runs; `stop` ends git.
    """
    git = Git(root, stop or StopRequest())
    found = []
    for ref in refs:
        try:
            commit = (
                git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
                .decode()
                .strip()
            )
        except GitFailed:
            raise SourceMissing(f"there is no commit or branch {ref!r} in {root}") from None
        try:
            found.append(
                Proposal(
                    ref, git("show", f"{commit}:./{target.file}").decode("utf-8", "replace"), "ref"
                )
            )
        except GitFailed:
            found.append(Proposal(ref, "", "ref", fault="error", reason=f"it has no {target.file}"))
    return found


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


def _from_patch(path: Path, target: Target, original: str, stop: StopRequest) -> Proposal:
    proposal = Proposal(path.stem, "", "patch")
    try:
        _check_size(path)
        patch = path.read_bytes()
        with tempfile.TemporaryDirectory(prefix="abreast-patch-") as directory:
            return _apply_patch(Git(Path(directory), stop), patch, proposal, target, original)
    except GitFailed as error:
        message = str(error).splitlines()[-1].removeprefix("error: ")
        return replace(proposal, fault="error", reason=f"it can't be applied: {message}")
    except (CandidateInvalid, OSError) as error:
        return replace(proposal, fault="error", reason=str(error))


def _apply_patch(
    git: Git, patch: bytes, proposal: Proposal, target: Target, original: str
) -> Proposal:
    git("init", "--quiet")
    touched = git("apply", "--numstat", "-z", "-", stdin=patch).decode("utf-8", "replace")
    # A renamed file has two names, each in its own field.
    files = {field.rpartition("\t")[2] for field in touched.split("\0")} - {""}
    if others := sorted(files - {target.file}):
        return replace(
            proposal,
            fault="refused",
            reason=f"it touches {', '.join(others[:3])}, and only {target.file} may change",
        )
    file = git.place / target.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(original.encode())
    git("apply", "--whitespace=nowarn", "-", stdin=patch)
    if not file.is_file() or file.is_symlink():
        return replace(
            proposal, fault="refused", reason=f"it removes {target.file}, or makes a link of it"
        )
    return replace(proposal, text=file.read_bytes().decode("utf-8", "replace"))
