"""`abreast serve` and `abreast env`: commands, replays, kills, and what odd wishes are told."""

import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from tests.cli.shell import PATIENCE, end
from tests.cli.storms import start_storm

KEY = "sk-planted-0123456789-secret"
# Asks each of its arguments, and prints the answers.
PROGRAM = """
import json, os, sys, urllib.error, urllib.request
for text in sys.argv[2:]:
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": text}], "max_tokens": 5}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json",
         "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "x-abreast-client": "program"},
    )
    try:
        with urllib.request.urlopen(request) as reply:
            print(reply.read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def storm():
    with start_storm() as opened:
        yield opened


@pytest.fixture
def project(abreast, storm):
    """A project whose lane is the storm, with a program that asks."""
    price = "price = {input = 1000, output = 1000}"
    abreast.file("abreast.toml", f'[lanes.openai]\nbase_url = "{storm.url}/v1"\n{price}\n')
    abreast.file("program.py", PROGRAM)
    abreast.environment |= {"OPENAI_API_KEY": KEY, "ABREAST_STATE": str(abreast.folder / "state")}
    return abreast


def program(*words):
    return ("--", sys.executable, "program.py", *words)


def ask(address, token, text):
    """One answer of a server: its status and body."""
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": text}]}
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    url = f"{address}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_width_of_the_users_does_not_turn_off_what_is_found_out(project):
    from abreast.cli.config import Config
    from abreast.cli.jobs.model_options import configured_lanes

    lanes = configured_lanes(Config.load(project.folder), "12", paced=True)
    assert (lanes["openai"].width, lanes["openai"].adaptive, lanes["openai"].capped) == (
        *(12, True, True),
    )
    assert not lanes["ollama"].adaptive  # it has no limits to find


def test_a_command_gets_its_answers_its_exit_code_counts_and_the_cost_is_said(project, storm):
    said = project("serve", *program("7", "one", "two"))
    assert (said.code, len(said.lines), storm.stats().arrived) == (7, 2, 2)
    assert "2 calls" in said.err
    assert "usd" in said.err
    shown = project("show", "serve-1").out
    assert "program: 2 calls" in shown
    assert "openai/gpt-x: 2 requests" in shown
    assert len(project("export", "serve-1").rows) == 2
    (facts,) = project("show", "serve-1", "--json").rows
    by_client, by_model = facts["served"]["client"], facts["served"]["model"]
    assert (by_client["program"]["calls"], by_model["openai/gpt-x"]["calls"]) == (2, 2)
    assert by_client["program"]["usd"] == by_model["openai/gpt-x"]["usd"] > 0
    watched = project("watch", "serve-1").out
    assert "by client  program: 2 calls" in watched
    assert "by model  openai/gpt-x: 2 calls" in watched
    assert "client program" in watched  # its lane
    assert project("watch", "serve-1", "--json").rows[-1]["served"] == facts["served"]


def test_a_recorded_command_is_replayed_without_a_provider_and_without_a_key(project, storm):
    before = project("serve", "--record", *program("0", "one", "two", "one"))
    del project.environment["OPENAI_API_KEY"]
    again = project("serve", "--replay", "last", *program("0", "one", "two", "one"))
    assert (again.code, again.out) == (0, before.out)
    assert storm.stats().arrived == 3
    assert "3 answers from serve-1" in again.err
    unknown = project("serve", "--replay", "serve-1", *program("0", "three"))
    assert "400" in unknown.out
    assert "The nearest one" in unknown.out


def test_a_spent_budget_is_a_402_for_the_command(project, storm):
    said = project("serve", "--budget", "1req", *program("0", "one", "two"))
    assert said.lines[1].startswith("402 ")
    assert "insufficient_quota" in said.lines[1]
    assert storm.stats().arrived == 1


def test_keys_and_tokens_are_in_no_file_that_it_leaves(project):
    project.environment["ABREAST_SERVE_TOKEN"] = "planted-token-0123456789"
    project("serve", *program("0", "one"))
    left = [path for path in project.folder.rglob("*") if path.is_file() and path.suffix != ".py"]
    assert any(path.name == "abreast.db" for path in left)
    for path in left:
        content = path.read_bytes()
        assert KEY.encode() not in content, path
        assert b"planted-token" not in content, path


def test_env_prints_the_variables_of_a_running_server_which_ctrl_c_ends_well(project):
    assert project("env").code == 2
    with project.start("serve", "--port", "0", "--json") as server:
        facts = json.loads(server.stdout.readline())
        found = json.loads(project("env", "--port", facts["port"], "--json").out)
        assert found["OPENAI_BASE_URL"] == f"{facts['address']}/v1"
        assert found["ANTHROPIC_BASE_URL"] == facts["address"]
        lines = project("env", "--port", facts["port"], "--client", "me").lines
        token = found["OPENAI_API_KEY"]
        assert f"export OPENAI_API_KEY={token}.me" in lines
        [file] = (project.folder / "state" / "serve").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert ask(facts["address"], f"{token}.me", "hello")[0] == 200
        assert ask(facts["address"], "wrong", "hello")[0] == 401
        server.send_signal(signal.SIGINT)
        said = end(server)
    assert (said.code, file.exists()) == (0, False)
    assert "1 call" in said.err
    shown = json.loads(project("show", "last", "--json").out)
    assert shown["state"] == "done"
    assert "me: 1 call," in project("show", "last").out


def test_after_a_kill_a_resumed_run_does_not_pay_twice_for_what_it_recorded(project, storm):
    project.environment["ABREAST_SERVE_TOKEN"] = token = "token-of-this-test"
    answers = {}
    storm.change(latency=0.02)

    def asking(address, number):
        with suppress(urllib.error.URLError, OSError):  # killed meanwhile
            answers[number] = ask(address, token, f"question {number}")

    with project.start("serve", "--port", "0", "--json", measured=False) as server:
        address = json.loads(server.stdout.readline())["address"]
        threads = [threading.Thread(target=asking, args=(address, n)) for n in range(40)]
        with storm.killing(server, 20):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            server.wait()
    storm.rest()  # a request may be sent, and not yet be read
    before, arrived = dict(answers), storm.stats().arrived
    assert 0 < len(before) < 40
    recorded = len(project.recorded("serve-1"))
    with project.start("serve", "--port", "0", "--json", "--resume", "last") as server:
        address = json.loads(server.stdout.readline())["address"]
        for number in range(40):
            asking(address, number)
        server.send_signal(signal.SIGTERM)
        assert end(server).code == 0
    assert storm.stats().arrived - arrived <= 40 - recorded
    assert {status for status, _ in answers.values()} == {200}
    kept = [number for number in before if answers[number][1] == before[number][1]]
    assert len(kept) >= min(recorded, len(before)) - 1


def test_a_name_of_the_settings_stands_for_models_that_are_asked_in_turn(project, storm):
    settings = (project.folder / "abreast.toml").read_text()
    nowhere = f'[lanes.nowhere]\nbase_url = "{storm.url}/nowhere/v1"\n'
    named = '[serve.models.careful]\nask = ["nowhere/x", "openai/gpt-y"]\ncache = true\n'
    project.file("abreast.toml", settings + nowhere + named)
    said = project("serve", "-m", "careful", "--no-record", *program("0", "one", "one"))
    first, again = said.lines
    assert (first, json.loads(first)["model"]) == (again, "gpt-x")  # as it was asked for
    assert [one.model for one in storm.log() if one.outcome == "ok"] == ["gpt-y"]
    project.file("abreast.toml", settings + named)
    wrong = project("serve")
    assert (
        wrong.code,
        "serve.models.careful.ask: there is no provider 'nowhere'" in wrong.err,
    ) == (*(2, True),)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--port", "x"], "--port"),
        (["--host", "0.0.0.0"], "--allow-others"),
        (["--lane", "nowhere"], "nowhere"),
        (["--model", "nowhere/x"], "nowhere"),
        (["--budget", "lots"], "lots"),
        (["--max-wait", "soon"], "--max-wait"),
        (["--replay", "serve-9"], "no run"),
        (["--replay", "last", "--cache"], "--cache"),
        (["--no-record", "--resume", "last"], "--no-record"),
        (["--record", "--no-record"], "--record keeps"),
        (["--record", "--replay", "last"], "--record keeps"),
        (["--", "./no-such-program"], "no-such-program"),
        (["--name", ""], "--name"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(project, words, told):
    said = project("serve", *words)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert len(said.err.splitlines()) == 1


def test_another_jobs_run_is_not_replayed_and_a_server_is_resumed_by_its_own_command(project):
    project("map", "--", "true", given="1\n")
    assert "no run of `abreast serve`" in project("serve", "--replay", "last").err
    project("serve", *program("0", "one"))
    said = project("resume", "serve-1", "--retry-failed")
    assert (said.code, "abreast serve --resume serve-1" in said.err) == (2, True)


def test_a_port_in_use_is_told(project):
    with project.start("serve", "--port", "0", "--json", "--no-record") as server:
        port = json.loads(server.stdout.readline())["port"]
        said = project("serve", "--port", port)
        assert (said.code, "can't be listened on" in said.err) == (2, True)
        server.send_signal(signal.SIGTERM)
        end(server)
