"""Broken code and patches: candidates of models, patches of people, trees of agents and nodes.

Code and patches must be refused in a sentence, or be taken. A merge must list what it leaves out,
and an apply must write nothing outside of its directory.
"""

from __future__ import annotations

import difflib
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from abreast.core.errors import AbreastError
from abreast.jobs.candidates.author import blocks_of
from abreast.jobs.candidates.source.checks import check_text
from abreast.jobs.candidates.source.normal_form import DuplicateFinder
from abreast.jobs.candidates.source.origins import Project, from_patches
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, candidate_text
from abreast.worktrees.merge.apply import apply
from abreast.worktrees.merge.merge import Change, MergeStrategy, merge
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.nodes.content import Entry, Patch
from benchmarks.fuzz.mutator import TOKENS, change, change_bytes
from benchmarks.fuzz.results import Fuzzed

_CORPUS: Final = Path(__file__).parents[2] / "corpus"
_NAMES: Final = (
    *("a.py", "b/c.txt", "b/c", "b", "../outside", "/nonexistent-abreast/outside", ".git/config"),
    *(".git", "a.py/x", "-rf", "new\nline", "\udcff\udcfe", " ", "é", ".abreast/x", "link/x", "."),
    "b/../../outside",
)
_FILES: Final = ("a.py", "b/c.txt", "b/c", "b", "d\nx", "-rf", "\udcff", "e/f/g", "A.py")
_LINES: Final = "one\ntwo\nthree\nfour\nfive\n"
_INSIDE: Final = "inside"
_OUTSIDE: Final = "../../outside.txt"
"""Where links lead: a file of ours beside the place of a try, which nothing may change."""


@cache
def _code() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """For each function of the corpus: its name, its file and candidates for it."""
    return tuple(
        (
            folder.name,
            (folder / "original.py").read_text(),
            tuple(path.read_text() for path in sorted((folder / "candidates").glob("*.py"))),
        )
        for folder in sorted(_CORPUS.iterdir())
        if (folder / "original.py").exists()
    )


def try_candidate(draw: Random, _: Path) -> str:
    """A reply of a model with code in it, as `optimize` reads it."""
    name, original, candidates = draw.choice(_code())
    target, code = Target("original.py", name), draw.choice([original, *candidates])
    if draw.random() < 0.1:
        code = code.replace("return ", f"return {'(' * draw.choice((50, 150, 3000))}", 1)
    reply = change(f"Here it is:\n```python\n{code}```\nIt is fast.", draw)
    ends, found = [], DuplicateFinder(original)
    for number, block in enumerate(blocks_of(reply)):
        try:
            text = candidate_text(original, target, block)
        except CandidateInvalid:
            ends.append("refused")
            continue
        ends.append("run" if check_text(original, text, target) is None else "refused")
        found.enter(str(number), text)
    return f"code {ends[0]}" if ends else "no code"


def draw_patch(draw: Random) -> tuple[str, bytes]:
    """The name of a function of the corpus, and a broken patch for it."""
    name, original, candidates = draw.choice(_code())
    file = draw.choice(["original.py", "original.py", "pkg/original.py", draw.choice(_NAMES)])
    before, after = original, draw.choice([original, *candidates])
    lines = list(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{file}",
            f"b/{file}",
        )
    )
    if draw.random() < 0.2:
        lines[:0] = [f"diff --git a/{file} b/{draw.choice(_NAMES)}\n", "new mode 120000\n"]
    text = "".join(lines)
    if draw.random() < 0.4:
        text = change(text, draw)
    patch = text.encode("utf-8", "surrogatepass")
    return name, change_bytes(patch, draw) if draw.random() < 0.4 else patch


def try_patch(draw: Random, place: Path) -> str:
    """A patch for `verify` and `optimize`, applied by git outside of the project."""
    name, patch = draw_patch(draw)
    written = place / "it.patch"
    written.write_bytes(patch)
    original = (_CORPUS / name / "original.py").read_text()
    project = Project(Target("original.py", name), original, _CORPUS / name)
    (proposal,) = from_patches([written], project)
    if proposal.fault and not proposal.reason.strip():
        raise AssertionError("a refused patch has no reason")
    return f"patch {proposal.fault or 'taken'}"


