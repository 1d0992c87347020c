"""Check that docs/requirements.md is well formed and that every test it names exists.

Tests are looked up by parsing their files, never by importing them, so the check needs nothing
installed.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DOCUMENT = Path("docs/requirements.md")
COLUMNS = ("id", "what is asked", "where", "status", "held by")
SOURCES = ("mellea", "cleveragents", "codeflash", "maestro", "spec-kit")
PARTS = frozenset({"core", "cli", "sample", "workflow", "matrix", "candidates", "plan", "repo"})
STATUSES = frozenset({"held", "open"})
ISSUES = range(1, 11)
FEWEST_ROWS = 90

_ID = re.compile(rf"(?:{'|'.join(SOURCES)})-\d{{2,}}")
_ISSUE = re.compile(r"issue (\d+)")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_PARAMETERS = re.compile(r"\[[^\]]*\]")
_SEPARATOR = re.compile(r"\|[\s:|-]+\|")


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement, as its line of the table says it."""

    line: int
    id: str
    asked: str
    where: tuple[str, ...]
    status: str
    issues: tuple[int, ...]
    tests: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per problem and a summary; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the project's root",
    )
    root: Path = parser.parse_args(argv).root
    try:
        text = (root / DOCUMENT).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{DOCUMENT}: cannot be read: {error}\n")
        return 1
    rows, problems = check(text, root)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    held = sum(row.status == "held" for row in rows)
    sys.stdout.write(f"{len(rows)} rows: {held} held, {len(rows) - held} open\n")
    return 1 if problems else 0


def check(text: str, root: Path) -> tuple[list[Row], list[str]]:
    """Return the well-formed rows of `text` and every problem found, in the order of the lines."""
    rows: list[Row] = []
    found: list[tuple[int, str]] = []
    for line, cells in _table_lines(text):
        row = _parse(line, cells)
        if isinstance(row, Row):
            rows.append(row)
            found += [(line, f"{row.id}: {problem}") for problem in _row_problems(row, root)]
        else:
            found.append((line, f"malformed row: {row}"))
    found += _repeated_ids(rows)
    problems = [f"{DOCUMENT}:{line}: {problem}" for line, problem in sorted(found)]
    if len(rows) < FEWEST_ROWS:
        problems.append(f"{DOCUMENT}: {len(rows)} rows, expected at least {FEWEST_ROWS}")
    return rows, problems


def _table_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each table line that is neither a header nor a separator.

    A line that opens with an id but lacks its outer bars is taken too: it must not drop out of the
    table unseen.
    """
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not (line.startswith("|") or _ID.match(line)) or _SEPARATOR.fullmatch(line):
            continue
        cells = [cell.strip() for cell in _CELL_BORDER.split(line)][1:-1]
        if tuple(cells) != COLUMNS:
            yield number, cells


def _parse(line: int, cells: list[str]) -> Row | str:
    """Return the row that `cells` make, or a sentence saying why they make none."""
    if len(cells) != len(COLUMNS):
        return f"{len(cells)} cells instead of {len(COLUMNS)}"
    id_, asked, where, status, held_by = cells
    parts = tuple(_listed(where))
    if not _ID.fullmatch(id_):
        return f"{id_!r} is no id such as {SOURCES[0]}-07"
    if not asked:
        return f"{id_} asks for nothing"
    if not parts or not PARTS.issuperset(parts):
        return f"{id_} names {where!r} as its part, not some of {', '.join(sorted(PARTS))}"
    if status not in STATUSES:
        return f"{id_} has status {status!r}, neither held nor open"
    references = list(_listed(held_by))
    issues = tuple(int(match[1]) for match in map(_ISSUE.fullmatch, references) if match)
    tests = tuple(reference for reference in references if not _ISSUE.fullmatch(reference))
    return Row(line, id_, asked, parts, status, issues, tests)


def _listed(cell: str) -> Iterator[str]:
    """Yield the entries of a comma-separated cell, without backticks and test parameters."""
    for entry in _PARAMETERS.sub("", cell).split(","):
        if bare := entry.strip().strip("`").strip():
            yield bare


def _repeated_ids(rows: Iterable[Row]) -> Iterator[tuple[int, str]]:
    """Yield the line and the problem of each row whose id an earlier row has."""
    first: dict[str, int] = {}
    for row in rows:
        if first.setdefault(row.id, row.line) != row.line:
            yield row.line, f"{row.id}: id repeated, first on line {first[row.id]}"


def _row_problems(row: Row, root: Path) -> Iterator[str]:
    """Yield what is wrong with what a well-formed row names."""
    if row.status == "held" and not row.tests:
        yield "held, but names no test"
    if row.status == "held" and row.issues:
        yield "held, but still names an issue"
    if row.status == "open" and not row.issues:
        yield "open, but names no issue"
    for issue in row.issues:
        if issue not in ISSUES:
            yield f"issue {issue} is not one of {ISSUES[0]} to {ISSUES[-1]}"
    for test in row.tests:
        if problem := _test_problem(test, root):
            yield problem


def _test_problem(test: str, root: Path) -> str | None:
    """Return why the node id `test` can't be found, or nothing when it can."""
    file, _, name = test.partition("::")
    if not name:
        return f"{test!r} is not the node id of a test"
    if not (root / file).is_file():
        return f"no such test file: {file}"
    try:
        known = _tests_in(root / file)
    except (SyntaxError, ValueError) as error:
        return f"test file {file} cannot be parsed: {error}"
    return None if name in known else f"no such test: {test}"


@cache
def _tests_in(path: Path) -> frozenset[str]:
    """Return the names of the tests that the file defines, those of classes as `Class::test`."""
    return frozenset(_test_names(ast.parse(path.read_text(encoding="utf-8")), prefix=""))


def _test_names(node: ast.AST, prefix: str) -> Iterator[str]:
    """Yield the tests beneath `node`: through classes and blocks, but not inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("test"):
                yield prefix + child.name
        elif isinstance(child, ast.ClassDef):
            yield from _test_names(child, f"{prefix}{child.name}::")
        else:
            yield from _test_names(child, prefix)


if __name__ == "__main__":
    raise SystemExit(main())
