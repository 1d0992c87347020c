"""Settings of lanes: what each key of `[lanes.X]` does to a call over real HTTP, and its faults."""

import asyncio
import json
import os
import signal
import traceback
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
import trustme

import abreast
from abreast.assembly.names import lane_of
from abreast.core.errors import (
    ConnectionLost,
    KeyRefused,
    KeysMissing,
    ReplyTimeout,
    RequestRefused,
)
from abreast.models.http.key_command import KeyCommand
from abreast.models.lanes import PROVIDERS, check_keys, price_names, read_lanes, split_name
from abreast.models.price import FlatPrice, find_price
from tests.models.http.test_connection import context_of, talking
from tests.models.serving import Recorded, serving, speaking
from tests.turns import until

ONCE = abreast.Retry(0)
KEYS = ("sk-planted-first-0123456789", "sk-planted-second-9876543210")
REPLY = {
    "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 100},
}
ANTHROPIC = {
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
GEMINI = {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}


def opened(url, name="mine/model", *, folder=None, **settings):
    lane = name.partition("/")[0]
    lanes = read_lanes({lane: {"base_url": url, **settings}}, "abreast.toml", folder)
    return abreast.open_model(name, lanes=lanes, retry=ONCE)


# --- headers


async def test_headers_are_sent_with_every_call_and_those_of_variables_are_secret(monkeypatch):
    monkeypatch.setenv("GATEWAY_TOKEN", KEYS[0])
    echo = Recorded({**REPLY, "choices": [{"message": {"content": f"{KEYS[0]} blue"}}]})
    headers = {"X-Team": "blue", "X-Gateway-Token": "env:GATEWAY_TOKEN"}
    async with serving(echo) as server, opened(server.url, headers=headers) as model:
        reply = await model.ask("Hello")
    assert server.headers[0]["x-team"] == "blue"
    assert server.headers[0]["x-gateway-token"] == KEYS[0]
    assert reply.text == "*** blue"  # a word of the file is no secret


def test_a_variable_of_a_header_that_is_not_set_is_named_with_the_keys(monkeypatch):
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    table = {
        "one": {"base_url": "http://127.0.0.1:1", "headers": {"x-token": "env:NO_SUCH_TOKEN"}},
        "two": {"base_url": "http://127.0.0.1:1", "api_key_env": "NO_SUCH_KEY"},
    }
    lanes = read_lanes(table, "abreast.toml")
    with pytest.raises(KeysMissing) as caught:
        check_keys([lanes["one"], lanes["two"]])
    assert "one wants the environment variable NO_SUCH_TOKEN" in str(caught.value)
    assert "two wants the environment variable NO_SUCH_KEY" in str(caught.value)


# --- keys of commands


def command_of(folder: Path, *keys: str) -> str:
    """A command that prints the next of these keys at each run, and repeats the last one."""
    for number, key in enumerate(keys):
        (folder / f"key-{number}").write_text(f"{key}\n")
    return (
        f"n=$(cat runs 2>/dev/null || echo 0); echo $((n + 1)) > runs; "
        f'[ "$n" -lt {len(keys)} ] || n={len(keys) - 1}; cat "key-$n"'
    )


def runs_of(folder: Path) -> int:
    file = folder / "runs"
    return int(file.read_text()) if file.exists() else 0


async def test_a_key_of_a_command_is_fetched_once_for_all_calls_side_by_side(tmp_path):
    command = command_of(tmp_path, KEYS[0])
    async with (
        serving(Recorded(REPLY)) as server,
        opened(server.url, folder=tmp_path, api_key_command=command, width=8) as model,
    ):
        assert runs_of(tmp_path) == 0
        async with abreast.open_run("r") as run:
            replies = run.map(model.ask, [f"Question {n}" for n in range(20)], width=8)
            assert len([one async for one in replies if one.ok]) == 20
    assert runs_of(tmp_path) == 1
    assert {each["authorization"] for each in server.headers} == {f"Bearer {KEYS[0]}"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_key_that_is_refused_is_fetched_again_and_the_call_sent_once_more(tmp_path, stream):
    command = command_of(tmp_path, *KEYS)
    refused = Recorded({"error": {"message": "expired"}}, status=401)
    heard = []
    async with (
        serving(refused, Recorded(REPLY)) as server,
        opened(server.url, folder=tmp_path, api_key_command=command) as model,
    ):
        reply = await model.ask("Hello", hear=heard.append if stream else None)
        assert (await model.ask("Again")).text == "hi"
    assert reply.text == "hi"
    assert runs_of(tmp_path) == 2
    sent = [each["authorization"].removeprefix("Bearer ") for each in server.headers]
    assert sent == [KEYS[0], KEYS[1], KEYS[1]]


async def test_a_call_is_sent_again_only_once_and_not_with_the_key_that_was_refused(tmp_path):
    refused = Recorded({"error": {"message": "expired"}}, status=401)
    for keys, sent in ((KEYS, 2), (KEYS[:1], 1)):
        folder = tmp_path / str(sent)
        folder.mkdir()
        async with (
            serving(refused) as server,
            opened(server.url, folder=folder, api_key_command=command_of(folder, *keys)) as model,
        ):
            with pytest.raises(KeyRefused):
                await model.ask("Hello")
        assert (runs_of(folder), len(server.bodies)) == (2, sent)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo sk-planted-lost; exit 3", "failed with exit code 3"),
        ("echo sk-planted-lost >&2; kill -9 $$", "failed with exit code -9"),
        ("sk-planted-no-such-program", "failed with exit code 127"),
        ("true # sk-planted", "printed nothing"),
        ("printf 'sk-planted\\nsecond'", "printed something else than a key on one line"),
        ("yes sk-planted", "printed something else than a key on one line"),
    ],
)
async def test_a_command_that_fails_is_one_sentence_without_what_it_printed(
    command, said, tmp_path, caplog
):
    caplog.set_level("DEBUG")
    async with (
        serving(Recorded(REPLY)) as server,
        opened(server.url, folder=tmp_path, api_key_command=command) as model,
    ):
        with pytest.raises(KeyRefused) as caught:
            await model.ask("Hello")
        assert str(caught.value).startswith(f"abreast.toml: lanes.mine.api_key_command {said}")
        assert "sk-planted" not in "".join(traceback.format_exception(caught.value)) + caplog.text
        assert "sk-planted" not in repr(model) + repr(model.model)
    assert server.bodies == []


