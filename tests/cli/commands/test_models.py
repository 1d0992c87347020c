"""Models from the command line, against a real HTTP server.

Keys, lanes, budgets, cache, replay, kills and bad input.
"""

import json
import signal

import pytest

from tests.cli.shell import end
from tests.cli.storms import start_storm

KEY = "sk-planted-5e1f0b7d-command-line"
LANES = """
[lanes.openai]
base_url = "{url}/v1"
api_key_env = "STORM_KEY"
price = {{input = 1.0, output = 2.0}}

[lanes.anthropic]
base_url = "{url}/v1"
api_key_file = "{key_file}"

[lanes.gemini]
base_url = "{url}/v1beta"
api_key_env = "STORM_KEY"
"""


@pytest.fixture(scope="module")
def calm():
    """A server that many tests share: each looks only at its own requests."""
    with start_storm() as storm:
        yield storm


@pytest.fixture
def at(abreast, tmp_path_factory):
    """abreast in a project whose lanes lead to a storm."""
    key_file = tmp_path_factory.mktemp("secret") / "key"
    key_file.write_text(f"{KEY}\n")

    def declare(storm):
        abreast.file("abreast.toml", LANES.format(url=storm.url, key_file=key_file))
        abreast.environment["STORM_KEY"] = KEY
        return abreast

    return declare


def lines(count, text="item {}"):
    return "".join(f"{text.format(number)}\n" for number in range(count))


def ask_all(abreast, *options, model="openai/storm", given="", prompt="Say {}"):
    return abreast("map", "--prompt", prompt, "-m", model, "--seed", "7", *options, given=given)


def grep(folder):
    return [
        path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]


# --- asking --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["openai/storm", "anthropic/storm", "gemini/storm"])
def test_one_question_is_answered_as_a_stream_or_as_json(at, calm, model):
    abreast = at(calm)
    said = abreast("ask", "-m", model, "Hello")
    assert (said.code, said.err) == (0, "")
    assert said.out.strip()
    (row,) = abreast("ask", "-m", model, "--json", "Hello").rows
    assert row["text"] == said.out.rstrip("\n")
    assert (row["finish"], row["requests"]) == ("stop", 1)
    assert (row["usd"] or 0) > 0 or model != "openai/storm"
    assert not abreast.store.exists()


@pytest.mark.parametrize("model", ["openai/storm", "anthropic/storm", "gemini/storm"])
def test_a_schema_gives_values_in_the_order_of_the_items(at, calm, model):
    abreast = at(calm)
    schema = {
        "type": "object",
        "properties": {"label": {"enum": ["good", "bad"]}},
        "required": ["label"],
    }
    abreast.file("label.json", json.dumps(schema))
    said = ask_all(abreast, "--schema", "label.json", model=model, given=lines(6))
    assert said.code == 0
    assert all(row["label"] in ("good", "bad") for row in said.rows)
    assert len(said.rows) == 6
    if model == "openai/storm":
        assert said.out == ask_all(abreast, "--schema", "label.json", "-P", "1", given=lines(6)).out


def test_the_doctor_asks_a_lane_once(at, calm):
    abreast = at(calm)
    before = calm.stats().arrived
    said = abreast("doctor", "openai/storm")
    assert (said.code, said.out[:3]) == (0, "ok ")
    assert calm.stats().arrived == before + 1
    said = abreast("doctor", "openai/fault-401")
    assert said.code == 1
    assert "refused the key" in said.out
    said = abreast("doctor", "openai/storm", STORM_KEY="")
    assert said.code == 1
    assert "STORM_KEY" in said.out
    assert abreast("doctor", "scripted/none.jsonl").code == 1
    assert "ok       openai/gpt-4o-mini" in abreast("doctor", "openai").out
    assert calm.stats().arrived == before + 3


def test_models_lists_the_lanes_their_keys_and_limits_but_no_key(at, calm):
    abreast = at(calm)
    rows = {row["lane"]: row for row in abreast("models", "--json").rows}
    assert rows["openai"]["key"] == "present"
    assert rows["openai"]["where"] == f"{calm.url}/v1"
    assert rows["mistral"]["key"] == "missing: MISTRAL_API_KEY"
    assert rows["ollama"]["key"] == "not needed"
    assert KEY not in abreast("models").out + abreast("models", "--json").out


