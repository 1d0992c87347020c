"""The options of a plan: what holds if nothing is said, and what recorded runs of before meant."""

from dataclasses import replace

import pytest

from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.settings import MAX_TOKENS, MIN_TOKENS, PlanJob
from abreast.jobs.plan.spec import Reason
from abreast.store.port import RunRow
from tests.jobs.plan.repositories import fill

FOLDERS, FILES = 6, 12


def layout(tokens):
    """Directories of files of so many tokens, each of which imports the one before."""
    return {
        f"p/d{folder}/m{number}.py": f"import p.d{folder}.m{max(0, number - 1)}\n".ljust(
            tokens * 4, "#"
        )
        for folder in range(FOLDERS)
        for number in range(FILES)
    }


def job_of(root, **given):
    return PlanJob.of({"path": str(root), **given}, "/", str, works=False)


def sizes(job):
    return [leaf.tokens for leaf in job.divide()[0].leaves]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A directory of 108,000 tokens: 18,000 in each directory beneath it."""
    root = tmp_path_factory.mktemp("large")
    fill(root, layout(1_500))
    return root


def test_by_default_parts_are_within_bounds_of_tokens(large):
    job = job_of(large)
    assert all(MIN_TOKENS <= size <= MAX_TOKENS for size in sizes(job))
    assert 3 <= len(sizes(job)) <= 5
    assert sizes(job) == sizes(job_of(large, min_tokens=MIN_TOKENS, max_tokens=MAX_TOKENS))


def test_options_of_directories_divide_by_these(large):
    for given in ({"max_depth": 8}, {"min_files": 10}, {"max_files": 12}):
        plan, _ = job_of(large, **given).divide()
        assert plan.root.reason is Reason.DIRECTORIES
        assert len(plan.leaves) >= FOLDERS


def test_one_bound_alone_has_the_other_by_default(large):
    assert max(sizes(job_of(large, max_tokens=6_000))) <= 6_000
    assert job_of(large, max_tokens=6_000).min_tokens == 300
    assert job_of(large, max_tokens=90_000).min_tokens == MIN_TOKENS
    assert all(20_000 <= size <= MAX_TOKENS for size in sizes(job_of(large, min_tokens=20_000)))
    with pytest.raises(PlanInvalid, match="at least twice as large"):
        job_of(large, min_tokens=20_001).divide()


def test_what_fits_into_one_part_is_divided_by_directories_unless_bounds_are_given(tmp_path):
    fill(tmp_path, layout(500))
    assert sizes(job_of(tmp_path)) == [FILES * 500] * FOLDERS
    assert sizes(job_of(tmp_path, max_tokens=MAX_TOKENS)) == [FOLDERS * FILES * 500]


def row_of(manifest):
    return RunRow("plan-1", "plan", "plan", "running", 7, 1, 0.0, manifest=manifest)


def test_a_recorded_run_goes_on_as_it_was_divided(large):
    job = job_of(large, include=["*.py"], command="true")
    manifest = job.manifest()
    assert PlanJob.recorded(row_of(manifest)) == job
    # A run of before has neither bounds, nor files that are set aside.
    facts = {**manifest["plan"], "max_tokens": None}
    for word in ("all_files", "min_tokens", "default_bounds"):
        del facts[word]
    before = PlanJob.recorded(row_of({"plan": facts}))
    assert before == replace(
        job, max_tokens=None, min_tokens=None, default_bounds=False, all_files=True
    )
    assert len(sizes(before)) == FOLDERS
    with pytest.raises(PlanInvalid, match="another version"):
        PlanJob.recorded(row_of({"plan": {**facts, "more": 1}}))
