"""Models that think before they answer: reasoning tokens count against the limit of the reply."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

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