# --- budgets, cache, replay ----------------------------------------------------------------------


def test_a_spent_budget_is_exit_3_and_a_raised_one_goes_on_where_it_ended(at):
    with start_storm() as storm:
        abreast = at(storm)
        said = ask_all(abreast, "--budget", "3req", given=lines(8))
        assert said.code == 3
        assert "3 of 3 requests" in said.err
        assert "abreast resume map-1 --budget MORE" in said.err
        assert len(said.lines) == 3
        assert storm.stats().arrived == 3
        assert abreast("runs", "--json").rows[0]["state"] == "spent"
        assert abreast("resume").code == 3
        assert storm.stats().arrived == 3
        again = abreast("resume", "--budget", "10req")
        assert again.code == 0
        assert len(again.lines) == 8
        assert storm.stats().arrived == 8
        assert again.out == ask_all(abreast, given=lines(8)).out
        assert abreast("show", "map-1", "--json").rows[0]["spent"]["requests"] == 8


@pytest.mark.parametrize("budget", ["60tok", "0.00001usd"])
def test_a_call_that_does_not_fit_the_budget_is_not_sent(at, budget):
    with start_storm() as storm:
        said = ask_all(at(storm), "--budget", budget, "--max-tokens", "100", given=lines(3))
        assert said.code == 3
        assert storm.stats().arrived == 0


def test_a_cap_on_money_without_a_price_is_refused_before_any_call(at, calm):
    before = calm.stats().arrived
    said = ask_all(at(calm), "--budget", "1usd", model="anthropic/storm", given=lines(3))
    assert said.code == 2
    assert "the price of anthropic/storm is not known" in said.err
    assert calm.stats().arrived == before


def test_a_quota_that_is_used_up_is_exit_3_and_the_run_goes_on_another_day(at):
    with start_storm(fault_at={3: "quota"}) as storm:
        abreast = at(storm)
        said = ask_all(abreast, "--lane-width", "1", given=lines(5))
        assert said.code == 3
        assert "openai takes no more requests" in said.err
        assert "abreast resume map-1" in said.err
        assert abreast("runs", "--json").rows[0]["state"] == "spent"
        assert abreast("resume").code == 0
        assert storm.stats().arrived == 6


def test_a_cached_reply_is_not_asked_for_and_can_be_forgotten(at):
    with start_storm() as storm:
        abreast = at(storm)
        first = ask_all(abreast, "--cache", given=lines(6))
        assert storm.stats().arrived == 6
        before = storm.stats().connections
        again = ask_all(abreast, "--cache", "--lane-width", "openai=2", given=lines(6))
        assert (again.code, again.out) == (0, first.out)
        assert storm.stats().connections == before
        (row,) = abreast("cache", "--json").rows
        assert (row["model"], row["replies"]) == ("openai/storm", 6)
        assert abreast("cache").lines[1].split()[:2] == ["openai/storm", "6"]
        assert abreast("cache", "clear", "--model", "other/model", "--json").rows == [
            {"forgotten": 0}
        ]
        assert abreast("cache", "clear", "--json").rows == [{"forgotten": 6}]
        assert abreast("cache", "--json").rows == []
        assert ask_all(abreast, "--cache", given=lines(6)).out == first.out
        assert storm.stats().arrived == 12


def test_a_cached_reply_does_not_wait_for_its_lane(at, calm):
    abreast = at(calm)
    declared = (abreast.folder / "abreast.toml").read_text()
    abreast.file("abreast.toml", f"{declared}rpm = 0.1\n")  # of the last lane, gemini's
    first = ask_all(
        abreast, "--cache", model="gemini/storm", given="item\n"
    )  # the one request of ten minutes
    again = ask_all(abreast, "--cache", model="gemini/storm", given="item\n" * 5)
    assert (first.code, again.code) == (0, 0)
    assert again.out == first.out * 5


