"""Images and PDF files in messages: recognised, sent in each provider's form, named by content."""

import base64
from hashlib import sha256

import pytest

from abreast.core.errors import RequestRefused
from abreast.core.outcome import Usage
from abreast.models.chat_form import responses_file_form
from abreast.models.embedded.model import EmbeddedModel
from abreast.models.estimate import TokenEstimates, media_tokens
from abreast.models.media import MAX_MEDIA_BYTES, MediaFile
from abreast.models.port import Message, Reply, Request
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.errors import fault_of
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from abreast.models.scripted import Scripted
from abreast.run.calls.journal import digest_of, request_text
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing.storm import open_storm
from tests.models.pictures import GIF, JPEG, WEBP, pdf, png
from tests.models.serving import KEY, Recorded, closing, serving

IMAGE = MediaFile.of(png())
PAPER = MediaFile.of(pdf(3), "paper.pdf")
IN_BASE64 = base64.b64encode(png()).decode()
PAPER_IN_BASE64 = base64.b64encode(pdf(3)).decode()


def look(*files, prompt="What is it?"):
    return Request((Message("user", prompt, files=files),))


# --- recognising


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(), "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
        (pdf(), "application/pdf"),
        (b"\n\n" + pdf(), "application/pdf"),
    ],
)
def test_a_type_is_recognised_by_content_whatever_the_name(tmp_path, data, media_type):
    path = tmp_path / "holiday.txt"
    path.write_bytes(data)
    read = MediaFile.read(path)
    assert (read.media_type, read.size) == (media_type, len(data))
    assert read.sha256 == sha256(data).hexdigest()
    assert read.content() == data
    assert read.data is None, "a map over many files must not keep them in memory"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "neither an image"),
        (b"PNG but not really", "neither an image"),
        (b"RIFF\x1a\0\0\0WAVEfmt ", "neither an image"),
    ],
)
def test_other_content_is_refused_with_its_path(tmp_path, data, why):
    path = tmp_path / "photo.png"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=why) as refused:
        MediaFile.read(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_can_not_be_read_or_sent_is_refused(tmp_path):
    with pytest.raises(ValueError, match="can't be read"):
        MediaFile.read(tmp_path / "missing.png")
    with pytest.raises(ValueError, match="directory"):
        MediaFile.read(tmp_path)
    huge = tmp_path / "huge.png"
    with huge.open("wb") as file:
        file.write(png())
        file.truncate(MAX_MEDIA_BYTES + 1)  # sparse
    with pytest.raises(ValueError, match="make it smaller"):
        MediaFile.read(huge)


def test_equal_content_is_equal_wherever_it_is(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png())
    one, other = MediaFile.read(tmp_path / "a.png"), MediaFile.read(tmp_path / "b.png")
    assert one == other == IMAGE
    assert hash(one) == hash(other)
    assert one != MediaFile.of(png(9))


@pytest.mark.parametrize("compressed", [False, True])
def test_pages_are_counted(compressed):
    assert MediaFile.of(pdf(7, compressed=compressed)).pages == 7


# --- the forms of providers


async def test_openai_gets_data_urls():
    answer = {"choices": [{"message": {"content": "a cat"}, "finish_reason": "stop"}]}
    async with serving(Recorded(answer)) as server:
        async with closing(OpenAI("openai/gpt-4o", server.url, KEY)) as model:
            await model.complete(look(IMAGE, PAPER))
    assert server.body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IN_BASE64}"}},
        {
            "type": "file",
            "file": {
                "filename": "paper.pdf",
                "file_data": f"data:application/pdf;base64,{PAPER_IN_BASE64}",
            },
        },
        {"type": "text", "text": "What is it?"},
    ]


def test_the_form_of_the_responses_api():
    assert responses_file_form(IMAGE) == {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{IN_BASE64}",
    }
    assert responses_file_form(PAPER) == {
        "type": "input_file",
        "filename": "paper.pdf",
        "file_data": f"data:application/pdf;base64,{PAPER_IN_BASE64}",
    }


async def test_anthropic_gets_blocks_before_the_text():
    answer = {"content": [{"type": "text", "text": "a cat"}], "stop_reason": "end_turn"}
    async with serving(Recorded(answer)) as server:
        async with closing(Anthropic("anthropic/claude", server.url, KEY)) as model:
            await model.complete(look(IMAGE, PAPER))
    png_source = {"type": "base64", "media_type": "image/png", "data": IN_BASE64}
    pdf_source = {"type": "base64", "media_type": "application/pdf", "data": PAPER_IN_BASE64}
    assert server.body["messages"][0]["content"] == [
        {"type": "image", "source": png_source},
        {"type": "document", "source": pdf_source},
        {"type": "text", "text": "What is it?"},
    ]


async def test_gemini_gets_inline_data():
    answer = {"candidates": [{"content": {"parts": [{"text": "a cat"}]}, "finishReason": "STOP"}]}
    async with serving(Recorded(answer)) as server:
        async with closing(Gemini("gemini/gemini-2.5-flash", server.url, KEY)) as model:
            await model.complete(look(IMAGE, PAPER, prompt=""))
    assert server.body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": IN_BASE64}},
        {"inlineData": {"mimeType": "application/pdf", "data": PAPER_IN_BASE64}},
    ]


