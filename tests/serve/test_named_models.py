"""Models that the settings name: several asked in turn, and cached ones, over HTTP."""

import asyncio

import pytest
from aiohttp import web

from abreast.models.lanes import PROVIDERS
from abreast.serve.answer_cache import AnswerCache
from abreast.serve.named_models import NamedModel, read_named_models
from abreast.store.port import each_outcome
from abreast.testing import Gate, MemoryStore
from abreast.views.served import ServedSums
from tests.serve.gateways import chat, chat_reply, lanes, message, open_gateway, open_upstream

CAREFUL = {"careful": NamedModel(("openai/small", "openai/large"))}
PATHS = ("/v1/chat/completions", "/v1/messages")


def asked(path, **more):
    return {**(chat() if "chat" in path else message()), "model": "careful", **more}


# Both dialects, each whole and as a stream.
WAYS = [(path, asked(path, stream=stream)) for path in PATHS for stream in (False, True)]


def text_of(answer):
    """The text of an answer, whole or streamed, in either dialect."""
    whole = answer.body.startswith(b"{")
    if "type" in (answer.json if whole else answer.events[0]):
        parts = answer.json["content"] if whole else [one.get("delta", {}) for one in answer.events]
        return "".join(part.get("text", "") for part in parts)
    choices = [
        one["choices"][0] for one in ([answer.json] if whole else answer.events) if one["choices"]
    ]
    parts = [choice.get("message") or choice["delta"] for choice in choices]
    return "".join(part.get("content") or "" for part in parts)


def provider(small):
    """A provider whose large model says "Hi", and whose small one answers with `small`."""

    async def answer(request, body):
        if body["model"] == "large":
            return web.json_response(chat_reply())
        return web.json_response(small[1], status=small[0])

    return answer


def refusal():
    reply = chat_reply("")
    reply["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": "No."}
    return reply


UNUSABLE = {
    "refused": (200, refusal()),
    "empty": (200, chat_reply("")),
    "blank": (200, chat_reply(" \n")),
    "not an answer": (200, {"choices": []}),
    "a wrong request": (400, {"error": {"message": "no"}}),
    "no such model": (404, {"error": {"message": "no"}}),
}
QUOTA_SPENT = (429, {"error": {"message": "no", "code": "insufficient_quota"}})


@pytest.mark.parametrize("small", UNUSABLE)
async def test_the_next_model_is_asked_if_one_gives_no_usable_reply(small):
    async with open_upstream(provider(UNUSABLE[small])) as upstream:
        async with open_gateway(lanes(upstream.url), routes={"named": CAREFUL}) as client:
            answers = [await client.post(path, body) for path, body in WAYS]
    assert {(answer.status, text_of(answer)) for answer in answers} == {(200, "Hi")}
    assert [body["model"] for body in upstream.bodies] == ["small", "large"] * len(WAYS)
    streamed = [bool(body.get("stream")) for body in upstream.bodies]
    assert streamed == [False, False, False, True] * 2  # what is sent can't be taken back


async def test_a_usable_reply_of_the_first_is_the_answer():
    routes = {"model": "careful", "named": CAREFUL}
    async with open_upstream(provider((200, chat_reply("Small")))) as upstream:
        async with open_gateway(lanes(upstream.url), routes=routes) as client:
            answers = [await client.post(path, {**body, "model": "any"}) for path, body in WAYS]
            listed = await client.get("/v1/models")
    assert {text_of(answer) for answer in answers} == {"Small"}
    assert {body["model"] for body in upstream.bodies} == {"small"}
    assert listed.json["data"][0]["id"] == "careful"


@pytest.mark.parametrize("path", PATHS)
async def test_what_the_last_model_is_refused_is_the_clients_error(path):
    async def refuse(request, body):
        return web.json_response({"error": {"message": f"not {body['model']}"}}, status=400)

    async with open_upstream(refuse) as upstream:
        async with open_gateway(lanes(upstream.url), routes={"named": CAREFUL}) as client:
            answer = await client.post(path, asked(path))
    assert (answer.status, "not large" in answer.json["error"]["message"]) == (400, True)


async def test_a_budget_ends_the_search_and_every_call_of_it_is_counted():
    store = MemoryStore()
    async with open_upstream(provider(UNUSABLE["empty"])) as upstream:
        settings = lanes(upstream.url)
        async with open_gateway(
            settings, store=store, budget="3req", routes={"named": CAREFUL}
        ) as client:
            answers = [await client.post(PATHS[0], asked(PATHS[0])) for _ in range(2)]
    assert ([one.status for one in answers], len(upstream.requests)) == ([200, 402], 3)
    found = ServedSums(each_outcome(store, "serve-1")).totals()["model"]
    assert {name: (count, used.requests) for name, (count, used) in found.items()} == {
        "careful": (2, 3)
    }


