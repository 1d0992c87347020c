"""spec-kit's own workflows and those of its test suite, by `abreast run` and by its own command.

Both run each file in a directory of its own, with the same id of the run, the same inputs, and an
agent that prints the same. Where they differ, docs/compatibility.md lists the difference in the
words used here.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.jobs.workflow.spec_kit_suite import ROOT, SOURCE, Sides, flows
from tests.jobs.workflow.test_oracle import COMPOSITES, comparable

pytestmark = pytest.mark.skipif(
    not SOURCE.exists(),
    reason="spec-kit's source is not here: python -m benchmarks.peers specify-cli",
)

LISTED = (ROOT / "docs" / "compatibility.md").read_text("utf-8")

NO_RUNNER = "a `command` whose agent has no runner"
REFUSED_HERE = {
    "is for an agent, and no integration says which": NO_RUNNER,
    "there is no runner '": NO_RUNNER,
    "workflows that are installed by their id are not run here": (
        "a `workflow` step that names an installed workflow"
    ),
    "a github step is not run here": "`github` steps",
    "an init step is not run here": "`init` steps",
}
EMPTY = "`requires:` or `on_reject:` with nothing after it"
REFUSED_THERE = {
    "'on_reject' must be": EMPTY,
    "'requires' must be a mapping (or omitted)": EMPTY,
    "Unknown 'requires' key": "unknown keys under `requires`",
}
WORDS = "the sentences of errors"
AGENTS_OUTPUT = "a `prompt` or `command` step's output"


def refused(said):
    """Return whether spec-kit began no step, because the file or its inputs are invalid."""
    state = said.get("state")
    return state is None or (
        state["status"] != "completed" and not state["step_results"] and not failed_inside(said)
    )


def failed_inside(said):
    """Return whether an expression ended spec-kit's engine, which leaves no record of that step."""
    state = said.get("state")
    return (
        state is not None and state["status"] == "failed" and state["current_step_id"] is not None
    )


def differences(flow, there, here):
    """Return each difference by its listed words; one that is not listed is in brackets."""
    if here["code"] == 2:
        return {"both refuse"} if refused(there) else {listed(REFUSED_HERE, here["err"])}
    if refused(there):
        return {listed(REFUSED_THERE, there["said"])}
    found, ours, theirs = set(), here["said"], json.loads(there["said"])
    if (there["code"] == 0) != (here["code"] == 0):
        found.add(f"[exit codes {there['code']} and {here['code']}]")
    for key, value in theirs.items():
        if ours.get(key) != value:
            found.add(of_the_whole(key, value, ours.get(key)))
    records = there["state"]["step_results"]
    for name, step in records.items():
        found |= of_a_step(flow, name, step, ours["steps"].get(name))
    for name in ours["steps"].keys() - records.keys():
        found.add(only_here(name, there))
    return found


def listed(reasons, said):
    return next(
        (words for sentence, words in reasons.items() if sentence in said),
        f"[refused: {said.strip()}]",
    )


def of_the_whole(key, theirs, ours):
    if key == "error" and theirs and ours:
        return WORDS
    if key == "gate" and {**(ours or {}), "scope_path": theirs.get("scope_path")} == theirs:
        return "`gate.scope_path`"
    return f"[{key}: {theirs!r} and {ours!r}]"


def only_here(name, there):
    if ":" in name:
        return "steps in an item of a fan-out"
    return (
        "an expression that fails while running"
        if failed_inside(there)
        else f"[{name} is told only here]"
    )


def of_a_step(flow, name, theirs, ours):
    if ours is None:
        return {"items that ran past a halt" if ":" in name else f"[{name} is told only there]"}
    found = set()
    if ours["status"] != theirs["status"]:
        halted = ours["type"] in COMPOSITES and theirs["status"] == "completed"
        words = (
            "a halted fan-out" if ours["type"] == "fan-out" else "a halted `if`, `switch` or loop"
        )
        found.add(words if halted else f"[{name} is {theirs['status']} and {ours['status']}]")
    one, other = comparable(ours["output"]), comparable(theirs["output"])
    for key in one.keys() | other.keys():
        if one.get(key) != other.get(key) or (key in one) != (key in other):
            found.add(of_an_output(flow, name, ours["type"], key, (other.get(key), one.get(key))))
    return found


def of_an_output(flow, name, kind, key, values):
    if kind in ("prompt", "command") and key in ("text", "stdout", "stderr"):
        return AGENTS_OUTPUT
    if (
        kind == "fan-in"
        and values[0] != values[1]
        and without_words(values[0]) == without_words(values[1])
    ):
        return AGENTS_OUTPUT
    if kind in ("prompt", "command") and key == "integration" and values == ("claude", "auto"):
        return "`integration: auto`"
    if kind == "shell" and re.search(r"""run: ["']?\{\{[^}]*\}\}["']?$""", flow.text, re.MULTILINE):
        return "`{{ }}` in `run`"  # the whole command is a value, which is data here
    return f"[{name}: {key}: {values}]"


def without_words(value):
    """Return a fan-in's results without the output of agents."""
    if isinstance(value, list):
        return [without_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    words = ("text", "stdout", "stderr") if "dispatched" in value else ()
    return {key: without_words(one) for key, one in value.items() if key not in words}


def compared(chosen, folder, warm):
    """Count how many end the same, and how many with each of the listed differences.

    And those that are not listed.
    """
    sides = Sides(chosen, folder)
    counts, wrong = Counter(), {}
    for flow, there, here in zip(chosen, sides.theirs(), sides.ours(warm), strict=True):
        found = differences(flow, there, here)
        counts.update(found or {"the same"})
        counts[""] += 1
        unlisted = sorted(
            words
            for words in found - {"both refuse"}
            if words.startswith("[") or words not in LISTED
        )
        if unlisted:
            wrong[flow.place] = unlisted
    return counts, wrong


def test_some_of_spec_kits_workflows_end_as_they_end_there_or_as_listed(tmp_path, warm):
    chosen = flows()[::12]
    counts, wrong = compared(chosen, tmp_path, warm)
    assert not wrong
    assert counts[""] == len(chosen) >= 10
    assert counts["the same"] + counts["both refuse"] >= 5


def test_every_workflow_of_spec_kit_ends_as_it_ends_there_or_as_listed(tmp_path, warm, capsys):
    chosen = flows()
    shipped = {Path(flow.place).parts[1] for flow in chosen if flow.place.startswith("workflows/")}
    assert shipped == {"assess", "bugfix", "speckit"}
    counts, wrong = compared(chosen, tmp_path, warm)
    with capsys.disabled():
        print(  # noqa: T201 - the counts are shown with the results of the suite
            "",
            *(f"{count:4} {words or 'workflows'}" for words, count in counts.most_common()),
            sep="\n",
        )
    assert not wrong
    assert counts[""] >= 150
    assert counts["the same"] >= 50
    assert counts["both refuse"] >= 50


def test_a_workflow_that_names_no_agent_ends_as_it_ends_there_once_it_names_one(tmp_path, warm):
    chosen = [given for flow in flows() if (given := flow.for_agent("claude")) is not None]
    counts, wrong = compared(chosen, tmp_path, warm)
    assert not wrong
    assert counts[""] >= 15
    assert counts[NO_RUNNER] == 0
    assert counts[AGENTS_OUTPUT] >= 10  # the agent ran on both sides
