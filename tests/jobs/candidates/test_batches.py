"""Candidates that come in one batch are judged as each of them would be alone."""

import pytest

from abreast.assembly.names import open_run
from abreast.jobs.candidates.job import EvaluationOptions
from tests.jobs.candidates.laboratories import (
    ORIGINAL,
    Author,
    FakeEvaluator,
    make_project,
    proposals,
    proposing,
    text_of,
    trials,
)
from tests.jobs.candidates.test_job import cache

__all__ = ["cache"]

TEXTS = {
    "faster": text_of("fast4 x"),
    "not faster": text_of("slow x"),
    "another behaviour": text_of("far x"),
    "a timeout": text_of("hang x"),
    "an error of the check": text_of("raise x"),
    "an error of the clock": text_of("break x"),
    "no Python": "def f(x:\n    return 'fast9'\n",
    "another function": "def g(x):\n    return 'fast9'\n",
    "another signature": "def f(x, y):\n    return 'fast9'\n",
    "the original": ORIGINAL,
    "a text without a function": "fast9\n",
    "as it was, with a comment": f"# mine\n{text_of('fast3 b')}",
}
"""Every kind of reply; its text decides the verdict of the fake evaluator."""


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "project")


async def tried_in(project, found, author=None):
    evaluator = FakeEvaluator()
    async with open_run("optimize", seed=7) as run:
        how = EvaluationOptions(2, repairs=0)
        return await trials(project, evaluator, how, author).run(run, proposing(found)), evaluator


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_batch_is_judged_with_the_settings_of_a_single_candidate(project, kind):
    """Once as a first candidate beside a faster one, once as a refinement of that one."""
    text = TEXTS[kind]
    first = proposals("fast3 b")
    single = [*first, type(first[0])("single", text, "file")]
    alone, judged_alone = await tried_in(project, single)
    author = Author(refined=[text], adapted=["", ""])
    together, judged_together = await tried_in(project, first, author)
    one, other = alone[1], together[1]
    assert other.origin == "refinement"
    assert (other.verdict, other.reason) == (one.verdict, one.reason)
    assert sorted(judged_together.times("check")) == sorted(judged_alone.times("check"))
    assert sorted(judged_together.times("time")) == sorted(judged_alone.times("time"))


async def test_each_of_a_batch_has_the_verdict_that_it_has_among_first_candidates(project):
    found = proposals(*(f"fast3 {number}" for number in range(len(TEXTS))))
    single = [
        type(found[0])(f"single {number}", text, "file")
        for number, text in enumerate(TEXTS.values())
    ]
    alone, _ = await tried_in(project, [*found, *single])
    author = Author(refined=list(TEXTS.values()), adapted=[""] * len(TEXTS))
    together, _ = await tried_in(project, found, author)
    refined = [one.verdict for one in together if one.origin == "refinement"]
    assert refined == [one.verdict for one in alone if one.name.startswith("single")]
    assert len(set(refined)) >= 5
