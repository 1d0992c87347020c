"""The cap of a provider holds for strategies with a client of their own, by the server's log."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

CELLS = 5
FUNCTIONS = """
import sys
import urllib.request


def post(text):
    with urllib.request.urlopen("{url}", data=text.encode(), timeout=60) as reply:
        return reply.read().decode()


def plain(value, model):
    return post(value["text"])


async def awaited(value, model):
    import asyncio

    return await asyncio.to_thread(post, value["text"])


def permitted(value, model):
    with model.permit():
        return post(value["text"])


def asked(value, model):
    found = model.reply(value["text"])
    return [found.text, found.usage.requests]


if __name__ == "__main__":
    print(post(sys.argv[1]), end="")
"""


FLOW = """
schema_version: "1.0"
workflow: {id: flow, integration: poster}
inputs: {text: {type: string}}
steps:
  - {id: agent, type: prompt, prompt: "{{ inputs.text }}"}
"""


class Provider(ThreadingHTTPServer):
    """Answers only when `full` requests are in flight, and logs how many are."""

    daemon_threads = True

    def __init__(self, full):
        super().__init__(("127.0.0.1", 0), Handler)
        self.full, self.log, self.now = full, [], 0
        self.changed = threading.Condition()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def arrive(self):
        with self.changed:
            self.now += 1
            self.log.append(self.now)
            self.changed.notify_all()
            group = (len(self.log) - 1) // self.full
            self.changed.wait_for(lambda: len(self.log) >= min((group + 1) * self.full, CELLS), 60)
            # A request too many would come now, while all places are taken.
            self.changed.wait_for(lambda: self.now > self.full, 0.2)

    def leave(self):
        with self.changed:
            self.now -= 1


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.arrive()
        self.server.leave()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def provider():
    opened = []

    def start(full):
        server = Provider(full)
        opened.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in opened:
        server.shutdown()
        server.server_close()


def write(abreast, server, strategy, width=None):
    rows = [json.dumps({"id": f"i{number}", "text": f"t{number}"}) for number in range(CELLS)]
    abreast.file("data.jsonl", "\n".join(rows))
    abreast.file("mine.py", FUNCTIONS.format(url=server.url))
    abreast.file(
        "study.yaml",
        f"""
matrix:
  models: [own/any]
  strategies: {{own: {strategy}}}
  inputs: data.jsonl
""",
    )
    abreast.file("flow.yaml", FLOW)
    runner = (
        f"[runners.poster]\nargv = {json.dumps([sys.executable, '-IS', 'mine.py', '{prompt}'])}\n"
    )
    own = f"width = {width}\n" if width else ""
    abreast.file("abreast.toml", f'{runner}[lanes.own]\nbase_url = "{server.url}v1"\n{own}')


@pytest.mark.parametrize("cap", [1, 4])
@pytest.mark.parametrize(
    "strategy",
    ["python: mine:plain", "python: mine:awaited", "python: mine:permitted", "workflow: flow.yaml"],
)
def test_a_strategy_with_its_own_client_keeps_the_cap_by_the_servers_log(
    abreast, provider, strategy, cap
):
    server = provider(cap)
    write(abreast, server, f"{{{strategy}}}")

    said = abreast("matrix", "run", "study.yaml", "--no-report", "--lane-width", str(cap))

    assert said.code == 0, said.err
    assert (len(server.log), max(server.log)) == (CELLS, cap)
    rows = abreast("matrix", "export", "study").rows
    assert {row["output"] for row in rows} == {f"t{number}" for number in range(CELLS)}
    assert all(
        row["service_s"] > 0 and row["attempts"] == 1 and 1 <= row["in_flight"] <= cap
        for row in rows
    )


@pytest.mark.parametrize(
    ("flag", "cap"), [((), 1), (("--lane-width", "own=4,openai=2"), 4), (("--lane-width", "2"), 2)]
)
def test_the_width_of_a_lane_in_the_configuration_counts_unless_the_command_line_says_otherwise(
    abreast, provider, flag, cap
):
    server = provider(cap)
    write(abreast, server, "{python: mine:plain}", width=1)
    abreast.file("study.yaml", (abreast.folder / "study.yaml").read_text() + "  lane_width: 3\n")

    assert abreast("matrix", "run", "study.yaml", "--no-report", *flag).code == 0
    assert (len(server.log), max(server.log)) == (CELLS, cap)
    assert abreast("matrix", "report", "study", "--out", "report.md").code == 0
    assert f"| lane width | {cap} |" in (abreast.folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("given", "said"), [("own=0", "1"), ("own=x", "x"), ("other=2", "no lane 'other'; there are")]
)
def test_a_width_that_makes_no_sense_is_refused_before_anything_is_sent(
    abreast, provider, given, said
):
    server = provider(1)
    write(abreast, server, "{python: mine:plain}")

    refused = abreast("matrix", "run", "study.yaml", "--lane-width", given)
    assert (refused.code, server.log, (abreast.folder / ".abreast").exists()) == (2, [], False)
    assert said in refused.err
    assert len(refused.err.splitlines()) == 1


def test_a_plain_function_gets_the_whole_reply(abreast, provider):
    write(abreast, provider(1), '{python: "mine:asked"}')
    abreast.file(
        "replies.jsonl", "".join(f'{{"prompt": "t{n}", "reply": "T{n}"}}\n' for n in range(CELLS))
    )
    abreast.file(
        "study.yaml",
        (abreast.folder / "study.yaml").read_text().replace("own/any", "scripted/replies.jsonl"),
    )

    assert abreast("matrix", "run", "study.yaml", "--no-report").code == 0
    assert [row["value"] for row in abreast("matrix", "export", "study").rows] == [
        [f"T{n}", 1] for n in range(CELLS)
    ]
