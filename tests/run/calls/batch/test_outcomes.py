"""What becomes of calls in batches that fare badly: none is lost, none is paid for twice."""

import pytest

import abreast
from abreast.testing.storm import BATCH_FAULTS
from tests.run.calls.batch.batches import KINDS, ask_all, open_batching, times_paid

SIZE = 24

CASES = [("openai", fault) for fault in ("", *BATCH_FAULTS)] + [
    (kind, fault) for kind in KINDS[1:] for fault in ("lost", "expired", "partial", "duplicates")
]


@pytest.mark.parametrize(("kind", "fault"), CASES)
async def test_a_run_in_batches_gives_what_a_direct_one_gives_for_half_the_price(
    kind, fault, tmp_path
):
    faults = {1: fault} if fault else {}
    async with open_batching(kind, batch_fault_at=faults) as (storm, opened):
        batched = await ask_all(opened(), tmp_path / "runs.db", SIZE)
        paid = times_paid(storm)
        direct = await ask_all(opened(mode="direct"), None, SIZE)
    assert [one.value for one in batched] == [one.value for one in direct]
    assert len(paid) == SIZE
    assert set(paid.values()) == {1}
    spent, usual = (sum(one.usage.usd for one in each) for each in (batched, direct))
    assert spent == pytest.approx(usual / 2)


@pytest.mark.parametrize("fault", ["expired", "cancelled", "partial", "missing", "failed"])
async def test_what_a_batch_leaves_without_an_answer_can_go_directly_at_the_full_price(
    fault, tmp_path
):
    async with open_batching(batch_fault_at={1: fault}) as (storm, opened):
        outcomes = await ask_all(opened(batch_fallback="direct"), tmp_path / "runs.db", SIZE)
        left = [row for row in storm.batches() if not row["billed"]]
        direct = [entry for entry in storm.log if entry.kind != "batch"]
        assert [one.ok for one in outcomes] == [True] * SIZE
        assert len(direct) == len(left) > 0
        assert sum(times_paid(storm).values()) + len(direct) == SIZE
        tokens = [(one.input_tokens + 2 * one.output_tokens) / 1e6 for one in storm.log]
        prices = [0.5 if one.kind == "batch" else 1.0 for one in storm.log]
        total = sum(size * price for size, price in zip(tokens, prices, strict=True))
        assert sum(one.usage.usd for one in outcomes) == pytest.approx(total)


async def test_a_call_that_no_batch_answers_fails_after_some_of_them(tmp_path):
    async with open_batching(batch_faults={"failed": 1.0}) as (storm, opened):
        outcomes = await ask_all(opened(), tmp_path / "runs.db", 2)
        assert "batches left it without an answer" in str(outcomes[0].error)
        assert outcomes[0].usage.usd == 0
        assert times_paid(storm) == {}


async def test_a_request_that_its_provider_refuses_fails_alone(tmp_path):
    async with open_batching() as (storm, opened):
        model = opened()

        async def ask(value):
            return (await model.ask(value, max_tokens=9)).text

        async with model, abreast.open_run("run", store=tmp_path / "runs.db") as run:
            found = [one async for one in run.map(ask, ["good", "fault-context", "fine"], width=1)]
        assert [one.ok for one in found] == [True, False, True]
        assert "context" in str(found[1].error)
        assert len(times_paid(storm)) == 2


async def test_a_parameter_that_a_model_refuses_is_left_out_of_the_next_batch(tmp_path):
    async with open_batching(strict="openai-reasoning") as (storm, opened):
        model = opened()

        async def ask(value):
            return await model.ask(f"prompt {value}", temperature=0.5, max_tokens=4000)

        async with model, abreast.open_run("run") as run:
            replies = [one.value async for one in run.map(ask, range(6), width=3)]
        assert {reply.changed for reply in replies} == {("without temperature",)}
        assert set(times_paid(storm).values()) == {1}


async def test_a_key_that_is_wrong_fails_the_calls_and_is_not_tried_again(tmp_path):
    async with open_batching() as (storm, opened):
        lane = opened().service.provider
        assert lane.name == "lane/m"
        model = opened()
        model.service._base = model.service.base.with_path("/nowhere")
        outcomes = await ask_all(model, tmp_path / "runs.db", 3)
        assert [one.ok for one in outcomes] == [False] * 3
        assert storm.batches() == []
