"""Candidates that change several files: what they changed is what runs, in every process."""

import sys

import pytest

from abreast.assembly.names import open_run
from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.child.paths import Places, SlotFinder
from abreast.jobs.candidates.evaluator import Bounds, Evaluator
from abreast.jobs.candidates.job import EvaluationOptions
from abreast.jobs.candidates.results import Proposal
from abreast.jobs.candidates.source.changes import CandidateSource, FileChange, stage_source
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.timed_process import ProcessPlace, open_timed_processes
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.pool import open_worktrees
from tests.jobs.candidates.laboratories import (
    ORIGINAL,
    Author,
    FakeEvaluator,
    make_project,
    proposing,
    text_of,
    trials,
)
from tests.jobs.candidates.projects import quick
from tests.worktrees.repositories import ENVIRONMENT, fingerprint, make_repository, write

TARGET = Target("words.py", "count")
WORDS = "import helper\n\n\ndef count(text):\n    return helper.size(text)\n"
HELPER = "def size(text):\n    return len(text)\n"
MARKED = "def size(text):\n    return len(text) + 1000\n"
TESTS = "import words\n\n\ndef test_count():\n    assert words.count('abc') > 0\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv("ABREAST_LOCKS", str(tmp_path / "locks"))


@pytest.fixture
def project(tmp_path):
    files = {"words.py": WORDS, "helper.py": HELPER, "test_words.py": TESTS, "other.py": "x = 1\n"}
    return make_repository(tmp_path / "project", quick(files))


def helper(text):
    return (FileChange("helper.py", HELPER, text),)


async def returned_when_timed(slot, tests, parents):
    """What the call of the test returns in a timed process."""
    wanted = ("test_words.py::test_count#0",)
    async with open_timed_processes(parents) as processes:
        ((process, _),) = await processes.start([ProcessPlace(slot, TARGET, tests, wanted)])
        made = await process.make(0, [1], 60.0, ())
    return made.record.decode()


@pytest.mark.parametrize("forked", [True, False])
async def test_a_changed_module_is_the_one_that_runs_traced_and_timed(project, forked):
    before = fingerprint(project)
    tests = Tests(("test_words.py",), sys.executable)
    bounds = Bounds(limits=ResourceLimits(seconds=60), generated=0, timing=False)
    evaluator = Evaluator(TARGET, WORDS, tests, bounds)
    moved = "def size(text):\n    return sum(1 for _ in text)\n"
    candidates = {
        "marked": CandidateSource(WORDS, helper(MARKED)),
        "same": CandidateSource(WORDS, helper("def size(text):\n    return text.__len__()\n")),
        "moved": CandidateSource(
            WORDS.replace("import helper", "import faster as helper"),
            (FileChange("faster.py", None, moved), *helper(None)),
        ),
        "shadow": CandidateSource(
            "import click\n" + WORDS, (FileChange("click.py", None, "x = 1\n"),)
        ),
        "unknown": CandidateSource(WORDS, (FileChange("other.py", "x = 1\n", "x = 2\n"),)),
        "state": CandidateSource(
            WORDS,
            helper("SEEN = {}\n\n\ndef size(text):\n    SEEN[text] = 1\n    return len(text)\n"),
        ),
    }
    found, timed = {}, {}
    async with open_worktrees(project, 2) as trees:
        slot, original = trees.slots
        async with evaluator.open(original):
            if not forked:
                evaluator._parents.unfit = "not in this test"
            evaluator.ready(await evaluator.begin(original), original)
            for name, source in candidates.items():
                await slot.reset()
                await stage_source(slot, TARGET, source)
                found[name] = await evaluator.check(slot, source.text, source.files)
            for name in ("marked", "moved"):
                await slot.reset()
                await stage_source(slot, TARGET, candidates[name])
                timed[name] = await returned_when_timed(slot, tests, evaluator._parents)
            assert evaluator.processes.startswith("forked" if forked else "new ones")
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts == {
        "marked": "wrong",
        "same": "same",
        "moved": "same",
        "shadow": "refused",
        "unknown": "undecided",
        "state": "refused",
    }, {name: one.reason for name, one in found.items()}
    assert found["marked"].diffs[0].candidate == "1003"
    assert "nothing that was run imports other.py" in found["unknown"].reason
    assert "takes the place of the module click" in found["shadow"].reason
    assert "keeps something from one call to the next: helper.SEEN" in found["state"].reason
    number = f'["int","int","{1003:x}"'  # as a trace has it
    assert number in timed["marked"]
    assert number not in timed["moved"]
    assert fingerprint(project) == before


def test_a_module_that_is_removed_is_not_taken_from_the_main_tree(tmp_path, monkeypatch):
    main, slot = tmp_path / "main", tmp_path / "slot"
    write(main, {"gone_here.py": "x = 1\n", "kept_here.py": "x = 1\n"})
    write(slot, {"kept_here.py": "x = 2\n"})
    monkeypatch.setattr(sys, "path", [str(main)])
    for removed, expected in (((), str(main / "gone_here.py")), (("gone_here.py",), None)):
        finder = SlotFinder(Places(str(main), str(slot), removed), "target.py", print)
        spec = finder.find_spec("gone_here")
        assert (spec and spec.origin) == expected
        assert finder.find_spec("kept_here").origin == str(slot / "kept_here.py")


# --- in the job


def changed(text):
    return (FileChange("other.txt.py", None, text),)


@pytest.mark.parametrize("width", [1, 3])
async def test_all_files_are_staged_for_the_check_and_again_for_timing_and_kept(tmp_path, width):
    project = make_project(tmp_path / "project")

    class Looking(FakeEvaluator):
        async def time(self, original, candidate, text, seed):
            self.timed = (candidate.path / "other.txt.py").read_text()
            assert not (original.path / "other.txt.py").exists()
            return await super().time(original, candidate, text, seed)

    evaluator, author = Looking(), Author(repairs=[text_of("fast3")], refined=[], adapted=[])
    given = [
        Proposal("a", text_of("wrong"), "patch", files=changed("a = 1\n")),
        Proposal("b", text_of("wrong"), "patch", files=changed("a = 1  # the same code\n")),
    ]
    async with open_run("optimize", seed=7) as run:
        how = EvaluationOptions(width)
        tried = await trials(project, evaluator, how, author).run(run, proposing(given))
    verdicts = [(one.name, one.verdict) for one in tried]
    assert verdicts == [("a", "wrong"), ("a-repaired", "faster"), ("b", "duplicate")]
    # A repair that is text alone keeps the other files of what it repairs.
    assert tried[1].files == changed("a = 1\n")
    assert evaluator.timed == "a = 1\n"
    assert tried[1].plain()["files"] == ["other.txt.py"]
    assert (project / "pkg/mod.py").read_text() == ORIGINAL


async def test_an_author_s_files_take_the_place_of_those_before(tmp_path):
    project = make_project(tmp_path / "project")
    refined = CandidateSource(text_of("fast4"), changed("c = 3\n"))
    author = Author(refined=[refined], adapted=[""])
    given = [Proposal("a", text_of("fast2"), "patch", files=changed("a = 1\n"))]
    async with open_run("optimize", seed=7) as run:
        job = trials(project, FakeEvaluator(), EvaluationOptions(1), author)
        tried = await job.run(run, proposing(given))
    assert [(one.name, one.files) for one in tried] == [
        ("a", changed("a = 1\n")),
        ("a-refined", changed("c = 3\n")),
    ]
