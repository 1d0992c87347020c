"""The usage of streamed chat completions: counted, and shown only to clients that asked for it."""

from itertools import pairwise

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from abreast.serve.answers.stream_usage import UsageFilter
from abreast.store.port import each_outcome
from abreast.testing import MemoryStore
from tests.serve.gateways import lanes, open_gateway, open_upstream

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi, \\"usage\\""}}],"usage":null}\n\n'
FILTERS = b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def streaming(*, refuses=False):
    async def answer(request, body):
        options = body.get("stream_options") or {}
        if options and refuses:
            return web.json_response({"error": {"message": "stream_options"}}, status=400)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for part in (FILTERS, TEXT, *([USAGE] if options.get("include_usage") else []), DONE):
            await response.write(part)
        return response

    return answer


@given(st.lists(st.integers(0, 400), max_size=8), st.booleans())
def test_only_the_event_of_the_usage_is_left_out_however_a_stream_is_cut(cuts, crlf):
    whole, shown = FILTERS + TEXT + USAGE + DONE, FILTERS + TEXT + DONE
    if crlf:
        whole, shown = whole.replace(b"\n", b"\r\n"), shown.replace(b"\n", b"\r\n")
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    hidden = UsageFilter()
    parts = [hidden.feed(whole[a:b]) for a, b in pairwise(places)]
    assert b"".join(parts) + hidden.end() == shown


@pytest.mark.parametrize("asked", [True, False])
async def test_usage_is_recorded_and_shown_only_if_it_was_asked_for(asked):
    store = MemoryStore()
    more = {"stream_options": {"include_usage": True}} if asked else {}
    async with (
        open_upstream(streaming()) as upstream,
        open_gateway(lanes(upstream.url), store=store) as client,
    ):
        answer = await client.chat(stream=True, **more)
    assert answer.body == FILTERS + TEXT + (USAGE if asked else b"") + DONE
    assert upstream.bodies[0]["stream_options"] == {"include_usage": True}
    (recorded,) = each_outcome(store, "serve-1")
    assert (recorded.data["input_tokens"], recorded.data["output_tokens"]) == (7, 3)


async def test_a_provider_that_refuses_to_send_it_is_asked_without_from_then_on():
    async with (
        open_upstream(streaming(refuses=True)) as upstream,
        open_gateway(lanes(upstream.url)) as client,
    ):
        answers = [await client.chat(f"{n}", stream=True) for n in range(3)]
    assert [one.body for one in answers] == [FILTERS + TEXT + DONE] * 3
    assert ["stream_options" in body for body in upstream.bodies] == [True, False, False, False]