def test_a_recorded_run_is_replayed_with_the_same_bytes_and_without_a_connection(at):
    with start_storm() as storm:
        abreast = at(storm)
        items = lines(5) + "alike\n" * 3 + "fault-refusal\n"
        first = ask_all(abreast, given=items)
        assert first.code == 1
        before = storm.stats().connections
        for options in ((), ("-P", "1"), ("--seed", "8")):
            again = ask_all(abreast, *options, model="replay/map-1", given=items)
            assert (again.code, again.out) == (first.code, first.out)
        assert len(set(first.lines)) == 8  # what is asked alike is answered by each item's own seed
        backwards = ask_all(
            abreast,
            model="replay/map-1",
            given="".join(reversed(lines(5).splitlines(keepends=True))),
        )
        assert backwards.lines == first.lines[4::-1]
        assert storm.stats().connections == before
        asked = abreast(
            "map", "--prompt", "Say {}", "-m", "replay/map-1", STORM_KEY="", given=items
        )
        assert asked.out == first.out  # a replay needs no key
        other = ask_all(abreast, model="replay/map-1", given="something else\n")
        assert other.code == 1
        assert "never asked" in other.err
        assert ask_all(abreast, model="replay/nope", given=items).code == 2


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["openai/storm", "anthropic/storm"])
def test_a_missing_key_is_told_before_anything_is_sent_or_written(
    at, calm, model, tmp_path_factory
):
    abreast = at(calm)
    abreast.file("abreast.toml", LANES.format(url=calm.url, key_file="/nowhere/key"))
    before = calm.stats().arrived
    for arguments in (["map", "--prompt", "Say {}", "-m", model], ["ask", "-m", model, "Hello"]):
        said = abreast(*arguments, given=lines(3), STORM_KEY="")
        assert said.code == 2
        assert said.err.startswith("abreast: a key is missing: ")
        assert "STORM_KEY" in said.err or "/nowhere/key" in said.err
    assert calm.stats().arrived == before
    assert not abreast.store.parent.exists()


@pytest.mark.parametrize("model", ["openai/storm", "anthropic/storm"])
def test_a_key_is_in_nothing_that_is_written_or_printed(at, calm, model):
    abreast = at(calm)
    faults = ("401", "403", "malformed", "html", "refusal", "truncated", "context")
    items = "".join(f"fault-{fault}\n" for fault in faults) + lines(3)
    said = [abreast("map", "-v", "--cache", "--prompt", "Say {}", "-m", model, given=items)]
    said += [
        abreast(*command, "-v")
        for command in (
            ("show", "last"),
            ("show", "last", "--json"),
            ("show", "last", "0001", "--json"),
            ("export", "last"),
            ("runs", "--json"),
            ("watch", "last", "--json"),
            ("cache", "--json"),
            ("models",),
            ("doctor",),
            ("doctor", "--config"),
            ("doctor", model),
            ("retry", "last"),
            ("ask", "fault-401", "-m", model),
        )
    ]
    assert said[0].code == 1
    assert said[0].err.count("refused the key") == 2
    assert not [one for one in said if KEY in one.out + one.err or "Traceback" in one.err]
    assert abreast.store.exists()
    assert grep(abreast.folder.parent) == []


def test_a_key_file_counts_from_the_file_that_names_it_and_a_run_from_where_it_was_started(
    at, calm
):
    abreast = at(calm)
    lane = f'[lanes.mine]\nbase_url = "{calm.url}/v1"\napi_key_file = "keys/mine"\n'
    abreast.file("inner/abreast.toml", lane)
    abreast.file("inner/keys/mine", KEY)
    (abreast.folder / "inner/below").mkdir()
    store = ("--store", abreast.folder / "runs.db")
    below = abreast.folder / "inner/below"
    asked = ("map", "--prompt", "Say {}", "-m", "mine/storm", "--budget", "2req", *store)
    assert abreast(*asked, given=lines(3), cwd=below).code == 3
    again = abreast("resume", "--budget", "3req", *store)
    assert (again.code, len(again.lines)) == (0, 3)


