"""Every kind of job against a strict imitation of every provider, over loopback."""

import pytest

from benchmarks.providers import JOBS, KEY, LANES, Said, play, prepare, refused_again
from tests.cli.storms import start_storm

ALL = {job.name for job in JOBS}
JUDGED = {"sample, judged", "study, judged"}
# What fails as yet. A job that works all the same fails its test as well: take it out then.
FAILING = {
    "openai-reasoning": {"map with options", *JUDGED, "workflow", "doctor"},  # temperature, room
    "openai-responses": ALL,  # no adapter
    "anthropic-new": {"map --schema", "map with options", *JUDGED, "workflow"},
    "gemini": {"map with options", *JUDGED, "doctor"},  # no room to think
    "deepseek": {"map --schema", "map with options", *JUDGED, "doctor"},
    "mistral": ALL - {"doctor"},  # seed
    "groq": {"map --schema", "sample, judged"},
    "xai": ALL - {"ask", "doctor"},  # reasoning tokens are not counted
    "vllm-old": {"map --schema", "sample, judged", "ask"},
}
# Parameters that one command sends again after they were refused.
REFUSED_AGAIN = {
    "openai-reasoning": {"temperature"},
    "anthropic-new": {"temperature", "tool_choice"},
    "deepseek": {"response_format"},
    "mistral": {"seed"},
    "groq": {"response_format"},
    "vllm-old": {"response_format"},
}


@pytest.mark.parametrize("profile", LANES)
def test_every_job_works_with_the_provider_and_nothing_is_refused_twice(profile, abreast):
    def run(arguments, given):
        said = abreast(*arguments, given=given, STORM_KEY=KEY)
        return Said(said.code, said.out, said.err)

    with start_storm(strict=profile) as storm:
        prepare(abreast.folder, profile, storm.url)
        cells = {job.name: play(job, profile, run, storm.log) for job in JOBS}
    problems = {name: cell.problem for name, cell in cells.items() if cell.problem}
    assert problems.keys() == FAILING.get(profile, set()), problems
    again = refused_again(cells, per_command=True)
    assert {*again} == REFUSED_AGAIN.get(profile, set())
    assert KEY.encode() not in abreast.store.read_bytes()