async def test_calls_whose_key_is_refused_side_by_side_share_the_next_one(tmp_path):
    refused = Recorded({"error": {"message": "expired"}}, status=401)
    async with (
        serving(Recorded(REPLY), *[refused] * 4, Recorded(REPLY)) as server,
        opened(
            server.url, folder=tmp_path, api_key_command=command_of(tmp_path, *KEYS), width=4
        ) as model,
    ):
        await model.ask("first", seed=1)  # the key is there, and all four are sent at once
        async with abreast.open_run("r") as run:
            outcomes = [one async for one in run.map(model.ask, ["a", "b", "c", "d"], width=4)]
    assert [one.ok for one in outcomes] == [True] * 4
    assert len(server.bodies) == 1 + 8
    assert runs_of(tmp_path) == 2


async def test_a_cancelled_call_ends_its_command(tmp_path):
    os.mkfifo(tmp_path / "never")
    (tmp_path / "pid").touch()
    command = "echo $$ > pid; exec cat never"  # one process, without children
    async with (
        serving(Recorded(REPLY)) as server,
        opened(server.url, folder=tmp_path, api_key_command=command) as model,
    ):
        call = asyncio.create_task(model.ask("Hello"))
        await until(lambda: (tmp_path / "pid").read_text().endswith("\n"))
        for _ in range(100):  # until it is known that the process has started
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ProcessLookupError):
            os.killpg(int((tmp_path / "pid").read_text()), 0)
    assert server.bodies == []


async def test_a_command_that_does_not_end_is_given_up(tmp_path):
    os.mkfifo(tmp_path / "never")
    command = KeyCommand("cat never", "here", str(tmp_path), seconds=0.1)
    with pytest.raises(KeyRefused, match=r"here\.api_key_command did not end in 0\.1 s"):
        await command.key()


