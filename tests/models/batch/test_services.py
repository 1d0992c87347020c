"""Batches of three APIs: lists of several pages, other people's batches, answers that are none."""

import pytest

from abreast.core.errors import ReplyBroken
from abreast.models.batch.service import UNDECIDED, SentBatch, place_of
from abreast.models.port import Message, Request
from abreast.testing import open_storm
from tests.run.calls.batch.batches import KINDS, open_batched

BODY = Request((Message("user", "hello"),), max_tokens=5)


async def submit(service, name, count=2):
    bodies = [service.write(BODY)[0]] * count
    return await service.create(name, await service.prepare(name, bodies))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_is_found_by_its_name_among_others(kind, monkeypatch):
    module = __import__(f"abreast.models.batch.{kind}", fromlist=["_PAGE"])
    monkeypatch.setattr(module, "_PAGE", 2)
    async with open_storm() as storm, open_batched(storm, kind) as model:
        service = model.service
        wanted = await submit(service, "abwanted")
        for number in range(5):
            await submit(service, f"abother{number}")
        sent = SentBatch("abwanted", 2, 2e9)
        assert await service.find(sent, frozenset()) in (wanted, None)
        sent = SentBatch("abwanted", 2, 0.0)
        assert await service.find(sent, frozenset()) == wanted
        assert await service.find(SentBatch("abnever", 2, 0.0), frozenset()) is None


async def test_a_batch_of_the_same_size_that_has_not_ended_may_be_the_one():
    async with open_storm(batch_seconds=3600) as storm, open_batched(storm, "anthropic") as model:
        other = await submit(model.service, "abother")
        sent = SentBatch("abwanted", 2, 0.0)
        assert await model.service.find(sent, frozenset()) == UNDECIDED
        assert await model.service.find(sent, frozenset({other})) is None
        assert await model.service.find(SentBatch("abwanted", 3, 0.0), frozenset()) is None


async def test_an_answer_without_an_id_or_json_is_broken():
    async with open_storm() as storm, open_batched(storm) as model:
        with pytest.raises(ReplyBroken, match="has no id"):
            model.service.id_in({})
        with pytest.raises(ReplyBroken, match="no object of JSON"):
            model.service._document(_Answer(b"nonsense"))
        with pytest.raises(ReplyBroken, match="no object of JSON"):
            list(model.service._lines(_Answer(b"[1]\n")))


class _Answer:
    status = 200

    def __init__(self, body):
        self.body = body


def test_ids_of_others_have_no_place():
    assert place_of("ab1-x") is None
    assert place_of(None) is None
