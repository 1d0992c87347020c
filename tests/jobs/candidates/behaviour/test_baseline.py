"""An original that can't be compared with: each case has its own message, with pytest's lines."""

import pickle
from dataclasses import replace

import pytest

from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed, check_baseline
from abreast.jobs.candidates.values.invocation import observe
from tests.jobs.candidates.watched import open_project

CALL = observe("t.py::test#0", lambda: 1)
GOOD = Watched(1, 1, (("t.py::test", "passed"),), (CALL,), "1 passed", "", None, "", (), exit=0)
NONE = replace(GOOD, tests=0, passed=0, outcomes=(), invocations=(), stdout="")


def refused(watched):
    with pytest.raises(BaselineFailed) as caught:
        check_baseline(watched, "f", "/slot")
    return caught.value


def test_one_test_that_passes_and_calls_it_is_enough():
    check_baseline(GOOD, "f", "/slot")
    check_baseline(
        replace(GOOD, outcomes=(*GOOD.outcomes, ("u.py", "error")), exit=1), "f", "/slot"
    )


@pytest.mark.parametrize(
    ("watched", "said", "usage"),
    [
        (
            replace(NONE, failure="error", reason="no pytest", exit=None),
            "can't be run on the code as it is",
            False,
        ),
        (
            replace(
                NONE, outcomes=(("t.py", "error"),), messages={"t.py": "ImportError: no"}, exit=1
            ),
            "pytest can't collect t.py: ImportError: no",
            False,
        ),
        (
            replace(NONE, outcomes=(("t.py", "error"), ("u.py", "error")), exit=1),
            "collect t.py and 1 more",
            False,
        ),
        (replace(NONE, failure="error", reason="not found", exit=4), "not found", True),
        (
            replace(NONE, failure="error", reason="there are no tests in it", exit=5),
            "no tests in it",
            True,
        ),
        (replace(NONE, outcomes=(("t.py::a", "skipped"),), exit=3), "pytest itself failed", False),
        (
            replace(
                NONE, outcomes=(("t.py::a", "failed"),), messages={"t.py::a": "KeyError: 1"}, exit=1
            ),
            "no test calls f; t.py::a failed before that: KeyError: 1",
            False,
        ),
        (
            replace(GOOD, passed=0, outcomes=(("t.py::a", "failed"),), exit=1),
            "no test passes",
            False,
        ),
        (
            replace(NONE, outcomes=(("t.py::a", "passed"),), exit=0),
            "no test calls f: name tests",
            False,
        ),
    ],
)
def test_each_is_told_as_what_it_is(watched, said, usage):
    error = refused(watched)
    assert said in str(error)
    assert error.usage is usage


def test_the_last_lines_of_pytest_are_kept_without_the_place_of_the_slot():
    output = "\n".join(f"line {number} of /slot/t.py" for number in range(40))
    error = refused(
        replace(NONE, stdout=output, stderr="ERROR: the end\n", exit=4, failure="error", reason="r")
    )
    assert error.said[-2:] == ("line 39 of t.py", "ERROR: the end")
    assert len(error.said) == 12


def test_of_a_crash_the_place_is_shown():
    dump = "Fatal Python error: Aborted\n" + "\n".join(f"  File {number}" for number in range(40))
    error = refused(
        replace(NONE, stderr=f"a warning\n{dump}", failure="refused", reason="signal 6", exit=None)
    )
    assert error.said[:2] == ("Fatal Python error: Aborted", "  File 0")


HOOK = "def pytest_collection_modifyitems(items):\n    raise RuntimeError('broken hook')\n"
UNTRUE = "from words import count\n\n\ndef test_it():\n    assert count('')\n"
BROKEN = "import words\n\n\ndef test_it():\n    assert words.nothing\n"
ELSEWHERE = "def test_it():\n    assert 1\n"


@pytest.mark.usefixtures("unconfined")
@pytest.mark.parametrize(
    ("files", "said", "line", "usage"),
    [
        ({"conftest.py": HOOK}, "pytest itself failed", "RuntimeError: broken hook", False),
        ({"test_words.py": "import words\n"}, "no tests in it", "no tests ran", True),
        ({"test_words.py": ELSEWHERE}, "no test imports the target's file", "1 passed", False),
        ({"test_words.py": UNTRUE}, "no test passes on the code as it is", "1 failed", False),
        (
            {"test_words.py": BROKEN},
            "no test calls count; test_words.py::test_it failed before that: AttributeError",
            "AttributeError",
            False,
        ),
    ],
    ids=["hook", "none", "elsewhere", "untrue", "broken"],
)
async def test_what_pytest_itself_says_is_told_with_its_lines(tmp_path, files, said, line, usage):
    code = "def count(text):\n    return {}\n"
    files = {"words.py": code, "test_words.py": UNTRUE, **files}
    async with open_project(tmp_path / "p", files) as project:
        watched = await project.watch()
    with pytest.raises(BaselineFailed) as caught:
        check_baseline(watched, "count", str(project.slot.path))
    assert said in str(caught.value)
    assert caught.value.usage is usage
    assert any(line in one for one in caught.value.said), caught.value.said


def test_it_can_be_pickled_like_every_error():
    error = pickle.loads(pickle.dumps(BaselineFailed("why", ("one", "two"), usage=True)))
    assert (str(error), error.said, error.usage) == ("why", ("one", "two"), True)
