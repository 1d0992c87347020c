"""Batches of a storm: three APIs, what they answer, and what goes wrong with them."""

import json
from collections import Counter

import aiohttp
import pytest

from abreast.testing import open_storm

SIZE = 10


def prompts(size=SIZE):
    return [f"prompt {number}" for number in range(size)]


def chat(prompt):
    return {"model": "m", "messages": [{"role": "user", "content": prompt}]}


def message(prompt):
    return {**chat(prompt), "max_tokens": 100}


async def submit_openai(session, size=SIZE):
    lines = [
        {"custom_id": f"id{n}", "method": "POST", "url": "/v1/chat/completions", "body": chat(one)}
        for n, one in enumerate(prompts(size))
    ]
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", "\n".join(map(json.dumps, lines)), filename="x.jsonl")
    async with session.post("/v1/files", data=form) as answer:
        file = (await answer.json())["id"]
    body = {
        "input_file_id": file,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"abreast_batch": "mine"},
    }
    async with session.post("/v1/batches", json=body) as answer:
        return await answer.json()


async def submit_anthropic(session, size=SIZE):
    listed = [
        {"custom_id": f"id{n}", "params": message(one)} for n, one in enumerate(prompts(size))
    ]
    async with session.post("/v1/messages/batches", json={"requests": listed}) as answer:
        return await answer.json()


async def submit_gemini(session, size=SIZE):
    listed = [
        {"request": {"contents": [{"parts": [{"text": one}]}]}, "metadata": {"key": f"id{n}"}}
        for n, one in enumerate(prompts(size))
    ]
    batch = {"display_name": "mine", "input_config": {"requests": {"requests": listed}}}
    path = "/v1beta/models/m:batchGenerateContent"
    async with session.post(path, json={"batch": batch}) as answer:
        return await answer.json()


async def get(session, path):
    async with session.get(path) as answer:
        return await answer.json()


async def lines(session, path):
    async with session.get(path) as answer:
        return [json.loads(line) for line in (await answer.text()).splitlines()]


async def test_a_batch_of_openai_answers_each_request_as_a_call_does_in_another_order():
    async with open_storm() as storm, aiohttp.ClientSession(storm.url) as session:
        batch = await submit_openai(session)
        found = await get(session, f"/v1/batches/{batch['id']}")
        assert (found["status"], found["metadata"]) == ("completed", {"abreast_batch": "mine"})
        rows = await lines(session, f"/v1/files/{found['output_file_id']}/content")
        async with session.post("/v1/chat/completions", json=chat("prompt 3")) as answer:
            direct = await answer.json()
        by_id = {row["custom_id"]: row["response"]["body"] for row in rows}
        assert by_id["id3"]["choices"] == direct["choices"]
        assert by_id["id3"]["usage"] == direct["usage"]
        assert list(by_id) != sorted(by_id)
        assert len(storm.batches()) == SIZE
        assert storm.billed()["m"].requests == SIZE + 1


async def test_a_batch_of_anthropic_is_listed_and_its_results_are_lines():
    async with open_storm() as storm, aiohttp.ClientSession(storm.url) as session:
        first = await submit_anthropic(session)
        second = await submit_anthropic(session)
        listed = await get(session, "/v1/messages/batches?limit=1")
        assert [one["id"] for one in listed["data"]] == [second["id"]]
        more = await get(session, f"/v1/messages/batches?after_id={listed['last_id']}")
        assert [one["id"] for one in more["data"]] == [first["id"]]
        rows = await lines(session, f"/v1/messages/batches/{first['id']}/results")
        assert {row["result"]["type"] for row in rows} == {"succeeded"}


async def test_a_batch_of_gemini_is_an_operation_with_its_responses_in_it():
    async with open_storm() as storm, aiohttp.ClientSession(storm.url) as session:
        batch = await submit_gemini(session)
        found = await get(session, f"/v1beta/{batch['name']}")
        assert found["metadata"]["state"] == "BATCH_STATE_SUCCEEDED"
        rows = found["response"]["inlinedResponses"]["inlinedResponses"]
        assert {row["metadata"]["key"] for row in rows} == {f"id{n}" for n in range(SIZE)}
        listed = await get(session, "/v1beta/batches")
        assert [one["metadata"]["displayName"] for one in listed["operations"]] == ["mine"]


@pytest.mark.parametrize(
    ("fault", "outcomes", "billed"),
    [
        ("expired", {"succeeded": 5, "expired": 5}, 5),
        ("cancelled", {"succeeded": 5, "cancelled": 5}, 5),
        ("partial", {"succeeded": 8, "errored": 2}, 8),
        ("missing", {"succeeded": 8, "missing": 2}, 8),
        ("failed", {"": 10}, 0),
    ],
)
@pytest.mark.parametrize("submit", [submit_openai, submit_anthropic, submit_gemini])
async def test_what_a_faulty_batch_does_not_answer_is_not_billed(fault, outcomes, billed, submit):
    async with (
        open_storm(batch_fault_at={1: fault}) as storm,
        aiohttp.ClientSession(storm.url) as session,
    ):
        await submit(session)
        rows = storm.batches()
        assert Counter(row["outcome"] for row in rows) == outcomes
        assert sum(row["billed"] for row in rows) == billed


@pytest.mark.parametrize(("fault", "created"), [("lost", 1), ("unsent", 0)])
async def test_the_answer_to_a_submission_can_be_lost_whether_it_was_accepted_or_not(
    fault, created
):
    async with (
        open_storm(batch_fault_at={1: fault}) as storm,
        aiohttp.ClientSession(storm.url) as session,
    ):
        with pytest.raises(aiohttp.ClientError):
            await submit_anthropic(session)
        assert len(storm.batches()) == SIZE * created


async def test_a_batch_that_is_listed_late_is_there_after_half_of_its_time():
    async with (
        open_storm(batch_fault_at={1: "lost-late"}, batch_seconds=3600) as storm,
        aiohttp.ClientSession(storm.url) as session,
    ):
        with pytest.raises(aiohttp.ClientError):
            await submit_gemini(session)
        assert (await get(session, "/v1beta/batches"))["operations"] == []
        assert len(storm.batches()) == SIZE


async def test_cancelling_a_batch_ends_what_is_not_answered_yet():
    async with open_storm(batch_seconds=3600) as storm, aiohttp.ClientSession(storm.url) as session:
        batch = await submit_openai(session)
        assert batch["status"] == "in_progress"
        async with session.post(f"/v1/batches/{batch['id']}/cancel") as answer:
            assert (await answer.json())["status"] == "cancelled"
        assert {row["outcome"] for row in storm.batches()[1:]} == {"cancelled"}


async def test_more_tokens_than_may_be_enqueued_fail_the_batch():
    async with (
        open_storm(batch_seconds=3600, batch_tokens=300) as storm,
        aiohttp.ClientSession(storm.url) as session,
    ):
        assert (await submit_openai(session))["status"] == "in_progress"
        refused = await submit_openai(session)
        assert refused["errors"]["data"][0]["code"] == "token_limit_exceeded"
