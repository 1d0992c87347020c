"""The records of candidates: which one wins, the report, the specification, the model author."""

import json
from dataclasses import replace

import pytest

from abreast.assembly.names import open_run
from abreast.jobs.candidates.author import AgentAuthor, ModelAuthor, blocks_of
from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.report import CandidatesReport
from abreast.jobs.candidates.results import (
    Checked,
    Diff,
    ProfiledLine,
    Timed,
    Tried,
    best_of,
    size_of,
)
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.spec import CandidatesSpec
from abreast.models.port import Reply

TARGET = Target("pkg/mod.py", "f")
ORIGINAL = "def f(x):\n    return x + 1\n"
HOSTILE = "</pre><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"


def one(name, ratio, size=1, verdict="faster", spread=0.05, **more):
    timed = Timed(verdict, "", ratio, ratio * (1 - spread), ratio * (1 + spread), 0.01, 10)
    return Tried(
        name, "file", None, verdict, "", f"# {name}\n", size, Checked("same"), timed, **more
    )


# --- the winner


def test_the_fastest_wins():
    assert best_of([one("a", 2), one("b", 4, size=50), one("c", 3)]).name == "b"


def test_of_those_that_cannot_be_told_apart_the_smallest_change_wins_then_the_earliest():
    assert (
        best_of([one("a", 4.0, size=9), one("b", 4.1, size=50), one("c", 3.9, size=9)]).name == "a"
    )


def test_a_wide_interval_is_no_reason_to_take_one_that_is_probably_much_slower():
    assert (
        best_of([one("a", 10, size=1, spread=0.6), one("b", 30, size=50, spread=0.7)]).name == "b"
    )


def test_nobody_wins_who_is_not_faster():
    assert (
        best_of(
            [
                one("a", 9, verdict="wrong"),
                one("b", 9, verdict="undecided"),
                one("c", 2, verdict="duplicate"),
            ]
        )
        is None
    )
    assert best_of([]) is None


def test_the_size_of_a_change_is_its_lines():
    assert size_of("a\nb\nc\n", "a\nB\nc\nd\n") == 3
    assert size_of("a\n", "a\n") == 0
    assert size_of("--- x\n", "+++ y\n") == 2


# --- the report


def report():
    diff = Diff("f(3)", "returned", "different", "$", "4", HOSTILE, HOSTILE)
    test = Diff("test_f", "test", "different", "$", "passed", "failed", "the test is failed")
    wrong = Tried(
        "wrong",
        "model",
        None,
        "wrong",
        "it " + "x" * 300,
        HOSTILE,
        1,
        Checked("wrong", "", (test, diff), 3, 2, 9, HOSTILE),
    )
    fast = replace(one("fast", 2.0), text=f"def f(x):\n    return '{HOSTILE}'\n")
    fast = replace(
        fast, timed=replace(fast.timed, regressions=(HOSTILE,), notes=(HOSTILE,), memory_ratio=1.5)
    )
    again = Tried(
        HOSTILE,
        "file",
        "fast",
        "duplicate",
        "it is the same code as fast",
        of="fast",
        checked=fast.checked,
    )
    return CandidatesReport(
        TARGET, ORIGINAL, [wrong, fast, again], profile=[ProfiledLine(2, 3, 0.1)]
    )


def test_the_json_has_exactly_the_words_that_are_promised():
    found = report().plain()
    assert list(found) == [
        "target",
        "baseline",
        "candidates",
        "winner",
        "noise_floor",
        "confinement",
        "unconfined",
        "uncounted",
        "uncompared",
        "timing",
        "processes",
        "phases",
        "branch",
    ]
    words = [
        "name",
        "origin",
        "parent",
        "verdict",
        "reason",
        "ratio",
        "interval",
        "memory_ratio",
        "instruction_ratio",
        "notes",
        "files",
        "diffs",
        "behaviour",
    ]
    assert all(list(each) == words for each in found["candidates"])
    assert list(found["candidates"][0]["behaviour"]) == [
        "tests",
        "passed",
        "invocations",
        "stdout",
        "stderr",
        "evidence",
    ]
    assert found["candidates"][1]["interval"] == [1.9, 2.1]
    assert found["candidates"][0]["diffs"][1]["original"] == "4"
    assert (found["winner"], found["noise_floor"], found["target"]) == (
        "fast",
        0.01,
        "pkg/mod.py::f",
    )
    json.dumps(found)


def test_the_page_fetches_and_runs_nothing_whatever_is_in_it():
    page = report().html({"run": HOSTILE})
    assert "<script" not in page
    assert "<img" not in page
    assert "default-src 'none'" in page
    assert "&lt;script&gt;" in page
    assert "http-equiv" in page
    assert page.count("http") == page.count("http-equiv") + page.count("http://evil.example")


def test_the_table_is_short_and_the_counterexample_whole():
    found = report()
    assert all(len(row[-1]) <= 160 for row in found.rows())
    assert found.counterexamples() == [
        f"wrong is wrong: f(3): returned: {HOSTILE} (original 4, candidate {HOSTILE})"
    ]
    assert found.headline() == "fast behaves like the original and is 2.00x [1.90, 2.10] as fast"
    assert CandidatesReport(TARGET, ORIGINAL, []).headline() == "there are no candidates"
    assert "none of 1" in CandidatesReport(TARGET, ORIGINAL, found.tried[:1]).headline()