async def test_a_resumed_run_does_not_pay_again_for_the_models_that_were_asked_before():
    gate, store = Gate(), MemoryStore()

    async def answer(request, body):
        if body["model"] == "large":
            await gate.pass_("large")
            return web.json_response(chat_reply())
        return web.json_response(chat_reply(" "))

    class Killed(Exception):
        pass

    async def start(client):
        task = asyncio.create_task(client.post(PATHS[0], asked(PATHS[0])))
        await gate.wait_for("large")
        task.cancel()
        raise Killed

    async with open_upstream(answer) as upstream:
        options = {"store": store, "routes": {"named": CAREFUL}}
        with pytest.raises(Killed):
            async with open_gateway(lanes(upstream.url), **options) as client:
                await start(client)
        gate.open_all()
        async with open_gateway(lanes(upstream.url), resume="serve-1", **options) as client:
            again = await client.post(PATHS[0], asked(PATHS[0]))
    assert text_of(again) == "Hi"
    assert [body["model"] for body in upstream.bodies] == ["small", "large", "large"]


async def test_a_parked_lane_is_tried_again_later_though_another_model_answered():
    async with open_upstream(provider(QUOTA_SPENT)) as upstream:
        both = {"careful": NamedModel(("responses/small", "openai/large"))}
        async with open_gateway(lanes(upstream.url), routes={"named": both}) as client:
            answers = [await client.post(path, asked(path)) for path in PATHS]
            first = client.gateway._routes._callers["responses/small"].lane.server
            assert first.reopens_at is not None
    assert [text_of(one) for one in answers] == ["Hi", "Hi"]
    assert [body["model"] for body in upstream.bodies] == ["small", "large", "large"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_cached_model_is_asked_once_and_others_each_time(path):
    named = {
        "kept": NamedModel(("openai/large",), cache=True),
        "plain": NamedModel(("openai/large",)),
    }
    store = MemoryStore()
    async with open_upstream(provider(UNUSABLE["empty"])) as upstream:
        async with open_gateway(
            lanes(upstream.url), store=store, cache=AnswerCache(store), routes={"named": named}
        ) as client:
            kept = [await client.post(path, {**asked(path), "model": "kept"}) for _ in range(2)]
            plain = [await client.post(path, {**asked(path), "model": "plain"}) for _ in range(2)]
    assert kept[0].body == kept[1].body
    assert {text_of(one) for one in kept + plain} == {"Hi"}
    assert [body["model"] for body in upstream.bodies] == ["large"] * 3


async def test_the_cache_does_not_answer_for_other_models_under_the_same_name():
    store = MemoryStore()
    async with open_upstream(provider((200, chat_reply("Small")))) as upstream:
        for model in ("small", "large"):
            named = {"kept": NamedModel((f"openai/{model}",), cache=True)}
            async with open_gateway(
                lanes(upstream.url), store=store, cache=AnswerCache(store), routes={"named": named}
            ) as client:
                answer = await client.post(PATHS[0], {**asked(PATHS[0]), "model": "kept"})
    assert (text_of(answer), len(upstream.requests)) == ("Hi", 2)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"port": 1}, "serve has no 'port'"),
        ({"models": 1}, "must be tables"),
        ({"models": {"a/b": {"ask": ["local/x"]}}}, "serve.models.a/b: a name with /"),
        ({"models": {"a": 1}}, "must be a table"),
        ({"models": {"a": {"cash": True}}}, "has no 'cash'"),
        ({"models": {"a": {}}}, "a.ask must be a list"),
        ({"models": {"a": {"ask": []}}}, "a.ask must be a list"),
        ({"models": {"a": {"ask": [1]}}}, "a.ask must be a list"),
        ({"models": {"a": {"ask": ["local/x"], "cache": 1}}}, "a.cache must be true or false"),
        ({"models": {"a": {"ask": ["nowhere/x"]}}}, "a.ask: there is no provider 'nowhere'"),
        ({"models": {"a": {"ask": ["b"]}, "b": {"ask": ["local/x"]}}}, "a.ask: a model is named"),
    ],
)
def test_a_wrong_table_is_told_with_its_place(table, told):
    with pytest.raises(ValueError, match=r"abreast\.toml: serve") as caught:
        read_named_models(table, "abreast.toml", PROVIDERS)
    assert told in str(caught.value)


def test_a_right_table_is_read():
    table = {"models": {"a": {"ask": ["local:x", "openai/y"], "cache": True}}}
    assert read_named_models(table, "abreast.toml", PROVIDERS) == {
        "a": NamedModel(("local/x", "openai/y"), cache=True)
    }
    assert read_named_models({}, "", PROVIDERS) == {}
