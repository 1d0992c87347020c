"""`--warm`: the long beginning of the prompts is cached, the hits are shown, a resume keeps it."""

import json
import re

import pytest

from tests.cli.storms import start_storm

LONG = "Rules: " + "be kind and brief. " * 300
LANES = """
[lanes.claude]
kind = "anthropic"
base_url = "{url}/v1"
price = {{input = 3.0, output = 15.0, cached_input = 0.3, cache_write = 3.75}}
"""


def test_one_prompt_fills_the_cache_and_the_others_read_from_it(abreast):
    with start_storm(strict="anthropic-new") as storm:
        abreast.file("abreast.toml", LANES.format(url=storm.url))
        prompt = LONG + "Now classify: {}"
        said = abreast(
            "map", "--prompt", prompt, "-m", "claude/opus", "--warm", given=b"a\nb\nc\nd\n"
        )
        (billed,) = storm.billed().values()
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 4
    assert billed.cached == 3 * billed.cache_writes > 0
    assert f"({billed.cached:,} cached)" in said.err
    (usd,) = re.findall(r"([\d.]+) usd", said.err)
    plain = billed.input - billed.cached - billed.cache_writes
    bill = plain * 3 + billed.cached * 0.3 + billed.cache_writes * 3.75 + billed.output * 15
    assert abs(float(usd) - bill / 1e6) <= 0.001 * float(usd)
    shown = abreast("show", "map")
    assert f"({billed.cached:,} cached)" in shown.out


def test_warm_is_for_prompts(abreast):
    said = abreast("map", "--warm", "--", "true", given=b"a\n")
    assert (said.code, "--warm is for --prompt" in said.err) == (2, True)


STUDY = {
    "matrix": {
        "models": ["claude/opus"],
        "strategies": {"plain": {"prompt": LONG + "Now classify: {{ input.text }}"}},
        "inputs": [{"id": name, "text": name} for name in "abcde"],
    }
}
ASK = {"id": "ask", "type": "prompt", "model": "claude/opus", "prompt": LONG + "{{ item }}"}
FAN = {"id": "fan", "type": "fan-out", "items": [*"abcde"], "max_concurrency": 5, "step": ASK}
FLOW = {"workflow": {"id": "flow"}, "steps": [FAN]}
WARM_FLOW = {**FLOW, "steps": [{**FAN, "step": {**ASK, "warm": True}}]}


def check_resumed(abreast, job, *command):
    """Run a job until its budget is spent, resume it: each time one prompt goes ahead."""
    abreast.file("job.yaml", json.dumps(job))
    with start_storm(strict="anthropic-new") as storm:
        abreast.file("abreast.toml", LANES.format(url=storm.url))
        spent = abreast(*command, "--budget", "2req")
        assert spent.code == 3, spent.err
        (billed,) = storm.billed().values()
    assert billed.cached == billed.cache_writes > 0
    # Another server, whose cache is empty: all would write to it if they started together.
    with start_storm(strict="anthropic-new") as storm:
        abreast.file("abreast.toml", LANES.format(url=storm.url))
        done = abreast("resume", "last", "--budget", "9req")
        assert done.code == 0, done.err
        (billed,) = storm.billed().values()
    assert billed.cached == 2 * billed.cache_writes > 0
    shown = abreast("show", "last")
    assert f"({3 * billed.cache_writes:,} cached)" in shown.out


def test_a_study_sends_one_ahead_and_so_does_the_resumed_one(abreast):
    check_resumed(abreast, STUDY, "matrix", "run", "job.yaml", "--warm", "--no-report")


@pytest.mark.parametrize(("job", "more"), [(FLOW, ["--warm"]), (WARM_FLOW, [])])
def test_a_workflow_sends_one_ahead_and_so_does_the_resumed_one(abreast, job, more):
    check_resumed(abreast, job, "run", "job.yaml", *more)


def test_a_plan_is_not_warm(abreast):
    abreast.file("plan.yaml", "plan: {path: .}")
    said = abreast("run", "plan.yaml", "--warm")
    assert (said.code, "--warm is for workflows" in said.err) == (2, True)