async def test_a_command_whose_time_is_over_while_it_starts_is_ended(tmp_path, monkeypatch):
    start, started = asyncio.create_subprocess_shell, []

    async def start_noting(*words, **options):
        started.append(await start(*words, **options))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_shell", start_noting)
    os.mkfifo(tmp_path / "never")
    command = KeyCommand("cat never; true", "here", str(tmp_path), seconds=0)
    with pytest.raises(KeyRefused, match="did not end"):
        await command.key()
    assert [process.returncode for process in started] == [-signal.SIGKILL]


async def test_neither_a_key_of_a_command_nor_a_header_is_stored_or_shown(
    tmp_path, tmp_path_factory, monkeypatch, caplog
):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("GATEWAY_TOKEN", "planted-header-5e1f0b7d")
    planted = (*KEYS, "planted-header-5e1f0b7d")
    folder = tmp_path_factory.mktemp("secret")
    command = command_of(folder, *KEYS)
    text = " ".join(planted)
    answers = [
        Recorded({"error": {"message": text}}, status=401),
        Recorded({**REPLY, "id": text, "choices": [{"message": {"content": f"{text} hi"}}]}),
        Recorded({"error": {"message": text, "type": text}}, status=400),
        Recorded({"error": {"message": text}}, status=401),
    ]
    seen, said = [], []
    async with serving(*answers) as server:
        model = opened(
            server.url,
            folder=folder,
            api_key_command=command,
            headers={"x-gateway-token": "env:GATEWAY_TOKEN"},
        )
        hooks = [lambda event: seen.append(repr(event))]
        async with model, abreast.open_run("r", store=tmp_path / "runs.db", hooks=hooks) as run:
            async for one in run.map(model.ask, ["a", "b", "c"], width=1):
                said.append(repr(one))
                if not one.ok:
                    said += [repr(vars(one.error)), *traceback.format_exception(one.error)]
            said += [repr(model), repr(model.model), repr(run)]
    assert len(server.bodies) == 4  # one was sent twice; the last key is not renewed
    files = [
        path.read_bytes().decode(errors="replace")
        for path in tmp_path.glob("*.db*")
        if path.is_file()
    ]
    assert files
    for secret in planted:
        assert secret not in "".join([*seen, *said, *files, caplog.text])


# --- the body


async def test_extra_fields_are_in_every_body_and_a_request_goes_before_them():
    extra = {"top_p": 0.5, "seed": 7, "chat_template_kwargs": {"thinking": False}}
    async with serving(Recorded(REPLY)) as server, opened(server.url, extra=extra) as model:
        await model.ask("Hello")
        await model.ask("Hello", seed=3)
    first, second = server.bodies
    assert (first["top_p"], first["seed"]) == (0.5, 7)
    assert first["chat_template_kwargs"] == {"thinking": False}
    assert (second["top_p"], second["seed"]) == (0.5, 3)


async def test_extra_fields_are_merged_into_tables_of_the_body():
    extra = {"generationConfig": {"topK": 3, "temperature": 1}}
    async with (
        serving(Recorded(GEMINI)) as server,
        opened(server.url, "mine/model", kind="gemini", extra=extra) as model,
    ):
        await model.ask("Hello", temperature=0.25)
    assert server.body["generationConfig"] == {"topK": 3, "temperature": 0.25}


@pytest.mark.parametrize(
    ("kind", "reply"), [("openai", REPLY), ("anthropic", ANTHROPIC), ("gemini", GEMINI)]
)
async def test_a_dropped_parameter_is_not_sent_whatever_its_provider_calls_it(kind, reply):
    drop = ["temperature", "seed", "stop"]
    asked = {"temperature": 0.123, "seed": 99_991, "stop": ("never-sent",)}
    async with (
        serving(Recorded(reply)) as server,
        opened(server.url, "mine/model", kind=kind, drop=drop) as model,
    ):
        await model.ask("Hello", **asked)
    text = json.dumps(server.body)
    assert [one for one in ("0.123", "99991", "never-sent", *drop) if one in text] == []


