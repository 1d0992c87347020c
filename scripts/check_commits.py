"""Check how a branch is cut into commits: `python scripts/check_commits.py [--base REF]`.

Looks at the commits that REF does not have, by default `origin/main`. Where there is none, or no
git, it says so and exits 0. Otherwise it exits 1 if

- a subject is empty or longer than 72 characters, or the line beneath it is not empty;
- the code is changed, and no commit of the branch changes a test;
- one commit with code adds a repair and something else to CHANGELOG.md: these are two commits;
- one commit changes the code of two jobs, nothing that they share, and does not name both.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_SUBJECT = 72
CODE, TESTS, CHANGELOG = "src/", "tests/", "CHANGELOG.md"
_JOB = re.compile(r"src/abreast/jobs/(\w+)/")
_SHARED_BY_JOBS = "files"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its message, its files, and the headings of the changelog it adds lines under."""

    name: str
    message: str
    files: tuple[str, ...]
    headings: frozenset[str]

    @property
    def changes_code(self) -> bool:
        """Whether a file of the package is changed."""
        return any(file.startswith(CODE) for file in self.files)

    @property
    def jobs(self) -> set[str]:
        """The jobs whose own code is changed; none if something that they share is changed too."""
        owners = [
            match[1] if (match := _JOB.match(file)) else ""
            for file in self.files
            if file.startswith(CODE)
        ]
        return set() if {"", _SHARED_BY_JOBS} & set(owners) else set(owners)


def main(argv: Sequence[str] | None = None) -> int:
    """Check the commits, print every problem, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--base", default="origin/main", help="the branch that the commits are to be added to"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    given = parser.parse_args(argv)
    names = _git(given.root, "rev-list", "--reverse", "--no-merges", f"{given.base}..HEAD")
    if names is None:
        sys.stdout.write(f"commits are not checked: there is no {given.base} to compare with\n")
        return 0
    commits = [_read(given.root, name) for name in names.split()]
    problems = list(check(commits))
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    sys.stdout.write(f"{len(commits)} commits beyond {given.base}: {len(problems)} problems\n")
    return 1 if problems else 0


def check(commits: Sequence[Commit]) -> Iterator[str]:
    """Yield what is wrong with the commits of a branch."""
    for commit in commits:
        for problem in _problems(commit):
            yield f"{commit.name[:10]}: {problem}"
    changed = [commit.name[:10] for commit in commits if commit.changes_code]
    if changed and not any(file.startswith(TESTS) for commit in commits for file in commit.files):
        yield f"{', '.join(changed)}: the code is changed, and no commit changes a test"


def _problems(commit: Commit) -> Iterator[str]:
    subject, *rest = commit.message.split("\n")
    if not 1 <= len(subject) <= LONGEST_SUBJECT:
        yield f"the subject has {len(subject)} characters, not 1 to {LONGEST_SUBJECT}"
    if rest and rest[0]:
        yield "the line beneath the subject is not empty"
    if commit.changes_code and "Fixed" in commit.headings and len(commit.headings) > 1:
        others = ", ".join(sorted(commit.headings - {"Fixed"}))
        yield f"a repair and something else ({others}) in one commit: make it two"
    if len(commit.jobs) > 1 and not all(job in commit.message for job in commit.jobs):
        jobs = " and ".join(sorted(commit.jobs))
        yield f"it changes {jobs}: make it two commits, or name them in its message"


def _read(root: Path, name: str) -> Commit:
    message = _git(root, "show", "--no-patch", "--format=%B", name) or ""
    files = _git(root, "show", "--name-only", "--format=", "-z", "--no-renames", name) or ""
    return Commit(
        name,
        message.strip("\n"),
        tuple(file for file in files.split("\0") if file),
        _headings(root, name),
    )


def _headings(root: Path, name: str) -> frozenset[str]:
    """The headings of the changelog beneath which a commit adds lines.

    The diff is made with the whole file as context.
    """
    change = _git(root, "show", "--format=", "--unified=1000000", name, "--", CHANGELOG) or ""
    found, heading = set(), ""
    for line in change.splitlines():
        if match := re.match(r"[ +]### (.+)", line):
            heading = match[1].strip()
        elif line.startswith("+") and not line.startswith("+++") and line[1:].strip():
            found.add(heading)
    return frozenset(found)


def _git(root: Path, *words: str) -> str | None:
    """What git says there; None if it refuses, or is not there."""
    command = ["git", "-c", "safe.directory=*", "-c", "core.quotePath=false", *words]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


if __name__ == "__main__":
    raise SystemExit(main())
