"""Requests to models of another API: through `Request` and `Reply`, in the client's dialect."""

import asyncio
import json
from base64 import b64encode

import pytest

import abreast
from abreast.models.lanes import PROVIDERS
from abreast.store.port import each_outcome
from abreast.testing import MemoryStore, open_storm
from tests.models.embedded.tiny import write_tiny
from tests.models.pictures import png
from tests.serve.gateways import chat, lanes, message, open_gateway, open_upstream, reply_hi

LINES = [
    {"prompt": "Hello", "reply": "Good day to you"},
    {"prompt": "slow", "error": "ServerFault", "message": "it broke"},
    {"prompt": "no", "error": "Refused", "message": "I would rather not"},
]


@pytest.fixture
def model(tmp_path):
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return f"scripted/{script}"


@pytest.fixture
async def client():
    async with open_gateway(PROVIDERS) as opened:
        yield opened


PATHS = {
    "/v1/chat/completions": chat(),
    "/v1/messages": message(),
    "/v1/responses": {"model": "x", "input": "Hello"},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_any_model_answers_in_every_dialect(client, model, path, stream):
    answer = await client.post(path, {**PATHS[path], "model": model, "stream": stream})
    assert answer.status == 200
    if stream:
        assert answer.headers["content-type"] == "text/event-stream"
        pieces = [
            event.get("delta")
            if isinstance(event.get("delta"), str)
            else (event.get("delta") or event.get("choices", [{}])[0].get("delta") or {})
            for event in answer.events
        ]
        text = "".join(
            piece if isinstance(piece, str) else piece.get("text") or piece.get("content") or ""
            for piece in pieces
        )
        assert text == "Good day to you"
    else:
        assert "Good day to you" in answer.body.decode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_the_model_is_an_error_in_the_dialect(client, model, path, stream):
    body = {**PATHS[path], "model": model, "stream": stream}
    body["input" if "input" in body else "messages"] = (
        "no" if "input" in body else [{"role": "user", "content": "no"}]
    )
    answer = await client.post(path, body)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    assert "rather not" in answer.json["error"]["message"]


async def test_a_forced_tool_is_forced_in_the_provider_s_own_api():
    """Whatever API the client and the provider speak; the storm calls a tool that is forced."""
    plain = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    both = [plain, {**plain, "name": "clock"}]
    chosen = {
        "/v1/chat/completions": chat()
        | {
            "tools": [{"type": "function", "function": tool} for tool in both],
            "tool_choice": {"type": "function", "function": {"name": "clock"}},
        },
        "/v1/responses": {
            "input": "Hello",
            "tools": [{"type": "function", **tool} for tool in both],
            "tool_choice": {"type": "function", "name": "clock"},
        },
        "/v1/messages": message()
        | {
            "tools": [{"name": tool["name"], "input_schema": plain["parameters"]} for tool in both],
            "tool_choice": {"type": "tool", "name": "clock"},
        },
    }
    async with open_storm() as storm, open_storm(strict="openai-responses") as other:
        settings = lanes(storm.url) | {"responses": lanes(other.url)["responses"]}
        await _check_forced(settings, chosen)


async def _check_forced(settings, chosen):
    async with open_gateway(settings) as client:
        for path, body in chosen.items():
            for model in ("openai/x", "anthropic/x", "responses/x"):
                answer = await client.post(path, {**body, "model": model})
                assert answer.status == 200, answer.body
                said = [
                    *(answer.json.get("choices") or [{"message": {}}])[0]["message"].get(
                        "tool_calls", ()
                    ),
                    *(item for item in answer.json.get("output", ()) if "name" in item),
                    *(item for item in answer.json.get("content", ()) if "name" in item),
                ]
                names = [one.get("name") or one["function"]["name"] for one in said]
                assert names == ["clock"], (path, model, answer.body)
            lost = {**body, "model": "local/smollm2", "tools": body["tools"][:1]}
            answer = await client.post(path, lost)
            assert (answer.status, "tool_choice" in answer.json["error"]["message"]) == (400, True)


async def test_a_storm_of_one_dialect_answers_clients_of_the_others():
    store = MemoryStore()
    tool = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    async with open_storm() as storm, open_gateway(lanes(storm.url), store=store) as client:
        for model in ("openai/x", "anthropic/x", "gemini/x"):
            asked = {
                "/v1/chat/completions": chat("call weather")
                | {"tools": [{"type": "function", "function": tool}]},
                "/v1/responses": {"input": "call weather", "tools": [{"type": "function", **tool}]},
                "/v1/messages": message("call weather")
                | {"tools": [{"name": "weather", "input_schema": tool["parameters"]}]},
            }
            for path, body in asked.items():
                for stream in (False, True):
                    answer = await client.post(path, {**body, "model": model, "stream": stream})
                    assert answer.status == 200, answer.body
                    assert b"weather" in answer.body, (model, path, stream)
    assert len([*each_outcome(store, "serve-1")]) == 18


async def test_names_without_a_provider_go_where_the_flags_say(model):
    async with open_storm() as storm:
        async with open_gateway(lanes(storm.url), routes={"model": model}) as client:
            assert b"Good day" in (await client.post("/v1/messages", message())).body
            assert (await client.chat()).json["model"] == "gpt-x"
        async with open_gateway(lanes(storm.url), routes={"lane": "gemini"}) as client:
            assert (await client.chat()).status == 200
        assert [entry.lane for entry in storm.log] == ["gemini"]


async def test_a_missing_key_is_told_in_the_dialect(client, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    answer = await client.chat()
    assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
    assert "OPENAI_API_KEY" in answer.json["error"]["message"]


async def test_a_translated_call_whose_client_goes_away_is_closed_at_the_provider():
    async with open_storm(latency=60) as storm, open_gateway(lanes(storm.url)) as client:
        body = message() | {"model": "openai/x"}
        asking = asyncio.create_task(client.post("/v1/messages", body))
        await storm.until(lambda stats: stats.in_flight == 1)
        asking.cancel()
        await storm.until(lambda stats: stats.disconnects == 1)


async def test_an_embedded_model_answers_in_every_dialect(client, tmp_path):
    model = f"local/{write_tiny(tmp_path / 'tiny.gguf')}"
    for path, body in PATHS.items():
        bound = "max_output_tokens" if "input" in body else "max_tokens"
        answer = await client.post(path, {**body, "model": model, bound: 4})
        assert (answer.status, b" w" in answer.body) == (200, True), answer.body


async def test_a_recorded_run_is_a_model_that_answers_in_every_dialect(model):
    store = MemoryStore()
    async with abreast.open_run("asked", store=store) as run, abreast.open_model(model) as asked:
        await run.map(lambda text: asked.ask(text, max_tokens=64), ["Hello"], width=1).values()
    async with open_gateway(PROVIDERS, store=store) as client:
        for path, body in PATHS.items():
            bound = "max_output_tokens" if "input" in body else "max_tokens"
            answer = await client.post(path, {**body, "model": "replay/asked-1", bound: 64})
            assert (answer.status, b"Good day to you" in answer.body) == (200, True), answer.body
            unknown = await client.post(path, {**body, "model": "replay/asked-1", bound: 65})
            assert unknown.status == 400, unknown.body
    async with open_gateway(PROVIDERS, store=store) as client:
        answer = await client.post("/v1/messages", message() | {"model": "replay/serve-1"})
    assert answer.status == 404
    assert "abreast serve --replay serve-1" in answer.json["error"]["message"]


async def test_an_image_arrives_in_the_provider_s_own_form():
    data = b64encode(png()).decode()
    part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    turn = {"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}
    async with open_upstream(reply_hi) as upstream, open_gateway(lanes(upstream.url)) as client:
        body = message() | {"model": "openai/x", "messages": [turn]}
        answer = await client.post("/v1/messages", body)
    assert answer.json["content"] == [{"type": "text", "text": "Hi"}]
    [sent] = upstream.bodies[0]["messages"]
    assert sent["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": "What is it?"},
    ]