async def test_a_field_of_the_body_can_be_dropped_by_its_path_and_replaced_by_an_extra_one():
    settings = {"drop": ["stream_options.include_usage", "max_tokens"], "extra": {"max_tokens": 9}}
    async with serving(Recorded(REPLY)) as server, opened(server.url, **settings) as model:
        await model.ask("Hello", max_tokens=5, hear=str)
    assert server.body["stream_options"] == {}
    assert server.body["max_tokens"] == 9


# --- the connection


async def test_a_lanes_own_proxy_is_used_and_none_overrides_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("LANE_PROXY", "")
    reply = json.dumps(REPLY).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    leak = reply.replace(b"hi", b"hi planted-word")
    async with talking(head % len(reply) + reply, head % len(leak) + leak) as proxy:
        async with opened("http://api.example/v1", proxy=proxy.url) as model:
            assert (await model.ask("Hello")).text == "hi"
        monkeypatch.setenv("LANE_PROXY", proxy.url.replace("://", "://me:planted-word@"))
        async with opened("http://api.example/v1", proxy="env:LANE_PROXY") as model:
            assert (await model.ask("Hello")).text == "hi ***"
        heads = [head.decode() for head, _ in proxy.requests]
    assert [head.split(" ")[1] for head in heads] == ["http://api.example/v1/chat/completions"] * 2
    assert "proxy-authorization" in heads[1].lower()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with opened("http://api.invalid/v1", proxy="none") as model:
        with pytest.raises(ConnectionLost, match=r"api\.invalid"):
            await model.ask("Hello")


@asynccontextmanager
async def served_with_tls(authority):
    reply = json.dumps(REPLY).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    tls = context_of(authority, "127.0.0.1")
    async with talking(head % len(reply) + reply, tls=tls) as talk:
        yield talk.url


async def test_a_lane_trusts_the_certificates_of_its_file(tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with served_with_tls(authority) as url:
        async with opened(url, folder=tmp_path, ca_file="ca.pem") as model:
            assert (await model.ask("Hello")).text == "hi"
        async with opened(url) as model:
            with pytest.raises(RequestRefused, match="can't prove who it is"):
                await model.ask("Hello")


@pytest.mark.parametrize("source", ["ca_file", "SSL_CERT_FILE"])
@pytest.mark.parametrize("fault", ["missing", "directory", "garbage"])
def test_certificates_that_can_not_be_read_are_named_before_a_call(
    source, fault, tmp_path, monkeypatch
):
    path = tmp_path / "ca.pem"
    if fault == "directory":
        path.mkdir()
    elif fault == "garbage":
        path.write_text("no certificate")
    if source == "SSL_CERT_FILE":
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
    settings = {"ca_file": str(path)} if source == "ca_file" else {}
    with pytest.raises(KeysMissing) as caught:
        opened("https://127.0.0.1:9/v1", **settings)
    assert f"mine: {source}: {path}" in str(caught.value)


async def test_a_call_ends_after_the_timeout_of_its_lane_though_bytes_come():
    endless = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    async with speaking(None) as address, opened(f"http://{address}", timeout=0.2) as model:
        with pytest.raises(ReplyTimeout):
            await model.ask("Hello")
    async with talking(chain([endless], repeat(b": still here\n\n"))) as talk:
        async with opened(talk.url, timeout=0.2) as model:
            with pytest.raises(ReplyTimeout):
                await model.ask("Hello", hear=str)


# --- prices


async def test_the_rates_of_a_lane_are_those_of_its_calls():
    price = {"input": 2.0, "output": 10.0, "cached_input": 0.5, "cache_write": 2.5}
    async with serving(Recorded(REPLY)) as server, opened(server.url, price=price) as model:
        reply = await model.ask("Hello")
    assert reply.usage.usd == pytest.approx((1000 * 2 + 100 * 10) / 1e6)


def test_cached_and_written_tokens_have_their_own_rates():
    flat = FlatPrice(2.0, 10.0, cached_input=0.5, cache_write=2.5)
    assert flat.of(1000, 0, cached=600, written=100) * 1e6 == pytest.approx(600 + 300 + 250)
    assert FlatPrice(2.0, 10.0).of(1000, 0, cached=600, written=100) == pytest.approx(0.002)


# --- providers


async def test_azure_gets_its_key_in_its_own_header_at_its_own_address(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEYS[0])
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(KeysMissing, match="AZURE_OPENAI_ENDPOINT"):
        abreast.open_model("azure/my-gpt")
    async with serving(Recorded(REPLY)) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.url}/")
        async with abreast.open_model("azure:my-gpt", lanes=PROVIDERS, retry=ONCE) as model:
            assert (await model.ask("Hello", max_tokens=5)).text == "hi"
    assert server.paths == ["/openai/v1/chat/completions"]
    assert server.headers[0]["api-key"] == KEYS[0]
    assert "authorization" not in server.headers[0]
    assert (server.body["model"], server.body["max_completion_tokens"]) == ("my-gpt", 5)