@pytest.mark.parametrize(
    ("adapter", "name", "path"),
    [
        (OpenAI, "openai/gpt-4o", "/v1"),
        (Anthropic, "anthropic/claude", "/v1"),
        (Gemini, "gemini/gemini-2.5-flash", "/v1beta"),
    ],
)
async def test_a_storm_takes_files_counts_them_and_answers_by_their_content(adapter, name, path):
    async with open_storm() as storm:
        async with closing(adapter(name, f"{storm.url}{path}", KEY)) as model:
            plain = await model.complete(look())
            seen = await model.complete(look(IMAGE, PAPER))
            again = await model.complete(look(IMAGE, PAPER))
            other = await model.complete(look(MediaFile.of(png(200)), PAPER))
        assert storm.stats().files == 6
        assert [entry.files for entry in storm.log] == [0, 2, 2, 2]
    assert seen.text == again.text
    assert len({plain.text, seen.text, other.text}) == 3
    assert seen.usage.input_tokens > plain.usage.input_tokens


async def test_a_file_that_changed_after_it_was_read_is_not_sent(tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    file = MediaFile.read(path)
    path.write_bytes(png(7))
    async with open_storm() as storm:
        async with closing(OpenAI("openai/gpt-4o", f"{storm.url}/v1", KEY)) as model:
            with pytest.raises(RequestRefused, match=r"photo\.png changed"):
                await model.complete(look(file))
        assert storm.stats().arrived == 0


# --- those that can't see


async def test_the_embedded_model_refuses_before_it_loads_anything(tmp_path):
    model = EmbeddedModel("local/none", tmp_path / "none.gguf")
    with pytest.raises(RequestRefused, match="can't see images"):
        await model.complete(look(IMAGE))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (400, "'claude-3-5-haiku' does not support image input."),
        (400, "some/model is not a multimodal model"),
        (400, "unknown variant `image_url`, expected `text`"),
        (400, "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum"),
        (400, "Could not process image"),
        (400, "this model is missing data required for image input"),
        (404, "No endpoints found that support image input"),
        (422, "The model does not support PDF documents"),
    ],
)
def test_a_provider_that_refuses_a_file_is_told_apart(status, message):
    body = f'{{"error": {{"message": "{message}"}}}}'.encode()
    error = fault_of("x/y", status, {}, body)
    assert type(error) is RequestRefused
    assert "image or a PDF" in str(error)
    assert message[:40] in str(error)


# --- digests and journals


def test_a_digest_is_by_content_and_type_and_order(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png())

    def digest(*files):
        return digest_of("m", look(*files))

    assert digest(MediaFile.read(tmp_path / "a.png")) == digest(MediaFile.read(tmp_path / "b.png"))
    assert (
        len({digest(), digest(IMAGE), digest(PAPER), digest(IMAGE, PAPER), digest(PAPER, IMAGE)})
        == 5
    )
    same_bytes = MediaFile("image/gif", IMAGE.sha256, IMAGE.size, data=IMAGE.data)
    assert digest(same_bytes) != digest(IMAGE)


def test_a_request_without_files_keeps_its_digest():
    assert digest_of("openai/gpt-4o-mini", look()) == "232e13b7bab6e75d"


def test_a_journal_names_a_file_and_has_none_of_its_bytes():
    text = request_text(look(IMAGE), "here")
    assert f"[image/png {len(png())} bytes sha256:{IMAGE.sha256}]" in text
    assert "What is it?" in text
    assert IN_BASE64[:24] not in text
    assert IN_BASE64[:24] not in repr(look(IMAGE))


# --- tokens


def test_files_count_by_family_and_page():
    assert media_tokens(IMAGE, "anthropic") == 4784
    assert media_tokens(PAPER, "gemini") == 3 * 1120
    assert media_tokens(IMAGE, "mine") == max(
        media_tokens(IMAGE, family) for family in ("openai", "anthropic", "gemini")
    )


def test_an_estimate_begins_with_the_most_and_learns_what_files_take():
    estimates = TokenEstimates("anthropic")
    text_alone = estimates.of(look()).input_tokens
    assert estimates.of(look(IMAGE)).input_tokens == text_alone + 4784
    for _ in range(60):
        estimates.learn(look(IMAGE), Reply("a cat", usage=Usage(1, 200, 3)))
    assert 150 < estimates.of(look(IMAGE)).input_tokens < 400
    assert estimates.of(look()).input_tokens == text_alone, "text is estimated as before"


# --- from Python


async def test_ask_takes_paths_and_files(tmp_path):
    (tmp_path / "photo.png").write_bytes(png())
    model = Scripted(["a cat"])
    caller = Caller(model, ModelLane("scripted"))
    reply = await caller.ask("What is it?", files=[tmp_path / "photo.png", PAPER])
    assert reply.text == "a cat"
    assert model.calls[0].messages[0].files == (IMAGE, PAPER)
    with pytest.raises(ValueError, match="can't be read"):
        await caller.ask("What is it?", files=["nowhere.png"])
    assert len(model.calls) == 1
