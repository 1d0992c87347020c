"""The cap of each provider, from the flag to the server's own count.

And rows that are whole though it was killed.
"""

import json
import os
import signal
from collections import Counter

import pytest

from tests.cli.commands.test_matrix import recorded_of
from tests.cli.shell import PATIENCE
from tests.cli.storms import start_storm

LANES = '[lanes.{name}]\nbase_url = "{url}/v1"\n'


def write(abreast, models, lanes, more=""):
    """Twelve cells for each model, of a prompt alone."""
    abreast.file(
        "abreast.toml",
        "".join(LANES.format(name=name, url=storm.url) for name, storm in lanes.items()),
    )
    rows = [{"id": f"i{number}", "text": f"text {number}", "truth": "e"} for number in range(6)]
    abreast.file("data.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    abreast.file(
        "study.yaml",
        f"""
matrix:
  models: {json.dumps(models)}
  strategies:
    plain: {{prompt: "say {{{{ input.text }}}}", max_tokens: 20}}
  inputs: data.jsonl
  repeats: 2
  scores: [contains]
  controls: [empty]
  {more}
""",
    )


@pytest.mark.parametrize(
    ("more", "words", "cap"),
    [
        ("", [], 4),
        ("", ["--provider-concurrency", "1"], 1),
        ("", ["--lane-width", "1"], 1),
        ("", ["--provider-concurrency", "6"], 6),
        ("lane_width: 3", [], 3),
        ("lane_width: 3", ["--lane-width", "2"], 2),
    ],
    ids=[
        "neither",
        "for a free account",
        "by its other name",
        "for a large one",
        "in the file",
        "the flag first",
    ],
)
def test_as_many_calls_as_the_flag_says_are_in_flight_at_each_provider_and_never_more(
    abreast, more, words, cap
):
    """Two models of one provider share its cap.

    The other provider has its own. No server answers before it is full.
    """
    with start_storm(latency=3600.0) as one, start_storm(latency=3600.0) as other:
        write(abreast, ["a/one", "a/two", "b/one"], {"a": one, "b": other}, more)
        command = ("matrix", "run", "study.yaml", "--no-report", *words)
        with abreast.start(*command, measured=False) as process:
            for storm in (one, other):
                storm.until(process, lambda stats: stats.in_flight == cap)
            # The controls make no call and take no permit: all twelve are recorded while every
            # permit is taken.
            abreast.until(process, lambda: recorded_of(abreast, "empty") == 12)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
        for storm in (one, other):
            assert (storm.stats().peak_in_flight, storm.stats().arrived) == (cap, cap)


def test_a_permit_comes_back_with_the_reply_and_not_with_the_score(abreast):
    """At a cap of one a second call is made while the first one's reply is still being scored."""
    pipe = abreast.folder / "scored"
    os.mkfifo(pipe)
    with start_storm(latency=0.0) as storm:
        write(abreast, ["a/one"], {"a": storm}, more="")
        study = (abreast.folder / "study.yaml").read_text()
        abreast.file("study.yaml", study.replace("[contains]", '[{python: "mine:score"}]'))
        abreast.file("mine.py", 'def score(row):\n    open("scored").close()\n    return 1.0\n')
        command = ("matrix", "run", "study.yaml", "--no-report", "--lane-width", "1")
        with abreast.start(*command, measured=False) as process:
            storm.until(process, lambda stats: stats.arrived == 2)
            assert not [key for key in abreast.recorded("study-1") if "plain" in key and "%" in key]
            held = os.open(pipe, os.O_RDWR)  # every reader has a writer now
            _, err = process.communicate(timeout=PATIENCE)
            os.close(held)
        assert process.returncode == 0, err
        assert storm.stats().peak_in_flight == 1


def is_whole(row):
    """Whether a row has its settings, its result, its sub-results and its scores."""
    calls = 0 if row["control"] else 2 if row["strategy"] == "steps" else 1
    settings = [row[name] for name in ("model", "strategy", "input", "repeat")]
    return (
        row["state"] == "done"
        and None not in settings
        and row["output"] is not None
        and len(row["steps"]) == calls
        and all(step["output"] for step in row["steps"])
        and row["scores"].keys() == {"contains", "python"}
        and None not in row["scores"].values()
    )


KILLS = """
import os, signal

async def steps(value, model):
    draft = await model.ask(f"draft {value['text']}", step="draft")
    return await model.ask(f"better {draft}", step="better")

def score(row):
    if not os.path.exists("armed"):
        return 1.0
    if "i3" in str(row["input"]):
        os.unlink("armed")
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.5
"""


def test_killed_between_reply_and_score_no_row_lacks_a_part_and_no_reply_is_paid_twice(
    abreast,
):
    with start_storm(latency=0.001) as storm:
        write(abreast, ["a/one"], {"a": storm})
        study = (
            (abreast.folder / "study.yaml")
            .read_text()
            .replace("[contains]", '[contains, {python: "mine:score"}]')
        )
        study = study.replace(
            "plain: {prompt:", 'steps: {python: "mine:steps"}\n    plain: {prompt:'
        )
        abreast.file("study.yaml", study)
        abreast.file("mine.py", KILLS)
        abreast.file("armed", "")
        command = ("matrix", "run", "study.yaml", "--no-report")
        with abreast.start(*command, measured=False) as process:
            process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        cut = abreast("matrix", "export", "study").rows
        assert all(is_whole(row) for row in cut)
        assert not [
            row for row in cut if row["input"] == "i3" and row["scores"]["python"] == 0.5
        ]  # it died there
        assert abreast(*command).code == 0
        rows = abreast("matrix", "export", "study").rows
        assert all(is_whole(row) for row in rows)
        assert Counter(row["strategy"] for row in rows if not row["control"]) == {
            "steps": 12,
            "plain": 12,
        }
        # A reply that came is never asked for again: at most what was in flight at the kill is.
        assert 36 <= storm.stats().arrived <= 36 + 4