# --- the specification


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"targets": "x"}, "there is no 'targets'; did you mean target"),
        ({"target": "a.py::f"}, "nothing calls the target: give tests, or doctests"),
        ({"target": "a.py::f", "tests": "t.py"}, "candidates come from one of"),
        (
            {"target": "a.py::f", "tests": "t.py", "candidates": "d", "patches": "d"},
            "given: candidates, patches",
        ),
        (
            {"target": "a.py::f", "tests": "t.py", "candidates": "d", "width": -1},
            "width must be a whole number",
        ),
        (
            {"target": "a.py::f", "tests": "t.py", "candidates": "d", "compare": "lax"},
            "compare must be strict or loose",
        ),
        ({"target": "a.py::f", "tests": 3, "candidates": "d"}, "tests must be a list"),
    ],
)
def test_a_spec_says_what_is_wrong_with_it(facts, said):
    with pytest.raises(ValueError, match=said):
        CandidatesSpec.of(facts)


def test_a_report_says_which_walls_are_missing_and_why_nothing_was_counted():
    watched = Watched(
        1,
        1,
        (),
        (),
        "",
        "",
        None,
        "",
        ("memory",),
        unconfined={"network": "Operation not permitted"},
    )
    timed = Timed("faster", "", 2.0, 1.9, 2.1, uncounted="this machine has no counter for them")
    found = CandidatesReport(TARGET, ORIGINAL, [replace(one("a", 2), timed=timed)], watched)
    assert found.walls == "memory; missing here: network (Operation not permitted)"
    plain = found.plain()
    assert (plain["confinement"], plain["unconfined"]) == (
        ["memory"],
        {"network": "Operation not permitted"},
    )
    assert plain["uncounted"] == "this machine has no counter for them"
    assert plain["candidates"][0]["instruction_ratio"] is None
    page = found.html({})
    assert "missing here: network (Operation not permitted)" in page
    assert "not counted: this machine has no counter for them" in page
    counted = CandidatesReport(
        TARGET,
        ORIGINAL,
        [replace(one("a", 2), timed=replace(timed, uncounted="", instruction_ratio=0.5))],
    )
    assert counted.plain()["candidates"][0]["instruction_ratio"] == 0.5
    assert (counted.plain()["uncounted"], counted.plain()["unconfined"]) == (None, {})
    assert counted.walls == "nothing was run"


def test_a_spec_survives_its_manifest():
    spec = CandidatesSpec.of(
        {"target": "a.py::f", "tests": "t.py", "refs": ["a", "b"], "width": 0, "model": "m/x"}
    )
    assert (
        CandidatesSpec.of(
            {word: value for word, value in spec.plain().items() if value is not None}
        )
        == spec
    )


# --- a model as the author


class Model:
    """Replies with prepared lines, one by one, and records the prompts."""

    def __init__(self, *lines):
        self.lines, self.asked = list(lines), []

    async def ask(self, prompt, *, system=None):
        self.asked.append(prompt)
        return Reply(self.lines.pop(0))


def test_code_blocks_are_taken_from_a_reply_whatever_is_around_them():
    assert blocks_of("Sure!\n```python\na\n```\nand\n```\nb\n```\n") == ["a\n", "b\n"]
    assert blocks_of("def f(x): ...") == ["def f(x): ..."]
    assert blocks_of("  ") == []


async def test_a_model_is_asked_for_so_many_and_one_that_fails_loses_no_other():
    model = Model("```python\none\n```", "two")

    async def ask(prompt, *, system=None):
        if "approach 2 of 3" in prompt:
            raise ConnectionError("gone")
        return await Model.ask(model, prompt, system=system)

    author = ModelAuthor(TARGET, ORIGINAL, model)
    model.ask = ask
    async with open_run("optimize") as run:
        found = await author.propose(run, 3, 1)
    assert [(each.name, each.text, each.fault) for each in found] == [
        ("draft-1", "one\n", None),
        ("draft-2", "", "error"),
        ("draft-3", "two", None),
    ]
    assert all(ORIGINAL.strip() in prompt for prompt in model.asked)


async def test_a_repair_is_told_what_differs_and_refinement_is_one_request_for_all():
    model = Model("```python\nrepaired\n```", "```\nx\n```\n```\ny\n```\n```\nz\n```", "adapted")
    author = ModelAuthor(TARGET, ORIGINAL, model)
    diff = Diff("f(3)", "returned", "different", "$", "4", "5", "the values differ")
    checked = Checked("wrong", "", (diff,) * 12, invocations=20)
    assert await author.repair("def f(x):\n    return x + 2\n", checked) == "repaired\n"
    assert "f(3): returned: the values differ (original 4, candidate 5)" in model.asked[0]
    assert "and 2 more" in model.asked[0]
    assert list(await author.refine([one("a", 2), one("b", 3)])) == ["x\n", "y\n"]
    assert "2.00 times as fast" in model.asked[1]
    assert "Candidate 2 (3.00 times as fast)" in model.asked[1]
    assert await author.adapt([one("first", 2), one("second", 3)]) == "adapted"
    assert model.asked[2].index("first") < model.asked[2].index("second")
    assert len(model.asked) == 3


async def test_an_agent_is_shown_the_best_so_far_and_where_their_time_goes():
    asked = []

    class Agent:
        async def edit(self, prompt, file):
            asked.append((prompt, file))
            return "def f(x): ..."

    author = AgentAuthor(TARGET, ORIGINAL, Agent())
    best = replace(
        one("b", 3),
        text="def f(x):\n    y = x\n    return y\n",
        profile=(ProfiledLine(2, 10, 0.75), ProfiledLine(3, 10, 0.25), ProfiledLine(9, 1, 0.0)),
    )
    assert list(await author.refine([one("a", 2), best])) == ["", "def f(x): ..."]
    ((prompt, file),) = asked
    assert file == TARGET.file
    assert "Candidate 2 (3.00 times as fast)" in prompt
    assert "75%        10 times  y = x\n 25%        10 times  return y" in prompt
    assert f"Edit the function in the file {TARGET.file}" in prompt
    assert "code block" not in prompt