def try_node_patch(draw: Random, place: Path) -> str:
    """The changes that another machine sends, applied to a worktree."""
    top = place / _INSIDE
    top.mkdir()
    (top / "a.py").write_text(_LINES)
    (top / "link").symlink_to(place.parent)
    kinds = (stat.S_IFREG, stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
    written = tuple(
        (_name(draw), Entry(kind, 0o644, 1, draw.choice(["a.py", "..", _OUTSIDE])), b"data")
        for kind in draw.choices(kinds, k=draw.randint(0, 3))
    )
    removed = tuple(_name(draw) for _ in range(draw.randint(0, 2)))
    try:
        Patch(written, removed).apply(top)
    except (ValueError, OSError):
        return "changes of a node refused"
    return "changes of a node taken"


def try_merge(draw: Random, place: Path) -> str:
    """The trees of agents with odd names and contents, merged and applied."""
    root, snapshots = place / _INSIDE, Snapshots(place / "objects")
    bases = [_make_tree(draw, place / "base")]
    base = snapshots.take(place / "base")
    results = []
    for number in range(draw.randint(1, 3)):
        made = place / f"made{number}"
        bases.append(_make_tree(draw, made))
        results.append(Change(f"leaf{number}", base, snapshots.take(made)))
    root.mkdir()
    _make_tree(draw, root)
    strategy = draw.choice(list(MergeStrategy))
    try:
        merged = merge(snapshots, snapshots.take(root), results, strategy=strategy)
        apply(merged, snapshots, root)
    except (AbreastError, OSError) as error:
        return f"merge {type(error).__name__}"
    return "merge applied"


def _make_tree(draw: Random, top: Path) -> Path:
    top.mkdir(exist_ok=True)
    for _ in range(draw.randint(0, 5)):
        name = draw.choice(
            ["a.py", "b/c.txt", "b/c", "b", "d\nx", "-rf", "\udcff", "e/f/g", "A.py"]
        )
        path, content = top / name, change(_LINES, draw).encode("utf-8", "surrogatepass")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(top.resolve()):
                continue
            path.unlink(missing_ok=True)  # it may be a link, and nothing is written through links
            if draw.random() < 0.15:
                path.symlink_to(draw.choice(["a.py", "..", "nowhere", _OUTSIDE]))
            else:
                path.write_bytes(
                    draw.choice([content, b"\x00\xff", content.replace(b"\n", b"\r\n")])
                )
                path.chmod(draw.choice([0o644, 0o755, 0o600]))
        except OSError:
            continue
    return top


def _name(draw: Random) -> str:
    return draw.choice([draw.choice(_NAMES), draw.choice(TOKENS)])


Try = Callable[[Random, Path], str]
_TRIES: Final[tuple[Try, ...]] = (try_candidate, try_patch, try_node_patch, try_merge)
_WEIGHTS: Final = (88, 5, 6, 1)  # git takes long
_USES_FILES: Final = frozenset({try_patch, try_node_patch, try_merge})


def fuzz_patches(tries: int, seed: int) -> Fuzzed:
    """Give broken code and patches to all that read them."""
    found, draw = Fuzzed(), Random(seed)
    for number in range(tries):
        (attempt,) = draw.choices(_TRIES, _WEIGHTS)
        own = Random(seed * 1_000_003 + number)
        if attempt not in _USES_FILES:
            _try(found, attempt, own, Path(), number)
            continue
        with tempfile.TemporaryDirectory(prefix="abreast-fuzz-") as folder:
            place, other = Path(folder, "place"), Path(folder, "outside.txt")
            place.mkdir()
            other.write_text(_LINES)
            other.chmod(0o640)
            _try(found, attempt, own, place, number)
            written = {path.name for path in Path(folder).iterdir()} - {"place", "outside.txt"}
            known = {_INSIDE, "it.patch", "objects", "base", "made0", "made1", "made2"}
            written |= {path.name for path in place.iterdir()} - known
            if not other.exists() or (other.read_text(), other.stat().st_mode & 0o777) != (
                _LINES,
                0o640,
            ):
                written.add(other.name)
            if written:
                found.tries -= 1
                found.break_off(f"{attempt.__name__} wrote {written}", f"number {number}")
    return found


def _try(found: Fuzzed, attempt: Try, draw: Random, place: Path, number: int) -> None:
    try:
        found.end(attempt(draw, place))
    except Exception as error:  # noqa: BLE001 - nothing may come out
        found.break_off(error, f"{attempt.__name__} {number}")
