"""Studies of Python and of the command line in one store."""

import asyncio
import json
from contextlib import closing

import pytest

from abreast.assembly.verbs.matrix import matrix
from abreast.cli.errors import UsageError
from abreast.cli.jobs.matrix.driver import recorded_file
from abreast.models.scripted import Scripted
from abreast.store.sqlite.store import SqliteStore

COUNTRIES = {"fr": "France", "it": "Italy"}
PLAIN = "The capital of {{ input.country }}?"
ROWS = [{"id": name, "country": country, "truth": "Rome"} for name, country in COUNTRIES.items()]


def test_a_file_is_run_as_the_command_line_runs_it_and_either_goes_on_with_the_other(abreast):
    replies = [{"prompt": f"The capital of {row['country']}?", "reply": "Rome"} for row in ROWS]
    replies_file = abreast.file("replies.jsonl", "\n".join(map(json.dumps, replies)))
    abreast.file("inputs.json", json.dumps(ROWS))
    abreast.file("mine.py", "def good(row):\n    return True\n")
    study = abreast.file(
        "capitals.yaml",
        "matrix:\n"
        f"  models: [{{name: 'scripted/{replies_file}', label: one}}]\n"
        f'  strategies: {{plain: {{prompt: "{PLAIN}"}}}}\n'
        "  inputs: inputs.json\n"
        '  scores: [exact, {python: "mine:good", name: good}]\n',
    )
    store = abreast.folder / "runs.db"
    result = asyncio.run(matrix(study, store=store))
    assert (result.done, result.fresh, result.run_id) == (2, 2, "capitals-1")
    assert result.scores["one", "plain"] == {"exact": 1.0, "good": 1.0}

    said = abreast("matrix", "run", "capitals.yaml", "--no-report", "--store", str(store))
    assert "goes on with capitals-1: 2 of 2 cells are recorded, 0 are missing" in said.err
    assert asyncio.run(matrix(study, store=store)).fresh == 0


def test_a_study_of_python_is_resumed_by_its_program_which_a_sentence_says(tmp_path):
    model = Scripted(lambda _: "Rome", name="fake/one")
    store = SqliteStore(tmp_path / "runs.db")
    with closing(store):
        asyncio.run(matrix(models=[model], strategies={"a": PLAIN}, inputs=ROWS, store=store))
        with pytest.raises(UsageError, match="study-1 is a study of a Python program; run that"):
            recorded_file(store, store.get("study-1"))
