"""What agents report, from recorded output of the real ones and from made-up lines."""

import json

import pytest

from abreast.agents.known import KNOWN
from abreast.agents.process import failure
from abreast.agents.report import MAX_LINE, MAX_TEXT, ReportReader, brief
from abreast.agents.runner import AgentRunner
from abreast.core.errors import KeyRefused, QuotaSpent, Throttled
from abreast.core.usage import Usage
from tests.agents.stubs import RECORDED, stub_runner


def read(name: str, pieces: int = 1):
    agent = name.partition("-")[0]
    reader = ReportReader(KNOWN[agent])
    data = (RECORDED / f"{name}.jsonl").read_bytes()
    size = -(-len(data) // pieces)
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    return reader.end()


@pytest.mark.parametrize("pieces", [1, 7, 500])
def test_claude_says_what_it_did_and_what_that_cost(pieces):
    report = read("claude-edited", pieces)
    assert report.text.startswith("tin key cup")
    assert report.session == "e2736a0b-4e70-476c-a7fb-b3d8d27b73fc"
    assert report.model == "claude-sonnet-4-5"
    assert report.turns == 2
    assert report.cost == pytest.approx(0.051108)
    assert report.usage == Usage(2, 16796, 48, 0.051108)
    assert report.steps[0] == "Bash echo one >> a.txt; echo new > b.txt"
    assert report.step_count == 2
    assert report.ended
    assert not report.error


def test_codex_says_what_it_did_and_how_many_tokens_that_took():
    report = read("codex-edited")
    assert report.text.startswith("jet jar net")
    assert report.session == "01a1e9f6-31d6-7d60-903d-44d55121270b"
    assert report.cost is None
    assert report.usage == Usage(
        1, 10230, 2433, None, cached_input_tokens=4992, reasoning_tokens=2400
    )
    assert report.steps[0] == "/bin/bash -lc 'echo two >> a.txt; echo new > c.txt'"
    assert report.ended


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("claude-key-refused", KeyRefused, "The API key is not valid"),
        ("claude-signed-out", KeyRefused, "Not logged in"),
        ("claude-throttled", Throttled, "Request rejected"),
        ("claude-quota", QuotaSpent, "quota of the day"),
        ("codex-key-refused", KeyRefused, "401 Unauthorized"),
        ("codex-throttled", Throttled, "429 Too Many Requests"),
        ("codex-quota", QuotaSpent, "Quota exceeded"),
    ],
)
def test_errors_of_the_real_agents_are_those_of_models(name, error, words):
    report = read(name)
    assert report.error
    raised = failure(KNOWN[name.partition("-")[0]], report, report.error)
    assert type(raised) is error
    assert words in str(raised)
    assert raised.usage is not None


def test_usage_counts_while_it_runs_each_turn_once_and_is_an_estimate_until_the_end():
    seen: list[Usage] = []
    reader = ReportReader(stub_runner("x"), lambda report: seen.append(report.usage))
    for number, used in ((1, 10), (1, 12), (2, 20)):
        event = {"kind": "turn", "id": number, "input": used, "output": 1}
        reader.feed(json.dumps(event).encode() + b"\n")
    assert [one.input_tokens for one in seen] == [10, 12, 32]
    assert all(one.estimate for one in seen)
    reader.feed(b'{"kind": "end", "text": "t", "input": 30, "output": 9, "cost": 0.5}\n')
    assert reader.end().usage == Usage(2, 30, 9, 0.5)


def test_lines_that_are_no_json_or_too_long_are_passed_over():
    reader = ReportReader(stub_runner("x"))
    reader.feed(b"hello\n[1]\n{half\n\n")
    reader.feed(b'{"kind": "end", "text": "' + b"x" * MAX_LINE)
    reader.feed(b'y"}\n{"kind": "step", "text": "after"}\n')
    reader.feed(b'{"kind": "end", "text": "last"}')
    report = reader.end()
    assert report.text == "last"
    assert report.steps == ["after"]
    assert reader.strange == ["hello", "[1]", "{half"]
    assert reader.events == 2


def test_an_agent_without_rules_writes_its_text():
    reader = ReportReader(AgentRunner("plain", ("plain",)))
    reader.feed(b" some\ntext " + b"x" * MAX_TEXT)
    report = reader.end()
    assert report.text.startswith("some\ntext x")
    assert len(report.text) < MAX_TEXT
    assert report.ended


def test_a_step_is_one_short_line():
    assert brief({"name": "Edit", "input": {"file_path": "a.py", "n": 1}}) == "Edit a.py"
    assert brief({"odd": 1}) == '{"odd": 1}'
    assert brief("two\n lines") == "two lines"
    assert len(brief("x" * 1000)) == 160


def test_a_number_that_no_float_holds_is_left_out():
    reader = ReportReader(KNOWN["claude"])
    result = {"type": "result", "result": "done", "total_cost_usd": int("9" * 400)}
    reader.feed(json.dumps(result | {"num_turns": int("9" * 400)}).encode() + b"\n")
    assert reader.end().text == "done"