def test_what_came_instead_of_a_reply_is_shown(at, calm):
    abreast = at(calm)
    (row,) = ask_all(abreast, "--json", given="fault-html\n").rows
    assert row["error"]["type"] == "abreast.core.errors.ReplyBroken"
    assert (row["error"]["status"], row["error"]["raw"][:15]) == (200, "<!doctype html>")
    assert abreast("export", "last").rows[0]["error"] == row["error"]
    assert abreast("show", "last", "0000", "--json").rows[0]["error"] == row["error"]
    assert (
        "\n--- what came instead of a reply\n<!doctype html>" in abreast("show", "last", "0000").out
    )


# --- ends in the middle --------------------------------------------------------------------------


def start_and_wait(abreast, storm, *, done, stalled):
    """Start asking about items of which the last ones get no answer the first time.

    Wait until only those are left.
    """
    abreast.file("items", lines(done) + lines(stalled, "fault-stallx1 {}"))
    started = abreast.start(
        "map", "--prompt", "Say {}", "-m", "openai/storm", "--seed", "7", "--input", "items"
    )

    def wait(process):
        storm.until(process, lambda stats: stats.arrived == done + stalled)
        abreast.until(process, lambda: len(abreast.recorded()) == done)

    return started, wait


def test_after_a_kill_no_recorded_call_is_sent_again_and_the_bytes_are_the_same(at):
    with start_storm() as storm:
        abreast = at(storm)
        started, wait = start_and_wait(abreast, storm, done=10, stalled=4)
        with started as process:
            wait(process)
            process.kill()
            process.wait()
        assert storm.stats().arrived == 14
        again = abreast("resume")
        assert (again.code, len(again.lines)) == (0, 14)
        assert storm.stats().arrived == 18
        whole = ask_all(abreast, "--input", "items")
        assert whole.out == again.out


def test_after_ctrl_c_the_server_sees_the_disconnects_and_the_run_goes_on(at):
    with start_storm() as storm:
        abreast = at(storm)
        started, wait = start_and_wait(abreast, storm, done=6, stalled=4)
        with started as process:
            wait(process)
            process.send_signal(signal.SIGINT)
            said = end(process)
        assert said.code == 130
        assert said.err == "abreast: interrupted; go on with: abreast resume map-1\n"
        storm.when(lambda stats: not stats.in_flight).result()
        assert storm.stats().disconnects == 4
        assert abreast("runs", "--json").rows[0]["state"] == "interrupted"
        again = abreast("resume")
        assert (again.code, len(again.lines)) == (0, 10)
        assert storm.stats().arrived == 14


# --- bad input -----------------------------------------------------------------------------------


