"""`abreast.optimize`: where candidates come from, what the result has, and what a resume repeats.

All but the first tests have an evaluator that reads the verdict from the candidate, in real
worktrees: to measure takes seconds.
"""

import functools
import importlib.util
import inspect
import types
from contextlib import closing
from dataclasses import replace

import pytest

import abreast
from abreast import sync
from abreast.agents.runner import AgentUnknown
from abreast.assembly import candidates_tools
from abreast.assembly.verbs.optimize import optimize, place_of
from abreast.cli.errors import UsageError
from abreast.cli.jobs.candidates.driver import CandidatesDriver
from abreast.core.errors import BudgetSpent, ModelUnknown, NoSuchRun
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import ScriptedModel
from tests.agents.stubs import stub_toml, write_stub
from tests.jobs.candidates.laboratories import ORIGINAL, FakeEvaluator, text_of, word_of
from tests.jobs.candidates.projects import WRONG, make_sums
from tests.worktrees.repositories import ENVIRONMENT, fingerprint, git, make_repository, worktrees


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ABREAST_LOCKS", str(tmp_path))


class Judge(FakeEvaluator):
    """Judges by the candidate's word; what the original did is unknown."""

    seen = property(lambda _: False, lambda _, value: None)


@pytest.fixture
def judge(monkeypatch):
    """The evaluator of all runs of a test."""
    evaluator = Judge()
    monkeypatch.setattr(candidates_tools, "Evaluator", lambda *_, **__: evaluator)
    monkeypatch.setattr(candidates_tools, "_check_pytest", lambda *_: None)
    return evaluator


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The working directory: a project with one function, `pkg/mod.py::f`."""
    files = {"pkg/mod.py": ORIGINAL, "pkg/__init__.py": "", "test_mod.py": ""}
    place = make_repository(tmp_path / "project", files)
    monkeypatch.chdir(place)
    return place


def trying(**options):
    return optimize("pkg/mod.py::f", **{"tests": "test_mod.py", **options})


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_function_is_found_by_itself_and_judged_by_its_real_tests(tmp_path, monkeypatch):
    project = make_sums(tmp_path / "project")
    monkeypatch.chdir(project)
    pairs = imported(project / "sums.py").pairs
    before = fingerprint(project)
    result = await abreast.optimize(
        pairs,
        tests=project / "test_sums.py",
        candidates=[WRONG],
        generated=0,
    )
    assert result.target == "sums.py::pairs"
    assert [(one.name, one.verdict) for one in result.candidates] == [("candidate-1", "wrong")]
    assert "original 2, candidate 1" in result.candidates[0].reason
    assert (result.best, result.patch, result.run) == (None, "", "")
    assert fingerprint(project) == before
    assert worktrees(project) == []


async def test_candidates_are_texts_files_patches_and_directories(project, judge, tmp_path):
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    (drafts / "b.py").write_text(text_of("wrong b"))
    (drafts / "c.py").write_text(text_of("same c"))
    (tmp_path / "d.py").write_text(text_of("fast2 d"))
    result = await trying(candidates=[text_of("fast3 a"), drafts, str(tmp_path / "d.py")])
    assert [(one.name, one.origin, one.verdict) for one in result.candidates] == [
        ("candidate-1", "text", "faster"),
        ("b", "file", "wrong"),
        ("c", "file", "same"),
        ("d", "file", "faster"),
    ]
    best = result.best
    assert (best.name, best.speedup, best.source) == ("candidate-1", 3.0, text_of("fast3 a"))
    assert best.interval == pytest.approx((2.7, 3.3))
    assert result.patch.startswith("--- a/pkg/mod.py\n+++ b/pkg/mod.py\n")
    alone = await trying(candidates=str(drafts))
    assert [one.name for one in alone.candidates] == ["b", "c"]


async def test_the_result_is_rows_a_page_and_a_table_in_which_all_is_escaped(
    project, judge, tmp_path
):
    judge.check = escaping(judge.check)
    result = await trying(candidates=[text_of("fast3 <b>"), text_of("wrong <i>")])
    first, second = result.rows()
    assert (first["candidate"], first["verdict"], first["best"]) == ("candidate-1", "faster", True)
    assert (first["speedup"], first["low"], first["high"]) == (3.0, 2.7, pytest.approx(3.3))
    assert (second["reason"], second["speedup"], second["best"]) == ("<script>", None, False)
    table = result._repr_html_()
    assert "&lt;script&gt;" in table
    assert "<script" not in table
    page = result.report(tmp_path / "report.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert len(repr(result)) < 120
    assert "candidate-1" in repr(result)


async def test_the_best_becomes_a_branch_and_what_stands_in_the_way_is_said_first(
    project, judge, monkeypatch
):
    git(project, "config", "user.name", "a")
    git(project, "config", "user.email", "a@example.com")
    said = []
    result = await trying(candidates=[text_of("fast3")], branch="faster", notify=said.append)
    assert git(project, "show", "faster:pkg/mod.py") == result.best.source
    assert "Run: in memory, candidate candidate-1" in git(project, "log", "-1", "faster")
    assert git(project, "rev-parse", "faster").strip() == result.branch.commits[0]
    assert result.plain()["branch"]["name"] == "faster"
    checks = len(judge.times("check"))
    with pytest.raises(ValueError, match="there is a branch faster already"):
        await trying(candidates=[text_of("fast3")], branch="faster")
    with pytest.raises(ValueError, match="without timing there is none"):
        await trying(candidates=[text_of("fast3")], branch="other", timing=False)
    assert len(judge.times("check")) == checks
    none = await trying(candidates=[text_of("same")], branch="other")
    assert (none.branch, git(project, "branch", "--list", "other")) == (None, "")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "no date")  # git refuses it, at the very end
    unmade = await trying(candidates=[text_of("fast3")], branch="other", notify=said.append)
    assert (unmade.best is not None, unmade.branch) == (True, None)
    assert said[-1].startswith("the branch other was not made: git commit-tree")


def escaping(check):
    async def checked(slot, text, files=()):
        found = await check(slot, text, files)
        return found if found.verdict == "same" else replace(found, reason="<script>")

    return checked


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_author_is_a_function_that_gets_the_task(project, judge, kind):
    tasks = []

    def write(task):
        tasks.append(task)
        if task.number == 3:
            raise OSError("no more ideas")
        return f"Like this:\n```python\n{text_of(f'fast{task.number + 1} x')}```\n"

    async def write_later(task):
        return write(task)

    result = await trying(author=write if kind == "plain" else write_later, proposals=3)
    assert [(one.name, one.origin, one.verdict) for one in result.candidates] == [
        ("draft-1", "function", "faster"),
        ("draft-2", "function", "faster"),
        ("draft-3", "function", "error"),
    ]
    assert result.candidates[2].reason == "the author raised OSError: no more ideas"
    assert result.best.name == "draft-2"
    task = next(one for one in tasks if one.number == 1)
    assert (task.target, task.source, task.count) == ("pkg/mod.py::f", ORIGINAL, 3)
    assert task.file == project / "pkg/mod.py"


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_author_may_only_repair_or_only_refine(project, judge, kind):
    def repair(text, checked):
        assert checked.diffs
        return text_of(f"fast2 after {word_of(text)}")

    def refine(faster):
        return [text_of(f"fast9 after {word_of(one.text)}") for one in faster]

    async def repair_later(text, checked):
        return repair(text, checked)

    async def refine_later(faster):
        return refine(faster)

    author = types.SimpleNamespace(repair=repair if kind == "plain" else repair_later)
    result = await trying(candidates=[text_of("wrong a")], author=author)
    assert [(one.origin, one.verdict) for one in result.candidates] == [
        ("text", "wrong"),
        ("repair", "faster"),
    ]
    author = types.SimpleNamespace(refine=refine if kind == "plain" else refine_later)
    result = await trying(candidates=[text_of("wrong b"), text_of("fast3 b")], author=author)
    assert [(one.origin, one.verdict) for one in result.candidates] == [
        ("text", "wrong"),
        ("text", "faster"),
        ("refinement", "faster"),
    ]
    assert result.best.speedup == 9.0


AGENT = """
open(os.environ["ABREAST_CACHE"] + "/asked", "a").write(" ".join(sys.argv[1:]) + task[:5] + "\\n")
text = open("pkg/mod.py").read()
open("pkg/mod.py", "w").write(TEXTS[1 if "does not do what" in task else 0])
end("done", cost=0.25)
"""


async def test_an_author_may_be_a_coding_agent_that_edits_the_file_in_a_tree(
    project, judge, tmp_path
):
    texts = f"TEXTS = {[text_of('wrong a'), text_of('fast3 repaired')]!r}"
    stub = write_stub(tmp_path, texts + AGENT)
    (project / "abreast.toml").write_text(f"{stub_toml(stub)}[lanes.stub]\nwidth = 1\n")
    (tmp_path / "cache").mkdir()
    store = tmp_path / "runs.db"
    result = await trying(
        author="stub", proposals=2, allow="run", refine=False, store=store, budget="5usd"
    )
    assert [(one.name, one.verdict) for one in result.candidates] == [
        ("draft-1", "wrong"),
        ("draft-1-repaired", "faster"),
        ("draft-2", "duplicate"),
    ]
    asked = (tmp_path / "cache/asked").read_text().splitlines()
    assert len(asked) == 3
    assert all(line.startswith("--run") for line in asked)
    assert (project / "pkg/mod.py").read_text() == ORIGINAL
    with closing(SqliteStore(store)) as opened:
        row = opened.get(result.run)
        assert row.spent["usd"] == 0.75
        facts = row.manifest["candidates"]
        assert (facts["spec"]["author"], facts["program"]) == ("stub", None)


async def test_the_budget_of_an_agent_may_be_an_object_and_ends_it(project, judge, tmp_path):
    texts = f"TEXTS = {[text_of('fast2 a')] * 2!r}"
    stub = write_stub(tmp_path, texts + AGENT)
    (project / "abreast.toml").write_text(stub_toml(stub))
    (tmp_path / "cache").mkdir()
    with pytest.raises(BudgetSpent):
        await trying(author="stub", proposals=3, width=1, budget=abreast.Budget(usd=0.3))


async def test_an_author_may_be_a_model_that_is_open(project, judge):
    replies = [text_of("fast2 a"), text_of("wrong b"), text_of("fast3 repaired")]
    model = ScriptedModel(replies)
    result = await trying(author=model, proposals=2, width=1, refine=False)
    assert [(one.origin, one.verdict) for one in result.candidates] == [
        ("model", "faster"),
        ("model", "wrong"),
        ("repair", "faster"),
    ]


async def test_a_run_that_was_stopped_goes_on_and_repeats_nothing(project, judge, tmp_path):
    store = tmp_path / "runs.db"
    given = {"candidates": [text_of(f"fast{at} x") for at in range(2, 5)], "store": store}
    with pytest.raises(BudgetSpent) as raised:
        await trying(**given, budget="7req", width=1)
    assert raised.value.__notes__[0].startswith("so far: ")
    first = list(judge.done)
    assert 0 < len(first) < 8
    result = await trying(**given, budget="50req", width=1)
    assert (result.run, result.best.speedup) == ("optimize-1", 4.0)
    # once each: the original, three checks, three measurements, the profile of the best
    assert sorted(judge.done) == sorted(set(judge.done))
    assert len(judge.done) == 8
    assert judge.done[: len(first)] == first


async def test_a_run_with_other_arguments_is_another_run(project, judge, tmp_path):
    store = tmp_path / "runs.db"
    with pytest.raises(BudgetSpent):
        await trying(candidates=[text_of("fast2 a")], store=store, budget="2req")
    with pytest.raises(ValueError, match="optimize-1 was started with other arguments"):
        await trying(candidates=[text_of("fast2 b")], store=store, resume="must")
    other = await trying(candidates=[text_of("fast2 b")], store=store)
    assert other.run == "optimize-2"
    with pytest.raises(NoSuchRun):
        await trying(candidates=[text_of("fast2 b")], store=store, resume="must")


async def test_the_command_line_leaves_a_program_s_run_to_the_program(project, judge, tmp_path):
    store = tmp_path / "runs.db"
    await trying(candidates=[text_of("fast2 a")], store=store)
    with closing(SqliteStore(str(store))) as opened:
        row = opened.get("optimize-1")
    assert row.kind == "candidates"
    with pytest.raises(UsageError, match="come from a Python program"):
        CandidatesDriver.of_run(None, row, {"budget": None}, ())


def test_the_blocking_twin_waits_for_the_result(project, judge):
    result = sync.optimize("pkg/mod.py::f", tests="test_mod.py", candidates=[text_of("fast2 a")])
    assert result.best.speedup == 2.0


# --- arguments


def outer():
    def inner():
        pass

    return inner


def typed():
    """A function as it is typed into an interpreter."""
    names = {}
    exec(compile("def typed(): pass", "<stdin>", "exec"), names)
    return names["typed"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x: x, "a lambda can't be optimized"),
        (outer(), "outer.<locals>.inner is inside of another function"),
        (len, "len is not a function that is written in Python"),
        (FakeEvaluator, "FakeEvaluator is not a function"),
        (functools.partial(outer), "partial.* is not a function"),
        (typed(), "typed is in no file"),
        (3, "3 is not a function"),
    ],
)
def test_what_has_no_place_in_a_file_is_a_sentence(given, words):
    with pytest.raises(TypeError, match=words) as raised:
        place_of(given)
    assert "file.py::name" in str(raised.value)


def test_a_decorated_function_and_a_method_are_found_where_they_are_written():
    @functools.wraps(test_what_has_no_place_in_a_file_is_a_sentence)
    def wrapped():
        pass

    ours = inspect.getsourcefile(outer)
    name = test_what_has_no_place_in_a_file_is_a_sentence.__name__
    assert place_of(wrapped) == f"{ours}::{name}"
    file = inspect.getsourcefile(FakeEvaluator)
    assert place_of(FakeEvaluator().ready) == f"{file}::FakeEvaluator.ready"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, ValueError, "give candidates, or an author"),
        ({"candidates": ["nowhere"]}, ValueError, "candidates: there is no 'nowhere'"),
        ({"candidates": [3]}, TypeError, "source texts and paths, not int"),
        ({"candidates": [ORIGINAL], "author": len}, ValueError, "both propose"),
        ({"author": types.SimpleNamespace(repair=len)}, ValueError, "only repairs and refines"),
        ({"author": 3}, TypeError, "author must be the name of a model"),
        ({"author": "nobody/nothing"}, ModelUnknown, "nobody"),
        ({"author": "nobody"}, AgentUnknown, "there is no agent 'nobody'; there are claude, codex"),
        ({"author": "codex", "allow": "fly"}, AgentUnknown, "codex"),  # or it is not installed
        ({"author": "a/b", "allow": "run"}, ValueError, "for an agent as the author"),
        ({"candidates": [ORIGINAL], "model": "x"}, ValueError, "for an agent as the author"),
        ({"candidates": [ORIGINAL], "width": "x"}, ValueError, "optimize.width must be a whole"),
        ({"candidates": [ORIGINAL], "timeout": 0}, ValueError, "timeout: must be a time"),
        ({"candidates": [ORIGINAL], "tests": "no.py"}, ValueError, "tests: there is no no.py"),
        ({"candidates": [ORIGINAL], "compare": "x"}, ValueError, "compare must be strict or loose"),
        ({"candidates": [ORIGINAL], "resume": "x"}, ValueError, "resume must be one of"),
        ({"candidates": [ORIGINAL], "name": ""}, ValueError, "a name must be"),
        ({"candidates": [ORIGINAL], "python": "no-python"}, ValueError, "python: there is no"),
    ],
)
async def test_a_wrong_argument_is_one_sentence(project, judge, options, error, words):
    with pytest.raises(error, match=words) as raised:
        await trying(**options)
    assert "\n" not in str(raised.value)
    assert judge.done == []


async def test_without_timing_nothing_is_measured_and_the_verdict_says_what_it_stands_on(
    judge, project
):
    result = await trying(candidates=[text_of("fast3"), text_of("wrong")], timing=False)
    assert [one.verdict for one in result.candidates] == ["same", "wrong"]
    assert judge.times("time") == judge.times("profile") == []
    assert result.best is None
    assert result.patch == ""
    right = result.candidates[0]
    assert right.timed is None
    assert "10 calls of 3 tests" in right.reason
    assert "not measured" in right.reason
    assert result.plain()["timing"] is False
    assert "1 of 2 candidates behave like the original" in repr(result)


async def test_a_run_without_timing_is_not_resumed_by_one_with_it(judge, project):
    for timing, cut in ((False, "1req"), (True, "9req")):
        words = {"candidates": [text_of("fast3")], "store": "runs.db", "timing": timing}
        if cut == "1req":
            with pytest.raises(BudgetSpent):
                await trying(**words, budget=cut)
        else:
            assert (await trying(**words, budget=cut)).candidates[0].verdict == "faster"
