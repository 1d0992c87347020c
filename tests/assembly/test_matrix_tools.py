"""The real tools of a matrix: functions of the user as strategies and scores, plain and async."""

import json
import threading

import pytest

import abreast
from abreast.assembly.matrix_tools import RunMatrixTools
from abreast.assembly.workflow_tools import Tools
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.spec import CellChoice
from abreast.testing import MemoryStore
from tests.jobs.matrix.benches import study

TALK = [{"role": "user", "content": "Say."}, {"role": "assistant", "content": "no"}]


def is_on_loop():
    return threading.current_thread() is threading.main_thread()


def plain(given, model):
    assert not is_on_loop()
    return model.ask(given["text"], messages=TALK)


async def later(given, model):
    assert is_on_loop()
    return (await model.reply(messages=[*TALK, {"role": "user", "content": given["text"]}])).text


def looks_plain(given, model):
    return later_with_blocking_model(given, model)


async def later_with_blocking_model(given, model):
    return model.ask(given["text"])


def plain_score(judged):
    assert not is_on_loop()
    return 0.25


async def async_score(judged):
    assert is_on_loop()
    return 0.75


def wrapped_score(judged):
    return async_score(judged)


async def run_study(tmp_path, strategy):
    script = tmp_path / "replies.jsonl"
    script.write_text(json.dumps({"prompt": "again", "reply": "yes"}))
    functions = {f"mine:{one.__name__}": one for one in FUNCTIONS}
    text = f"""
matrix:
  name: s
  models: ["scripted/{script}"]
  strategies: {{own: {{python: "mine:{strategy.__name__}"}}}}
  inputs: [{{id: i, text: again}}]
  scores:
    - {{name: plain, python: "mine:plain_score"}}
    - {{name: async, python: "mine:async_score"}}
    - {{name: wrapped, python: "mine:wrapped_score"}}
"""
    made = study(text, codes=dict.fromkeys(functions, "code"))
    store = MemoryStore()
    tools = Tools(find=functions.__getitem__, store=store)
    async with (
        RunMatrixTools(tools, tmp_path) as bench,
        abreast.open_run("s", store=store) as run,
    ):
        await Matrix(made, bench, CellChoice(), width=1).run(run)
    (row,) = rows_of(store, store.newest("s"))
    return row


FUNCTIONS = (plain, later, looks_plain, plain_score, async_score, wrapped_score)


@pytest.mark.parametrize("strategy", [plain, later])
async def test_strategies_and_scores_are_plain_or_async(tmp_path, strategy):
    row = await run_study(tmp_path, strategy)
    assert (row.output, sorted(row.scores.values())) == ("yes", [0.25, 0.75, 0.75])
    assert row.steps[0].prompt == "User:\nSay.\n\nAssistant:\nno\n\nUser:\nagain"


async def test_a_blocking_model_on_the_loop_is_an_error_and_no_deadlock(tmp_path):
    row = await run_study(tmp_path, looks_plain)
    assert "write the strategy as `async def`" in row.error
