"""The table of requirements is checked against the tests it names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
HEADER = "| id | what is asked | where | status | held by |\n|---|---|---|---|---|\n"
FEWEST = 90


class Check(Protocol):
    """What the tests use of the script."""

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the check."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Load the check from its file, as it is no part of a package."""
    spec = importlib.util.spec_from_file_location(
        "check_requirements", ROOT / "scripts" / "check_requirements.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return cast("Check", module)


class Project:
    """A project in a temporary directory, with enough good rows and a few tests to name."""

    def __init__(self, root: Path, script: Check, capsys: pytest.CaptureFixture[str]) -> None:
        """Write the tests that rows may name, and keep the rows to be written."""
        self.root = root
        self.script = script
        self.capsys = capsys
        self.rows = [
            f"| mellea-{number:02} | A thing. | core | open | issue 1 |"
            for number in range(1, FEWEST + 1)
        ]
        (root / "docs").mkdir()
        (root / "tests").mkdir()
        self.write_tests(
            "import asyncio\n\n"
            "def test_plain(): ...\n\n"
            "async def test_async(): ...\n\n"
            "if asyncio:\n"
            "    def test_conditional(): ...\n\n"
            "class TestGroup:\n"
            "    def test_method(self): ...\n\n"
            "def helper():\n"
            "    def test_inner(): ...\n"
        )

    def write_tests(self, text: str) -> None:
        """Replace the file of tests that rows may name."""
        (self.root / "tests" / "test_it.py").write_text(text, encoding="utf-8")

    def check(self) -> tuple[int, str, list[str]]:
        """Return the exit code, the summary and the problems."""
        document = self.root / "docs" / "requirements.md"
        document.write_text(HEADER + "\n".join(self.rows) + "\n", encoding="utf-8")
        code = self.script.main(["--root", str(self.root)])
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err.splitlines()

    def only_problem_with(self, row: str) -> str:
        """Return the one problem that the last row causes."""
        self.rows[-1] = row
        code, _, problems = self.check()
        assert code == 1
        assert len(problems) == 1, problems
        return problems[0]


@pytest.fixture
def project(tmp_path: Path, script: Check, capsys: pytest.CaptureFixture[str]) -> Project:
    """Return a project whose table passes as it stands."""
    return Project(tmp_path, script, capsys)


def test_the_table_of_this_project_passes(
    script: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    code = script.main([])

    printed = capsys.readouterr()
    assert printed.err == ""
    assert code == 0
    assert " rows: " in printed.out


def test_good_rows_pass_and_are_counted(project: Project) -> None:
    project.rows[0] = (
        "| mellea-01 | A thing. | core, sample | held | `tests/test_it.py::test_plain` |"
    )

    assert project.check() == (0, "90 rows: 1 held, 89 open\n", [])


@pytest.mark.parametrize(
    "reference",
    [
        "tests/test_it.py::test_plain",
        "tests/test_it.py::test_async",
        "tests/test_it.py::test_conditional",
        "tests/test_it.py::TestGroup::test_method",
        "tests/test_it.py::test_plain[1, two::three]",
        "tests/test_it.py::test_plain[a], tests/test_it.py::TestGroup::test_method[b-c]",
    ],
)
def test_an_existing_test_is_found(project: Project, reference: str) -> None:
    project.rows[-1] = f"| spec-kit-01 | A thing. | core | held | {reference} |"

    code, _, problems = project.check()

    assert (code, problems) == (0, [])


@pytest.mark.parametrize(
    "reference",
    [
        "tests/test_it.py::test_absent",
        "tests/test_it.py::test_method",
        "tests/test_it.py::TestGroup::test_plain",
        "tests/test_it.py::test_inner",
        "tests/test_it.py::helper",
        "tests/test_it.py::TestGroup",
    ],
)
@pytest.mark.parametrize("status", ["held", "open"])
def test_a_missing_test_is_a_problem(project: Project, reference: str, status: str) -> None:
    rest = reference if status == "held" else f"{reference}, issue 4"

    problem = project.only_problem_with(f"| mellea-90 | A thing. | core | {status} | {rest} |")

    assert problem == f"docs/requirements.md:92: mellea-90: no such test: {reference}"


def test_a_missing_test_file_is_a_problem(project: Project) -> None:
    problem = project.only_problem_with(
        "| mellea-90 | A thing. | core | held | tests/test_gone.py::test_plain |"
    )

    assert problem.endswith("no such test file: tests/test_gone.py")


def test_a_file_alone_is_no_test(project: Project) -> None:
    problem = project.only_problem_with("| mellea-90 | A thing. | core | held | tests/test_it.py |")

    assert problem.endswith("'tests/test_it.py' is not the node id of a test")


def test_a_test_file_that_does_not_parse_is_a_problem(project: Project) -> None:
    project.write_tests("def test_plain(:\n")

    problem = project.only_problem_with(
        "| mellea-90 | A thing. | core | held | tests/test_it.py::test_plain |"
    )

    assert "tests/test_it.py cannot be parsed" in problem


def test_a_repeated_id_is_a_problem(project: Project) -> None:
    problem = project.only_problem_with(project.rows[0])

    assert problem == "docs/requirements.md:92: mellea-01: id repeated, first on line 3"


@pytest.mark.parametrize("held_by", ["", "  ", "``"])
def test_a_held_row_names_a_test(project: Project, held_by: str) -> None:
    problem = project.only_problem_with(f"| mellea-90 | A thing. | core | held | {held_by} |")

    assert problem.endswith("mellea-90: held, but names no test")


def test_a_held_row_names_no_issue(project: Project) -> None:
    problem = project.only_problem_with(
        "| mellea-90 | Things. | core | held | tests/test_it.py::test_plain, issue 1 |"
    )

    assert problem.endswith("mellea-90: held, but still names an issue")


@pytest.mark.parametrize("held_by", ["", "tests/test_it.py::test_plain"])
def test_an_open_row_names_an_issue(project: Project, held_by: str) -> None:
    problem = project.only_problem_with(f"| mellea-90 | A thing. | core | open | {held_by} |")

    assert problem.endswith("mellea-90: open, but names no issue")


@pytest.mark.parametrize("number", [0, 11])
def test_an_issue_is_one_of_ten(project: Project, number: int) -> None:
    problem = project.only_problem_with(f"| mellea-90 | A thing. | core | open | issue {number} |")

    assert problem.endswith(f"mellea-90: issue {number} is not one of 1 to 10")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("| mellea-90 | A thing. | core | open |", "4 cells instead of 5"),
        ("| mellea-90 | A | thing. | core | open | issue 1 |", "6 cells instead of 5"),
        ("mellea-91 | A thing. | core | open | issue 1 |", "4 cells instead of 5"),
        ("| mellea-91 | A thing. | core | open | issue 1", "4 cells instead of 5"),
        ("| melon-90 | A thing. | core | open | issue 1 |", "'melon-90' is no id"),
        ("| mellea-9 | A thing. | core | open | issue 1 |", "'mellea-9' is no id"),
        ("| mellea-90 |  | core | open | issue 1 |", "asks for nothing"),
        ("| mellea-90 | A thing. | kernel | open | issue 1 |", "'kernel' as its part"),
        ("| mellea-90 | A thing. |  | open | issue 1 |", "'' as its part"),
        ("| mellea-90 | A thing. | core | closed | issue 1 |", "status 'closed'"),
    ],
)
def test_a_malformed_row_is_a_problem(project: Project, row: str, reason: str) -> None:
    project.rows.append(row)

    code, summary, problems = project.check()

    assert (code, summary) == (1, "90 rows: 0 held, 90 open\n")
    assert [
        problem.startswith("docs/requirements.md:93: malformed row: ") for problem in problems
    ] == [True]
    assert reason in problems[0]


def test_an_escaped_bar_stays_inside_its_cell(project: Project) -> None:
    project.rows[-1] = r"| mellea-90 | This \| that. | core | open | issue 1 |"

    assert project.check()[0] == 0


def test_too_few_rows_are_a_problem(project: Project) -> None:
    del project.rows[-1]

    assert project.check() == (
        1,
        "89 rows: 0 held, 89 open\n",
        ["docs/requirements.md: 89 rows, expected at least 90"],
    )


def test_every_problem_is_reported_in_the_order_of_the_lines(project: Project) -> None:
    project.rows[4] = "| mellea-05 | A thing. | core | open | issue 12 |"
    project.rows[2] = "| mellea-03 | A thing. | core | held | |"

    _, _, problems = project.check()

    assert [problem.split(":")[1] for problem in problems] == ["5", "7"]


def test_a_missing_document_is_a_problem(
    script: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--root", str(tmp_path)]) == 1

    assert capsys.readouterr().err.startswith("docs/requirements.md: cannot be read: ")
