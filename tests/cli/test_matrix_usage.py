"""The cost of a study over real HTTP: kills and resumes do not change what is reported."""

import json
import signal
import subprocess
from collections import Counter

import pytest

from tests.cli.commands.test_matrix import declare, lasting, rows_of
from tests.cli.shell import PATIENCE, Shell
from tests.cli.storms import start_storm

STUDY = """
matrix:
  name: study
  models: [a/one]
  strategies:
    plain: {prompt: "say {{ input.text }} fault-429x1", max_tokens: 20}
    own: {python: "mine:ask"}
    refused: {prompt: "fault-refusal {{ input.text }}", max_tokens: 20}
    drawn:
      sample:
        prompt: "draw {{ input.text }}"
        breadth: 2
        depth: 2
        strategy: repair
        max_tokens: 20
        checks: ["hidden regex ^nothing says this$"]
    flow: {workflow: flow.yaml}
  inputs: data.jsonl
  scores: [contains, {judge: "is it good?"}]
"""
FLOW = """
workflow: {id: flow, inputs: {text: {type: string}}}
steps:
  - {id: first, type: prompt, prompt: "first {{ inputs.text }}", max_tokens: 20}
  - {id: second, type: prompt, prompt: "second {{ steps.first.output.text }}", max_tokens: 20}
"""
MINE = """
async def ask(value, model):
    said = [await model.ask(f"{word} {value['text']}", step=word, \
max_tokens=20) for word in ("one", "two", "three")]
    return " ".join(said)
"""
INPUTS = 1
# of strategies, and of the judge for cells that are done
CALLS = INPUTS * (1 + 3 + 1 + 4 + 2) + INPUTS * 4


def write(abreast, storm):
    declare(abreast, storm)
    abreast.file("study.yaml", STUDY)
    abreast.file("flow.yaml", FLOW)
    abreast.file("mine.py", MINE)
    rows = [{"id": f"i{n}", "text": f"text {n}", "truth": "e"} for n in range(INPUTS)]
    abreast.file("data.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))


def figures(abreast):
    """Rows with their attempts; what cells and what is beneath them used.

    The totals by model, as the page has them.
    """
    rows = rows_of(abreast, "study-1")
    counted = {
        key: {**row, "attempts": rows[key]["attempts"]} for key, row in lasting(rows).items()
    }
    words = ("state", "requests", "input_tokens", "output_tokens", "usd", "estimate")
    items = {
        row["path"]: [row.get(word) for word in words] for row in abreast("export", "study").rows
    }
    shown = abreast("show", "study", "--json").rows[0]
    return counted, items, shown["usage"]


@pytest.fixture(scope="module")
def calm(warm, tmp_path_factory):
    """The figures of a study that was left alone."""
    abreast = Shell(tmp_path_factory.mktemp("calm"), warm)
    with start_storm() as storm:
        write(abreast, storm)
        said = abreast("matrix", "run", "study.yaml", "--seed", "7", "--no-report")
        assert said.code == 1, said  # of the refused
        assert storm.stats().admitted == CALLS
    return figures(abreast)


def test_the_figures_are_those_of_the_calls(calm):
    rows, items, usage = calm
    assert Counter(row["strategy"] for row in rows.values()) == dict.fromkeys(
        ("plain", "own", "refused", "drawn", "flow"), INPUTS
    )
    attempts = {row["strategy"]: row["attempts"] for row in rows.values()}
    assert attempts == {"plain": 1, "own": 3, "refused": 1, "drawn": 4, "flow": 2}
    assert all(row["output_tokens"] and row["usd"] for row in rows.values())
    assert usage["a/one"]["requests"] == CALLS
    cells = [used for path, used in items.items() if path.count("/") == 2]
    assert sum(used[1] for used in cells) == CALLS  # with the judge's


@pytest.mark.parametrize("after", [3, 7, 11])
def test_a_study_that_was_killed_and_resumed_tells_the_figures_of_one_that_was_left_alone(
    abreast, calm, after
):
    with start_storm(latency=0.02) as storm:
        write(abreast, storm)
        arguments = ("matrix", "run", "study.yaml", "--seed", "7", "--no-report")
        with abreast.start(*arguments, measured=False) as process:
            with storm.killing(process, after):
                process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        assert abreast("resume", "study-1").code == 1
        rows, items, usage = figures(abreast)
    assert rows == calm[0]
    assert items == calm[1]
    assert usage == calm[2]


def test_a_call_that_was_in_flight_at_a_kill_is_told_apart_from_what_was_used(abreast):
    with start_storm(fault_at={2: "stall"}) as storm:
        declare(abreast, storm)
        arguments = (
            "map",
            "--prompt",
            "say {}",
            "--model",
            "a/one",
            "--width",
            "1",
            "--max-tokens",
            "20",
        )
        with abreast.start(*arguments, stdin=subprocess.PIPE, measured=False) as process:
            with storm.killing(process, 2):
                process.communicate(b"one\ntwo\nthree\n", timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        before = abreast("show", "last", "--json").rows[0]
        assert (before["usage"]["a/one"]["requests"], before["cut_off"]["requests"]) == (1, 1)
        assert abreast("resume").code == 0
        after = abreast("show", "last", "--json").rows[0]
        rows = abreast("export", "last").rows
    assert (after["usage"]["a/one"]["requests"], after["cut_off"]) == (3, before["cut_off"])
    assert [row["requests"] for row in rows] == [1, 1, 1]
    assert "cut off    1 requests by a stop or a kill, at most" in abreast("show", "last").out
