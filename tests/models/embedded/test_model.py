"""The embedded model: its texts, alone and with others at once, and its stops.

What depends on its words is asked of the real one, all else of one that is a hundred times faster.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from abreast.core.errors import CallFailed, NoSuchModel, ReplyInvalid, RequestRefused, TooLong
from abreast.models.embedded import model as embedded
from abreast.models.embedded import request as embedded_call
from abreast.models.embedded import weights
from abreast.models.embedded.model import EmbeddedModel
from abreast.models.embedded.weights import SMOLLM2
from abreast.models.port import Message, Request, ToolCall
from tests.models.embedded.tiny import CONTEXT, write_tiny
from tests.turns import until

SENTIMENT = {
    "type": "object",
    "properties": {"sentiment": {"enum": ["positive", "negative"]}},
    "required": ["sentiment"],
    "additionalProperties": False,
}
QUESTION = "What is the sentiment of this review, positive or negative?"
ENDLESS = CONTEXT // 2  # tokens: many seconds, if it is not stopped
STORY = (
    "The boat left the harbour at dawn, and the gulls went with it "
    "far out over the grey and quiet water. "
)


def ask(text, **options):
    return Request((Message("user", text),), **{"system": "Be brief.", "max_tokens": 8, **options})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@contextmanager
def kept_in_memory(holder):
    """The model, in memory for all tests that use it."""
    # In another loop than that of the tests: several loops may share a model.
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, holder.complete(ask("Hello", max_tokens=1))).result()
        yield holder
        elsewhere.submit(asyncio.run, holder.close()).result()


@pytest.fixture(scope="module")
def held(tiny):
    with kept_in_memory(EmbeddedModel("local/tiny", tiny, context=CONTEXT)) as holder:
        yield holder


@pytest.fixture
async def model(held, tiny):
    model = EmbeddedModel("local/tiny", tiny, context=CONTEXT)
    yield model
    await model.close()


@pytest.fixture(scope="module")
def fetched():
    """Fetches the weights of the real one if needed."""
    try:
        weights.fetch(SMOLLM2)
    except NoSuchModel as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def real_held(fetched):
    # A quarter of the default context, to load faster.
    with kept_in_memory(EmbeddedModel(context=512)) as holder:
        yield holder


@pytest.fixture
async def real(real_held):
    model = EmbeddedModel(context=512)
    yield model
    await model.close()


@pytest.mark.usefixtures("fetched")
def test_the_weights_in_the_cache_are_those_expected():
    with weights.path_of(SMOLLM2).open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2.sha256


async def test_a_reply_says_what_it_used_and_how_long_it_took(real):
    reply = await real.complete(ask("Tell a story.", max_tokens=5))
    assert reply.text
    assert reply.finish == "length"
    assert reply.model == SMOLLM2.file
    usage = reply.usage
    assert (usage.requests, usage.output_tokens, usage.usd, usage.estimate) == (1, 5, 0.0, False)
    assert usage.input_tokens > 5
    assert 0 < reply.first_token <= reply.seconds


async def test_what_is_heard_piece_by_piece_is_the_text(model):
    pieces = []
    reply = await model.complete(ask("Name three colours."), pieces.append)
    assert len(pieces) > 2
    assert "".join(pieces) == reply.text


async def test_a_schema_is_obeyed_and_its_value_given(real):
    request = ask(
        "Review: I love it, it works perfectly.", system=QUESTION, schema=SENTIMENT, max_tokens=20
    )
    reply = await real.complete(request)
    assert reply.value == {"sentiment": "positive"}
    assert reply.text == '{"sentiment": "positive"}'
    assert reply.finish == "stop"


async def test_a_reply_cut_off_in_the_middle_of_its_json_is_invalid_and_kept(real):
    with pytest.raises(ReplyInvalid, match="cut off at max_tokens") as caught:
        await real.complete(ask("Review: I love it.", schema=SENTIMENT, max_tokens=3))
    assert caught.value.raw.startswith('{"sentiment')


async def test_a_stop_word_ends_the_text_before_it(model):
    whole = await model.complete(ask("Name three colours."))
    word = whole.text.split()[2]
    cut = await model.complete(ask("Name three colours.", stop=(word,)))
    assert cut.text == whole.text[: whole.text.index(word)]
    assert cut.finish == "stop"


async def test_the_text_is_the_same_alone_and_with_eight_at_once(real):
    """Also a long prompt: other requests change its batches, which must not change the text."""
    requests = [
        ask(STORY * 2 + "What comes next?", temperature=0.8, seed=2, max_tokens=6),
        ask("Name three colours.", temperature=0.0, seed=4, max_tokens=6),
        ask("Who was on it?", temperature=0.8, seed=3, max_tokens=6),
        ask("Review: it broke.", temperature=0.8, seed=7, schema=SENTIMENT, max_tokens=20),
    ]
    others = [ask("Rain.", temperature=0.8, seed=seed, max_tokens=6) for seed in range(4)]
    alone = [(await real.complete(request)).text for request in requests]
    at_once = await asyncio.gather(*[real.complete(request) for request in (*requests, *others)])
    assert real.statistics().most_running == 8
    assert [reply.text for reply in at_once[:4]] == alone


async def test_another_seed_gives_another_text(model):
    texts = {
        (await model.complete(ask("Tell a story.", temperature=1.5, seed=seed))).text
        for seed in range(3)
    }
    assert len(texts) > 1


@pytest.mark.parametrize("seed", [None, 0, -1, 2**32 - 1, 2**70])
def test_no_seed_means_that_the_library_chooses_one(seed):
    assert 0 <= embedded_call._body(ask("Hello", seed=seed))["seed"] < 2**32 - 1


async def gone(model):
    """Wait until nothing runs any more; the limit is a safety net."""
    await until(lambda: not model.statistics().running)


async def test_cancelling_stops_the_generation(model, held):
    before = held.statistics()
    heard = asyncio.Event()
    task = asyncio.create_task(
        model.complete(
            ask("Tell a long story about a ship.", max_tokens=ENDLESS), lambda _: heard.set()
        )
    )
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(model)
    after = model.statistics()
    assert after.stopped == before.stopped + 1
    assert after.pieces - before.pieces < ENDLESS / 2


async def test_cancelling_stops_the_reading_of_a_long_prompt(model, held):
    before = held.statistics()
    task = asyncio.create_task(model.complete(ask(STORY * 350)))
    await until(lambda: model.statistics().running)
    task.cancel()
    await gone(model)
    after = model.statistics()
    assert (after.stopped, after.unread) == (before.stopped + 1, before.unread + 1)


async def test_no_more_run_than_there_are_slots_and_one_that_waits_is_dropped_at_once(model, held):
    before = held.statistics()
    busy = asyncio.Semaphore(0)
    tasks = [
        asyncio.create_task(
            model.complete(ask("Tell a story.", max_tokens=ENDLESS), lambda _: busy.release())
        )
        for _ in range(embedded.SLOTS + 2)
    ]
    async with asyncio.timeout(60):
        while model.statistics().running < embedded.SLOTS:
            await busy.acquire()
    for task in reversed(tasks):
        task.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError)
        for end in await asyncio.gather(*tasks, return_exceptions=True)
    )
    await gone(model)
    after = model.statistics()
    assert after.most_running == embedded.SLOTS
    assert after.ended == before.ended + embedded.SLOTS  # the two that waited were never started


async def test_a_listener_that_raises_ends_the_call_with_its_error(model, held):
    before = held.statistics()

    def hear(_piece):
        raise LookupError("no ears")

    with pytest.raises(LookupError, match="no ears"):
        await model.complete(ask("Tell a long story.", max_tokens=ENDLESS), hear)
    await gone(model)
    assert model.statistics().stopped == before.stopped + 1


async def test_loops_of_several_threads_share_one_model(model):
    request = ask("Name three colours.")
    here = await model.complete(request)
    with ThreadPoolExecutor(2) as threads:
        there = [threads.submit(asyncio.run, model.complete(request)) for _ in range(2)]
        assert {(await asyncio.wrap_future(each)).text for each in there} == {here.text}
    assert model.statistics().loads == 1


async def test_a_prompt_beyond_the_context_is_too_long(model):
    with pytest.raises(TooLong, match=f"doesn't fit a context of {CONTEXT}"):
        await model.complete(ask(STORY * 400))


@pytest.mark.parametrize(
    "request_",
    [
        Request(()),
        ask("Hello", schema={"type": "wat"}),
        ask("Hello", tools=({"name": "find"},), tool_choice="find"),
    ],
    ids=["no messages", "not a schema", "a forced tool"],
)
async def test_a_request_that_makes_no_sense_is_refused(model, request_):
    with pytest.raises(RequestRefused):
        await model.complete(request_)


async def test_a_conversation_with_tools_is_taken(model):
    messages = (
        Message("user", "What is the weather?"),
        Message("assistant", "", tool_calls=(ToolCall("1", "weather", '{"town": "Rome"}'),)),
        Message("tool", "Rain.", tool_call_id="1"),
    )
    reply = await model.complete(Request(messages, max_tokens=4))
    assert reply.usage.output_tokens == 4


async def test_a_closed_one_takes_nothing_more_and_its_calls_end(held, tiny):
    model = EmbeddedModel("local/tiny", tiny, context=CONTEXT)
    heard = asyncio.Event()
    task = asyncio.create_task(
        model.complete(ask("Tell a story.", max_tokens=ENDLESS), lambda _: heard.set())
    )
    await heard.wait()
    await model.close()
    await model.close()
    with pytest.raises(CallFailed, match="was closed before it had answered"):
        await task
    with pytest.raises(CallFailed, match="is closed"):
        await model.complete(ask("Hello"))
    await gone(held)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read: No such file"),
        (b"PK\3\4", "is not a GGUF file"),
        (b"GGUF", "is damaged"),
        (b"GGUF" + bytes(1000), "is damaged"),
    ],
    ids=["missing", "a zip", "only the magic", "zeros"],
)
async def test_a_file_that_is_no_model_is_a_sentence_and_no_crash(tmp_path, content, said):
    path = tmp_path / "my.gguf"
    if content is not None:
        path.write_bytes(content)
    model = EmbeddedModel(f"local/{path}")
    try:
        with pytest.raises(NoSuchModel, match=said) as caught:
            await model.complete(ask("Hello"))
        assert str(path) in str(caught.value)
    finally:
        await model.close()


async def test_without_the_library_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "my.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    model = EmbeddedModel("local/my", path)
    try:
        with pytest.raises(NoSuchModel, match=r"need xllamacpp: .*install .*\[local\]'"):
            await model.complete(ask("Hello"))
    finally:
        await model.close()


@pytest.mark.parametrize("slots", [0, 33])
def test_slots_beyond_a_batch_are_refused(slots):
    with pytest.raises(ValueError, match="slots must be between 1 and 32"):
        EmbeddedModel(slots=slots)


# --- in separate processes

PRELUDE = """
import asyncio, os, sys, threading
from abreast.models.embedded.model import EmbeddedModel
from abreast.models.port import Message, Request