async def test_a_dated_version_of_an_api_is_part_of_its_address(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEYS[0])
    async with serving(Recorded(REPLY)) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        url = "${AZURE_OPENAI_ENDPOINT}/openai/deployments/x?api-version=${NO_VERSION:-2024-10-21}"
        async with opened(url, "azure/x") as model:
            await model.ask("Hello")
    assert server.paths == ["/openai/deployments/x/chat/completions?api-version=2024-10-21"]


async def test_vertex_takes_its_key_from_gcloud(monkeypatch, tmp_path):
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f'#!/bin/sh\n[ "$*" = "auth print-access-token" ] && echo {KEYS[0]}\n')
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    assert PROVIDERS["vertex"].address == (
        "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/endpoints/openapi"
    )
    async with (
        serving(Recorded(REPLY)) as server,
        opened(server.url, "vertex/google/gemini-2.5-flash") as model,
    ):
        await model.ask("Hello")
    assert server.headers[0]["authorization"] == f"Bearer {KEYS[0]}"
    assert server.body["model"] == "google/gemini-2.5-flash"


@pytest.mark.parametrize(
    "name",
    [
        "azure/gpt-4o",
        "bedrock/openai.gpt-oss-120b-1:0",
        "vertex/google/gemini-2.5-flash",
        "openrouter/openai/gpt-4o-mini",
        "groq/llama-3.3-70b-versatile",
        "xai/grok-4",
        "together/meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "fireworks/accounts/fireworks/models/deepseek-r1-0528",
        "cerebras/gpt-oss-120b",
        "moonshot/kimi-k2-0905-preview",
        "zai/glm-4.6",
    ],
)
def test_prices_of_the_providers_are_in_the_table(name):
    for spelling in (name, name.replace("/", ":", 1)):
        lane, model = split_name(spelling, PROVIDERS)
        assert lane.wants_key
        assert find_price(*price_names(lane, model)) is not None