def refused(abreast, storm, *arguments, says, given="x\n"):
    before = storm.stats().arrived
    said = abreast(*arguments, given=given)
    assert said.code == 2, said
    assert says in said.err
    assert said.err.startswith("abreast: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert said.out == ""
    assert not abreast.store.parent.exists()
    assert storm.stats().arrived == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--lane-width", "0"), "--lane-width"),
        (("--lane-width", "-1"), "--lane-width"),
        (("--provider-concurrency", "0"), "--lane-width"),
        (("--lane-width", ""), "--lane-width"),
        (("--lane-width", "1.5"), "--lane-width"),
        (("--lane-width", "nope=3"), "there is no lane 'nope'"),
        (("--lane-width", "openai=0"), "--lane-width"),
        (("--lane-width", "openai="), "--lane-width"),
        (("--lane-width", "openai=2,"), "--lane-width"),
        (("--temperature", "nan"), "--temperature"),
        (("--temperature", "-1"), "--temperature"),
        (("--temperature", "inf"), "--temperature"),
        (("--max-tokens", "0"), "--max-tokens"),
        (("--max-tokens", "many"), "--max-tokens"),
        (("--schema", "missing.json"), "--schema: missing.json can't be read"),
        (("--schema", "."), "--schema"),
        (("--schema", "broken.json"), "--schema: broken.json is not JSON"),
        (("--schema", "list.json"), "must be a JSON object"),
        (("--schema", "wrong.json"), "is no JSON schema"),
        (("-m", "storm"), "a model is named provider/model"),
        (("-m", "opnai/storm"), "did you mean openai/storm?"),
        (("-m", "openai/"), "a model is named provider/model"),
        (("-m", "scripted/none.jsonl"), "none.jsonl"),
        (("-m", "replay/map-9"), "there is no store at"),
        (("--budget", "3apples"), "--budget"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence_and_nothing_is_written(at, calm, options, says):
    abreast = at(calm)
    abreast.file("broken.json", "{")
    abreast.file("list.json", "[]")
    abreast.file("wrong.json", '{"type": "fruit"}')
    asked = () if "-m" in options else ("-m", "openai/storm")
    refused(abreast, calm, "map", "--prompt", "Say {}", *asked, *options, says=says)
    if "--budget" not in options:
        refused(abreast, calm, "ask", *asked, *options, "Hello", says=says)


def test_an_empty_prompt_is_refused(at, calm):
    abreast = at(calm)
    refused(abreast, calm, "ask", "-m", "openai/storm", "", says="the prompt is empty")
    refused(
        abreast, calm, "ask", "-m", "openai/storm", "-", says="the prompt is empty", given=" \n"
    )
    refused(abreast, calm, "ask", "-m", "openai/storm", "-", says="not UTF-8", given=b"\xff")
    refused(abreast, calm, "map", "--prompt", " ", "-m", "openai/storm", says="--prompt is empty")
    refused(abreast, calm, "map", "--prompt", "{.x}", "-m", "openai/storm", says="--jsonl")
    refused(
        abreast, calm, "map", "-m", "openai/storm", "--", "true", says="--model is for --prompt"
    )
    refused(
        abreast,
        calm,
        "map",
        "--prompt",
        "{}",
        "-m",
        "openai/storm",
        "--",
        "true",
        says="exclude each other",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[lanes.openai]\nwidht = 3\n",
            "lanes.openai: there is no setting 'widht'; did you mean width?",
        ),
        (
            '[lanes.x]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "KEY"\n',
            "a key doesn't belong in this file",
        ),
        ('[lanes.openai]\nkey = "KEY"\n', "a key doesn't belong in this file"),
        (
            '[lanes.x]\nbase_url = "127.0.0.1:1/v1"\n',
            "base_url must begin with http:// or https:// and a host",
        ),
        (
            '[lanes.x]\nbase_url = "ftp://127.0.0.1/"\n',
            "base_url must begin with http:// or https:// and a host",
        ),
        ('[lanes.x]\nbase_url = "http://"\n', "lanes.x.base_url must begin with"),
        (
            '[lanes.x]\nbase_url = "http://me:KEY@127.0.0.1:1/v1"\n',
            "lanes.x.base_url: a user or a password",
        ),
        ('[lanes.x]\nbase_url = "http://[1/v1"\n', "lanes.x.base_url must begin with"),
        ("[lanes.x]\nbase_url = 7\n", "base_url must be a text"),
        ("[lanes.x]\n", "needs a base_url"),
        ("[lanes.openai]\nwidth = 0\n", "width must be a whole number of at least 1"),
        ("[lanes.openai]\nwidth = true\n", "width must be a whole number"),
        ("[lanes.openai]\nrpm = nan\n", "rpm must be a positive number"),
        ("[lanes.openai]\ntpm = -1\n", "tpm must be a positive number"),
        ("[lanes.openai]\ntimeout = 0\n", "timeout must be a positive number"),
        ("[lanes.openai]\nprice = 3\n", "price must be"),
        ("[lanes.openai]\nprice = {input = nan, output = 1}\n", "price.input must be a number"),
        ('[lanes.openai]\nkind = "telex"\n', "kind must be one of openai, openai-responses,"),
        ("lanes = 3\n", "lanes must be tables"),
        ("[lanes]\nopenai = 3\n", "must be a table"),
        ('[lanes."a/b"]\nbase_url = "http://127.0.0.1:1/v1"\n', "a lane's name"),
        ("[lanes.openai\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_abreast_toml_is_told_in_one_sentence(at, calm, text, says):
    abreast = at(calm)
    abreast.file("abreast.toml", text.replace("KEY", KEY))
    model = "x/storm" if "lanes.x" in text else "openai/storm"
    refused(abreast, calm, "map", "--prompt", "Say {}", "-m", model, says=says)
    said = abreast("models")
    assert (said.code, KEY in said.err) == (2, False)
