"""Who may use a gateway, and how its errors read in each dialect."""

import asyncio

import pytest

from tests.serve.gateways import (
    TOKEN,
    chat,
    lanes,
    message,
    open_gateway,
    open_upstream,
    reply_hi,
)

PATHS = {
    "/v1/chat/completions": chat(),
    "/v1/responses": {"model": "responses/x", "input": "Hello"},
    "/v1/messages": message(),
}


@pytest.fixture
async def upstream():
    async with open_upstream(reply_hi) as opened:
        yield opened


@pytest.fixture
async def client(upstream):
    async with open_gateway(lanes(upstream.url)) as opened:
        yield opened


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("key", ["", "wrong", "token-of-this-tes", f"x{TOKEN}", f"Ü{TOKEN}"])
async def test_without_the_token_nothing_is_answered(client, upstream, path, key):
    answer = await client.post(path, PATHS[path], key=key)
    assert (answer.status, upstream.requests) == (401, [])
    assert answer.json["error"]["type"] == "authentication_error"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:80"},
        {"host": "127.0.0.1"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
    ],
)
async def test_other_names_and_other_sites_are_refused_although_they_have_the_token(
    client, upstream, headers
):
    answer = await client.post("/v1/chat/completions", chat(), **headers)
    assert (answer.status, upstream.requests) == (403, [])


@pytest.mark.parametrize("header", ["x-api-key", "api-key"])
async def test_the_token_may_be_where_an_api_has_its_key(client, header):
    answer = await client.post("/v1/chat/completions", chat(), key="", **{header: TOKEN})
    assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "body", "parameter"),
    [
        ("/v1/chat/completions", b"no json", "body"),
        ("/v1/chat/completions", b"[1]", "body"),
        ("/v1/messages", {"messages": []}, "model"),
        ("/v1/responses", {"model": 3}, "model"),
    ],
)
async def test_a_body_that_is_no_request_is_a_400_in_the_dialect(client, path, body, parameter):
    answer = await client.post(path, body)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    assert parameter in answer.json["error"]["message"]
    assert answer.json.get("type") == ("error" if path == "/v1/messages" else None)


async def test_a_path_that_does_not_exist_is_a_404_in_the_dialect(client):
    openai = await client.post("/v1/embeddings", {"model": "x"})
    anthropic = await client.post("/v1/messages/batches", {"model": "x"})
    assert (openai.status, anthropic.status) == (404, 404)
    assert openai.json["error"]["code"] == "model_not_found"
    assert anthropic.json["error"]["type"] == "not_found_error"


async def test_models_are_listed_once_they_are_known(client):
    await client.chat()
    listed = (await client.get("/v1/models")).json["data"]
    assert [one["id"] for one in listed] == ["local/smollm2", "openai/gpt-x"]
    assert (await client.get("/v1/models/openai/gpt-x")).json["id"] == "openai/gpt-x"
    assert (await client.get("/v1/models/nothing")).status == 404
    assert (await client.get("/v1/models", key="")).status == 401


async def test_tokens_are_counted_by_the_provider_of_the_model_or_estimated(client, upstream):
    from aiohttp import web

    async def count(request, body):
        return web.json_response({"input_tokens": 4711})

    upstream.answer = count
    counted = await client.post("/v1/messages/count_tokens", message())
    assert counted.json == {"input_tokens": 4711}
    path, _, body = upstream.requests[0]
    assert (path, b"Hello" in body) == ("/v1/messages/count_tokens", True)
    guessed = await client.post(
        "/v1/messages/count_tokens", message("x" * 400) | {"model": "local/smollm2"}
    )
    assert guessed.json["input_tokens"] == pytest.approx(100, abs=5)
    assert guessed.headers["x-abreast-estimate"] == "true"


@pytest.mark.parametrize("seconds", ["soon", "-1", "inf", "nan"])
async def test_a_wait_that_is_no_number_is_a_400(client, seconds):
    answer = await client.chat(headers={"x_abreast_timeout": seconds})
    assert (answer.status, answer.json["error"]["param"]) == (400, "x-abreast-timeout")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
async def test_a_number_that_json_does_not_have_is_refused(client, upstream, number):
    body = b'{"model": "gpt-x", "messages": [], "top_p": %s}' % number.encode()
    answer = await client.post("/v1/chat/completions", body)
    assert (answer.status, upstream.requests) == (400, [])


async def test_a_request_that_is_no_http_is_refused_and_none_of_it_is_logged(client, caplog):
    host, _, port = client.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    key = TOKEN.encode() + b"\xff"
    for head in (b"Host: %s:%s\r\nAuthorization: Bearer %s\r\n", b"Host: %s\n%s %s\r\n"):
        writer.write(b"GET /v1/models HTTP/1.1\r\n")
        writer.write(head % (host.encode(), port.encode(), key) + b"\r\n")
        status = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        assert status in (b"400", b"401")
        if status == b"401":
            await reader.readuntil(b"}}")
    writer.close()
    assert not caplog.records