@pytest.mark.parametrize("name", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_a_server_on_this_machine_needs_no_key_and_its_width_is_not_searched(name):
    lane, model = split_name(f"{name}/llama3:8b", PROVIDERS)
    assert (lane.name, model, lane.wants_key, lane.adaptive) == (name, "llama3:8b", False, False)
    check_keys([lane])


# --- faults


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("header", {}, "did you mean headers?"),
        ("headers", "x", "must be a table"),
        ("headers", {"a b": "x"}, "can't be the name of a header"),
        ("headers", {"x-a": 3}, ".x-a must be a text"),
        ("headers", {"x-a": "env:"}, ".x-a must name a variable"),
        ("headers", {"x-a": "a\nb"}, ".x-a must be ASCII on one line"),
        ("headers", {"Authorization": "Bearer x"}, "a secret doesn't belong in this file"),
        ("headers", {"x-api-key": "x"}, "a secret doesn't belong in this file"),
        ("api_key_comand", "x", "did you mean api_key_command?"),
        ("api_key_command", ["x"], "must be a text"),
        ("api_key", "x", "a key doesn't belong in this file"),
        ("extra", [], "must be a table"),
        ("extra", {"model": "x"}, ".model: each request writes this field itself"),
        ("extra", {"n": 3}, ".n: one reply is read of each request, and all are paid"),
        ("extra", {"a": float("nan")}, "has a value that JSON doesn't have"),
        ("drop", "temperature", "must be a list of names"),
        ("drop", ["messages"], "messages can't be left out"),
        ("structured", "json_shema", "did you mean json_schema?"),
        ("structured", "xml", "there are json_schema, tool, json"),
        ("proxy", "socks5://x", "must begin with http://"),
        ("proxy", "http://me:secret@x", "a user or a password doesn't belong"),
        ("ca_file", 3, "must be a text"),
        ("timeout", 0, "must be a positive number"),
        ("rpm", int("9" * 400), "must be a positive number"),
        ("price", {"input": 1}, "must be {input = ..., output = ...}"),
        ("price", {"input": 1, "output": 1, "cached": 1}, "did you mean cached_input?"),
        ("price", {"input": 1, "output": -1}, ".output must be a number of at least 0"),
        ("base_url", "ftp://${HOST}", "must begin with http://"),
    ],
)
def test_a_fault_in_a_lane_is_one_sentence_with_its_place(field, value, said):
    table = {"mine": {"base_url": "http://127.0.0.1:1", field: value}}
    with pytest.raises(ValueError, match=r"^abreast\.toml: lanes\.mine") as caught:
        read_lanes(table, "abreast.toml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert field in str(caught.value)


def test_a_key_of_the_file_goes_before_one_that_is_built_in(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-built-in")
    lanes = read_lanes({"openai": {"api_key_command": "cat key"}}, "abreast.toml")
    lane, _ = split_name("openai/model", lanes)
    assert (lane.key, lane.wants_key, lane.lacks_key) == (None, True, False)


def test_an_address_may_have_variables_in_it(monkeypatch):
    url = "${LANE_HOST}/v1?api-version=${LANE_VERSION:-2026-01-01}"
    lanes = read_lanes({"mine": {"base_url": url}}, "abreast.toml")
    monkeypatch.delenv("LANE_HOST", raising=False)
    monkeypatch.delenv("LANE_VERSION", raising=False)
    with pytest.raises(KeysMissing, match=r"mine wants the environment variable LANE_HOST$"):
        check_keys([lanes["mine"]])
    monkeypatch.setenv("LANE_HOST", "https://here.example/")
    assert lanes["mine"].address == "https://here.example/v1?api-version=2026-01-01"
    monkeypatch.setenv("LANE_VERSION", "preview")
    assert lanes["mine"].address == "https://here.example/v1?api-version=preview"


# --- shared lanes


def test_a_shared_lane_has_limits_of_the_user_and_is_not_searched():
    table = {"openai": {"shared": True, "width": 12, "rpm": 600, "budget": "20usd/day"}}
    lane = read_lanes(table, "abreast.toml")["openai"]
    assert (lane.shared, lane.adaptive, lane.budget) == (True, False, "20usd/day")
    terms = lane_of(lane).terms
    assert (terms.slots, terms.rates, terms.caps) == (12, {"requests": 600.0}, {"usd": 20.0})
    assert lane_of(lane) is not lane_of(replace(lane, shared=False, budget=None))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"shared": True}, "no width"),
        ({"shared": True, "width": 4, "adaptive": True}, "adaptive = true"),
        ({"budget": "20usd"}, "is for a lane with shared = true"),
        ({"shared": "yes"}, "must be true or false"),
    ],
)
def test_a_shared_lane_without_limits_is_refused(table, said):
    with pytest.raises(ValueError, match=said):
        read_lanes({"openai": table}, "abreast.toml")


def test_a_budget_that_is_none_is_refused_with_its_place():
    table = {"openai": {"shared": True, "width": 4, "budget": "20usd/year"}}
    lane = read_lanes(table, "abreast.toml")["openai"]
    with pytest.raises(ValueError, match=r"lanes\.openai\.budget: there is no period 'year'"):
        lane_of(lane)
