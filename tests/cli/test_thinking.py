"""Models that think before they answer: how much is said, and what it leaves for the reply."""

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from abreast.cli.jobs.map.job import MapJob
from abreast.jobs.matrix.spec import ModelArm, digest
from abreast.jobs.sample.spec import SampleSpec
from tests.models import serving as recorded
from tests.models.providers.test_openai import said

THOUGHT = 400  # tokens that the model of these tests spends before it says anything

LANES = """
[lanes.think]
kind = "openai"
base_url = "{url}"
price = {{input = 1.0, output = 2.0}}
"""


class Thinker(BaseHTTPRequestHandler):
    """Chat completions whose reply begins after `THOUGHT` tokens; a smaller limit leaves none."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        most = body.get("max_tokens") or body.get("max_completion_tokens")
        enough = most is None or most > THOUGHT
        text = ""
        if enough:
            text = '{"reason": "", "meets": true}' if "response_format" in body else "yes"
        used = {"prompt_tokens": 9, "completion_tokens": THOUGHT + 1 if enough else most}
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if enough else "length"}
        said = json.dumps(
            {"id": "1", "model": "thinker", "choices": [choice], "usage": used}
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Thinker)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def thinking(abreast):
    with serving() as url:
        abreast.file("abreast.toml", LANES.format(url=url))
        yield abreast


def test_the_doctor_leaves_room_to_think(thinking):
    said = thinking("doctor", "think/deep")
    assert (said.code, said.out[:3]) == (0, "ok "), said.out


STUDY = """
matrix:
  name: judged
  models: [think/deep]
  strategies:
    plain: {prompt: "Say {{ input.text }}"}
  inputs: [{id: a, text: hello}]
  scores:
    - {judge: "Is it good?", name: good}
"""


def test_a_judge_of_a_study_leaves_room_to_think(thinking):
    thinking.file("study.yaml", STUDY)
    said = thinking("matrix", "run", "study.yaml", "--no-report")
    assert said.code == 0, said.err
    (row,) = [
        row for row in thinking("matrix", "export", "last").rows if row["strategy"] == "plain"
    ]
    assert row["scores"] == {"good": 1.0}


def test_a_judge_of_a_sample_leaves_room_to_think(thinking):
    said = thinking(
        "sample", "Say hello", "-m", "think/deep", "--check", "judge: is kind", "--json"
    )
    assert said.code == 0, said.err
    assert said.rows[-1]["ok"]


def test_the_room_of_a_judge_is_in_the_cost_that_is_told_beforehand(thinking):
    words = ("sample", "Say hello", "-m", "think/deep", "--max-tokens", "10", "--dry-run", "--json")
    (alone,) = thinking(*words).rows
    (judged,) = thinking(*words, "--check", "judge: is kind").rows
    more = judged["worst_usd"] - alone["worst_usd"]
    assert more >= judged["breadth"] * judged["depth"] * THOUGHT * 2.0 / 1_000_000


def test_the_room_of_a_judge_is_in_the_forecast_of_a_study(thinking):
    thinking.file("study.yaml", STUDY)
    words = ("matrix", "run", "study.yaml", "--dry-run", "--json")
    judged = thinking(*words).rows[-1]
    thinking.file("study.yaml", STUDY.replace('judge: "Is it good?"', 'contains: "yes"'))
    alone = thinking(*words).rows[-1]
    assert judged["usd"]["high"] - alone["usd"]["high"] >= THOUGHT * 2.0 / 1_000_000


# --- how much to think

FILES = {
    "sample.yaml": "sample: {prompt: Hi, model: mine/x, reasoning: low, thinking_tokens: 50, "
    "max_tokens: 10}",
    "flow.yaml": """workflow: {id: flow, name: flow}
steps:
  - {id: ask, type: prompt, prompt: Hi, model: mine/x,
     reasoning: low, thinking_tokens: 50, max_tokens: 10}
""",
    "study.yaml": """matrix:
  name: study
  models:
    - {name: mine/x, max_tokens: 10, reasoning: high, thinking_tokens: 50}
  strategies:
    plain: {prompt: Hi, reasoning: low}
    drawn: {sample: {prompt: Hi, reasoning: low}}
  inputs: [{id: a, text: b}]
