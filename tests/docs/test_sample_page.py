"""The reference of samples says all that there is, and the docstrings warn where the knobs are."""

import inspect
import re

import pytest

import abreast
from abreast.jobs.sample import check_texts, spec
from abreast.jobs.sample import job as engine
from abreast.jobs.sample.arguments import make_job
from abreast.jobs.sample.branch_order import PICKS
from abreast.jobs.sample.results import SampleAttempt, SampleCounts, SampleResult
from abreast.jobs.sample.strategies import STRATEGIES, MultiTurn, Strategy
from abreast.models.scripted import Scripted
from tests.docs.pages import ROOT


@pytest.fixture
def page():
    return (ROOT / "docs" / "sample.md").read_text("utf-8")


def test_it_names_every_check_strategy_pick_and_word_of_a_job_file(page):
    words = [*check_texts._EXAMPLES, "json", *STRATEGIES, *PICKS]
    assert [word for word in words if f"`{word}" not in page] == []
    assert [word for word in spec._KEYS if f"`{word}`" not in page.partition("Words: ")[2]] == []


def test_it_names_every_field_of_a_result_an_attempt_and_the_counts(page):
    fields = [
        name
        for kind in (SampleResult, SampleAttempt, SampleCounts)
        for name in kind.__dataclass_fields__
    ]
    assert [name for name in fields if f"`{name}`" not in page] == []


async def test_it_names_every_event_with_the_fields_that_are_really_sent(page):
    seen = []
    async with abreast.open_run("r", hooks=[seen.append]) as run:
        await abreast.sample(
            "Say.", model=Scripted(lambda request: str(request.seed)), breadth=2, depth=2, run=run
        )
    rows = dict(re.findall(r"^\| `((?:sample|draw)-\w+)` \| [^|]* \| (.*) \|$", page, re.MULTILINE))
    sent = {
        event.kind: ", ".join(f"`{name}`" for name in event.data)
        for event in seen
        if event.kind in rows
    }
    assert sent == rows
    kinds = {engine.SAMPLE_STARTED, engine.SAMPLE_ENDED, engine.DRAW_STARTED, engine.DRAW_ENDED}
    assert set(rows) == kinds


def test_it_says_what_is_monotonic_what_interleaves_and_that_rounds_are_not_attempts(page):
    assert "**Monotonic**: the rounds and numbers within one branch." in page
    assert "Draws of different branches **interleave** in any order" in page
    assert "**Rounds are not attempts.**" in page
    said = inspect.getdoc(SampleCounts)
    assert "counts rounds of one branch, where `started` counts draws over all of them" in " ".join(
        said.split()
    )


def test_the_docstrings_warn_of_cost_and_429s_and_say_which_pick_depends_on_timing():
    said = " ".join(inspect.getdoc(make_job).split())
    breadth = said.partition("breadth: ")[2].partition("depth: ")[0]
    assert "how many branches draw side by side" in breadth
    assert "multiplies the worst-case number of paid requests" in breadth
    assert "429 sooner" in breadth
    assert "how many rounds each branch has" in said.partition("depth: ")[2]
    pick = said.partition("pick: ")[2].partition("on_error: ")[0]
    assert "the same whatever the delays" in pick
    assert "which depends on timing" in pick
    assert "429s come sooner" in " ".join(inspect.getdoc(abreast.sample).split())


def test_the_contract_of_selectors_is_documented_where_they_are_written():
    assert "attempts in (branch, round) order" in inspect.getdoc(Strategy.select)
    assert "the deepest repaired one, not the last to end" in inspect.getdoc(MultiTurn.select)


def test_the_page_for_coding_agents_speaks_of_samples_and_their_cost():
    agents = (ROOT / "docs" / "agents.md").read_text("utf-8")
    part = agents.partition("## Samples")[2].partition("\n## ")[0]
    assert "`abreast sample`" in part
    assert "--dry-run" in part
    assert "times" in part
    assert "`abreast sample`" in agents.partition("## A block for AGENTS.md")[2]
