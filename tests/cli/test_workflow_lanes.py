"""A step that names a provider's lane waits for it, and calls keep the limits of their lane."""

import json
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from abreast.store.sqlite.store import SqliteStore

FLOW = """
workflow: {id: lanes}
steps:
  - {id: a, type: shell, run: echo hi, lane: openai}
  - {id: b, type: prompt, prompt: Hello, model: openai/storm, lane: openai}
"""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        reply = {
            "choices": [{"message": {"content": "said"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-ratelimit-limit-requests", "600")
        self.send_header("x-ratelimit-remaining-requests", "599")
        self.send_header("x-ratelimit-reset-requests", "100ms")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def provider():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_calls_in_a_step_that_names_their_providers_lane_are_still_governed(abreast, tmp_path):
    with provider() as url:
        abreast.file("abreast.toml", f'[lanes.openai]\nbase_url = "{url}"\n')
        abreast.file("flow.yaml", FLOW)
        said = abreast(
            "run", "flow.yaml", OPENAI_API_KEY="sk-x", ABREAST_STATE=str(tmp_path / "state")
        )
    assert (said.code, said.out) == (0, "said\n"), said
    with closing(SqliteStore(abreast.store)) as store:
        found = [
            (event.lane, event.data["cause"])
            for event in store.events("lanes-1", kinds={"limit-changed"})
        ]
    assert ("openai", "header") in found


SHARED = """
workflow: {id: shared}
steps:
  - id: each
    type: fan-out
    items: "{{ [1, 2, 3] }}"
    max_concurrency: 3
    step: {id: one, type: shell, lane: machine, run: "echo in >> log; echo out >> log"}
"""


def test_steps_without_a_model_hold_a_slot_of_a_shared_lane(abreast):
    abreast.file("abreast.toml", "[lanes.machine]\nwidth = 1\nshared = true\n")
    abreast.file("flow.yaml", SHARED)
    said = abreast("run", "flow.yaml")
    assert said.code == 0, said
    assert (abreast.folder / "log").read_text().split() == ["in", "out"] * 3
    lanes = abreast("store", "lanes", "--json").rows
    assert [row["lane"] for row in lanes] == ["machine"]