""",
}
FLAGS = ("--reasoning", "low", "--thinking-tokens", "50", "--max-tokens", "10")


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        (("ask", "-m", "mine/x", *FLAGS, "Hi", "--json"), 1),
        (("map", "--prompt", "Hi {}", "-m", "mine/x", *FLAGS), 1),
        (("sample", "Hi", "-m", "mine/x", *FLAGS), 1),
        (("run", "sample.yaml"), 1),
        (("run", "flow.yaml"), 1),
        (("run", "study.yaml"), 2),
    ],
    ids=["ask", "map", "sample", "sample file", "workflow", "study"],
)
async def test_how_much_to_think_reaches_the_provider(abreast, command, calls):
    for name, text in FILES.items():
        abreast.file(name, text)
    async with recorded.serving(recorded.Recorded(said("Hello"))) as server:
        abreast.file("abreast.toml", f'[lanes.mine]\nbase_url = "{server.url}/v1"\n')
        ran = await asyncio.to_thread(abreast, *command, given="it\n")
        assert ran.code == 0, ran
    sent = [(body.get("reasoning_effort"), body.get("max_tokens")) for body in server.bodies]
    assert sent == [("low", 60)] * calls


async def test_a_map_that_is_resumed_thinks_as_much_as_before(abreast):
    answers = (
        recorded.Recorded({"error": {"message": "no"}}, status=400),
        recorded.Recorded(said("Hello")),
    )
    async with recorded.serving(*answers) as server:
        abreast.file("abreast.toml", f'[lanes.mine]\nbase_url = "{server.url}/v1"\n')
        command = ("map", "--prompt", "Hi {}", "-m", "mine/x", *FLAGS)
        failed = await asyncio.to_thread(abreast, *command, given="it\n")
        again = await asyncio.to_thread(abreast, "retry", "last")
    assert (failed.code, again.code) == (1, 0), (failed, again)
    assert [body["reasoning_effort"] for body in server.bodies] == ["low", "low"]


async def test_a_lane_says_how_much_its_models_think_unless_a_call_does(abreast):
    async with recorded.serving(recorded.Recorded(said("Hello"))) as server:
        abreast.file(
            "abreast.toml",
            f'[lanes.mine]\nbase_url = "{server.url}/v1"\nreasoning = "minimal"\n',
        )
        for more in ((), ("--reasoning", "high")):
            ran = await asyncio.to_thread(abreast, "ask", "-m", "mine/x", "Hi", *more)
            assert ran.code == 0, ran
    assert [body["reasoning_effort"] for body in server.bodies] == ["minimal", "high"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("ask", "Hi", "--reasoning", "lots"), "--reasoning must be one of none, minimal, low"),
        (("ask", "Hi", "--thinking-tokens", "-1"), "--thinking-tokens"),
        (("map", "--reasoning", "low", "--", "true"), "--reasoning is for --prompt"),
        (("map", "--thinking-tokens", "9", "--", "true"), "--thinking-tokens is for --prompt"),
        (("sample", "Hi", "--reasoning", "Low"), "--reasoning must be one of none, minimal, low"),
        (("run", "sample.yaml"), "sample.reasoning must be one of none, minimal, low"),
        (("run", "flow.yaml"), "flow.yaml:4: 'reasoning' of the prompt step 'ask' must be one of"),
        (("run", "study.yaml"), "study.yaml:6: 'reasoning' of the strategy 'plain' must be one of"),
        (("models",), "lanes.mine.reasoning must be one of none, minimal, low"),
    ],
)
def test_an_effort_that_there_is_not_is_told_in_one_sentence(abreast, command, says):
    for name, text in FILES.items():
        abreast.file(name, text.replace("reasoning: low", "reasoning: lots"))
    if command == ("models",):
        url = "http://127.0.0.1:1/v1"
        abreast.file("abreast.toml", f'[lanes.mine]\nbase_url = "{url}"\nreasoning = "lots"\n')
    ran = abreast(*command)
    assert ran.code == 2, ran
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_records_have_what_a_call_thinks_only_if_it_was_said():
    plain = MapJob(".", prompt="Hi {}").manifest()["map"]
    assert not {"reasoning", "thinking_tokens"} & plain.keys()
    said_so = MapJob(".", prompt="Hi {}", reasoning="low", thinking_tokens=0).manifest()["map"]
    assert (said_so["reasoning"], said_so["thinking_tokens"]) == ("low", 0)
    spec = SampleSpec("Hi")
    assert not {"reasoning", "thinking_tokens"} & spec.plain().keys()
    thinking = SampleSpec("Hi", reasoning="low", thinking_tokens=0)
    assert SampleSpec.of(thinking.plain()) == thinking
    arm = ModelArm("a/b", "b")
    assert arm.plain() == {"name": "a/b", "temperature": None, "max_tokens": None}
    assert digest(ModelArm("a/b", "b", reasoning="low").plain()) != digest(arm.plain())