def model():
    return EmbeddedModel("local/tiny", sys.argv[1], context=40_000)

def ask(n):
    return Request((Message("user", "Tell a story."),), system="Be brief.", max_tokens=n)

def in_the_background(calls, heard):
    async def all_of_them():
        shared = model()
        calling = [shared.complete(ask(20_000), lambda _: heard.set()) for _ in range(calls)]
        await asyncio.gather(*calling, return_exceptions=True)
    threading.Thread(target=asyncio.run, args=[all_of_them()], daemon=True).start()
"""
SCRIPTS = {
    "exits while four calls run": """
        heard = threading.Event()
        in_the_background(4, heard)
        heard.wait()
    """,
    "exits while it loads": """
        import abreast.models.embedded.loaded_models as module
        loading, load = threading.Event(), module._load
        def slow(*args):
            loading.set()
            threading.main_thread().join()  # until it exits
            return load(*args)
        module._load = slow
        in_the_background(1, threading.Event())
        loading.wait()
    """,
    "frees the model with the last who closes": """
        import signal
        caught = []
        signal.signal(signal.SIGTERM, lambda *_: caught.append(1))
        def threads():
            return [each for each in threading.enumerate() if each.name.startswith("abreast-local")]
        async def main():
            first, second = model(), model()
            await first.complete(ask(1))
            await second.complete(ask(1))
            await first.close()
            assert len(threads()) == 8, threads()
            await second.complete(ask(1))
            signal.raise_signal(signal.SIGTERM)
            assert caught
            await second.close()
            assert not threads(), threads()
        asyncio.run(main())
    """,
    "forks and the child has its own": """
        shared = model()
        asyncio.run(shared.complete(ask(1)))
        child = os.fork()
        if not child:
            asyncio.run(model().complete(ask(1)))
            os._exit(0)  # as multiprocessing's children leave
        assert os.waitpid(child, 0)[1] == 0
        asyncio.run(shared.complete(ask(1)))
        asyncio.run(shared.close())
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_process(tiny, script, unmeasured):
    """It exits by itself with 0, and the library prints nothing."""
    ended = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            PRELUDE + textwrap.dedent(script),
            str(tiny),
        ],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
