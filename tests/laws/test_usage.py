"""Law 1 for usage: an outcome's usage is that of a plain loop.

At any width, and after any crash and resume.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import Refused, ServerFault, StoreFull
from abreast.core.outcome import NO_USAGE, Usage
from abreast.models.port import OnText, Reply, Request
from abreast.models.price import FlatPrice
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.run.item_state import ItemState
from abreast.run.map.scheduler import Scheduler
from abreast.store.port import Store
from abreast.testing import MemoryStore
from tests.dying import Dying
from tests.properties import tried

PRICE = FlatPrice(0.1, 0.7)
RETRY = abreast.Retry(3, base=0.0, cap=0.0)


@dataclass(frozen=True)
class Call:
    """A call to a model: its turns of the loop, its failed attempts, whether it is refused."""

    turns: int
    faults: int
    refused: bool

    def used(self, text: str) -> Usage:
        """What it uses, however it ends."""
        sent = Usage(1, len(text), 3 + self.turns)
        cost = Usage(
            1,
            sent.input_tokens,
            sent.output_tokens,
            PRICE.of(sent.input_tokens, sent.output_tokens),
        )
        return sum((Usage(1, usd=PRICE.of(0, 0)) for _ in range(self.faults)), NO_USAGE) + cost


@dataclass(frozen=True)
class Beneath:
    """A map beneath an item: the calls of its items, its width, the successes to stop after."""

    calls: tuple[Call, ...]
    width: int
    until: int | None

    @property
    def counted(self) -> int:
        """How many of its items a plain loop runs."""
        passed = 0
        for index, call in enumerate(self.calls):
            passed += not call.refused
            if self.until is not None and passed >= self.until:
                return index + 1
        return len(self.calls)


Part: TypeAlias = "Call | Beneath"


@dataclass(frozen=True)
class World:
    """Items, each with calls of its own and maps beneath it, one after the other."""

    items: tuple[tuple[Part, ...], ...]
    width: int

    def texts(self) -> dict[str, Call]:
        """All calls, by what they ask."""
        found: dict[str, Call] = {}
        for item, parts in enumerate(self.items):
            for place, part in enumerate(parts):
                inner = part.calls if isinstance(part, Beneath) else (part,)
                found |= {f"{item} {place} {number}": call for number, call in enumerate(inner)}
        return found

    def serial(self) -> list[Usage]:
        """What each item uses in a plain loop."""
        totals = []
        for item, parts in enumerate(self.items):
            total = NO_USAGE
            for place, part in enumerate(parts):
                inner = part.calls[: part.counted] if isinstance(part, Beneath) else (part,)
                total = sum(
                    (call.used(f"{item} {place} {number}") for number, call in enumerate(inner)),
                    total,
                )
            totals.append(total)
        return totals


class Priced:
    """Answers as the world says: after so many faults, with so many tokens."""

    name = "law/priced"

    def __init__(self, calls: Mapping[str, Call]) -> None:
        self.calls = calls
        self.sent: Counter[str] = Counter()

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        text = request.messages[-1].content
        call = self.calls[text]
        self.sent[text] += 1
        for _ in range(call.turns):
            await asyncio.sleep(0)
        used = Usage(1, len(text), 3 + call.turns)
        if self.sent[text] <= call.faults:
            raise ServerFault("not now", status=500)
        if call.refused:
            refused = Refused("not this")
            refused.usage = used  # type: ignore[attr-defined]
            raise refused
        return Reply(text, usage=used)

    async def close(self) -> None:
        pass


async def outcomes_of(world: World, **opening: Any) -> list[tuple[Any, ...]]:
    model = Caller(Priced(world.texts()), ModelLane("law"), price=PRICE, retry=RETRY)

    async def ask(text: str) -> str:
        return (await model.ask(text)).text

    async def work(item: int) -> list[str]:
        said, scope = [], abreast.current().run
        for place, part in enumerate(world.items[item]):
            if isinstance(part, Call):
                try:
                    said.append(await ask(f"{item} {place} 0"))
                except Refused:
                    said.append("refused")
            else:
                texts = [f"{item} {place} {number}" for number in range(len(part.calls))]
                inner = scope.map(
                    ask, texts, width=part.width, until=part.until, name=f"part {place}"
                )
                said += [outcome.key if outcome.ok else outcome.state async for outcome in inner]
        return said

    async with abreast.open_run("law", **opening) as run:
        return [
            (o.key, o.state, o.value, o.usage)
            async for o in run.map(work, range(len(world.items)), width=world.width)
        ]


async def after_crashes(
    world: World, commits: Sequence[int], store: Store | None = None
) -> list[tuple[Any, ...]]:
    """Crash after so many commits, go on, crash again; and go on to the end."""
    store = store or MemoryStore()
    for count in commits:
        try:
            found = await outcomes_of(world, store=Dying(store, count), seed=3)
        except StoreFull:
            continue
        return found
    return await outcomes_of(world, store=store, seed=3)


def used(outcomes: Sequence[tuple[Any, ...]]) -> list[Usage]:
    return [outcome[-1] for outcome in outcomes]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    calls = st.builds(Call, st.integers(0, 5), st.integers(0, 2), st.booleans())
    inner = st.builds(
        Beneath,
        st.lists(calls, min_size=1, max_size=5).map(tuple),
        st.integers(1, 4),
        st.none() | st.integers(1, 3),
    )
    parts = st.lists(calls | inner, min_size=1, max_size=3).map(tuple)
    return World(tuple(draw(st.lists(parts, min_size=1, max_size=4))), draw(st.integers(1, 4)))


@tried(150)
@given(worlds())
def test_an_outcome_has_used_what_the_plain_loop_s_has(world):
    assert used(asyncio.run(outcomes_of(world))) == world.serial()


@tried(150)
@given(worlds(), st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_after_crashes_and_resumes_an_outcome_has_used_what_an_undisturbed_one_has(world, commits):
    calm = asyncio.run(outcomes_of(world, store=MemoryStore(), seed=3))
    assert used(calm) == world.serial()
    assert asyncio.run(after_crashes(world, commits)) == calm


# --- the law can fail ---

SEVERAL = World(
    items=(
        (
            Call(1, 1, refused=False),
            Beneath((Call(4, 0, refused=False), Call(0, 1, refused=False)), 2, 1),
        ),
        (
            Call(0, 0, refused=True),
            Beneath((Call(0, 0, refused=True), Call(2, 0, refused=False)), 1, None),
        ),
    ),
    width=2,
)


def claims_all(self: Scheduler, index: int) -> None:
    """Counts what ran past the stopping point, too."""
    for used_ in self.unclaimed.values():
        if self.parent is not None:
            self.parent.add_usage(used_)
    self.unclaimed.clear()


def claims_nothing(self: Scheduler, index: int) -> None:
    """Counts calls of the item itself, and nothing of the maps beneath it."""


def adds_nothing(self: ItemState, used: Usage) -> None:
    """Counts nothing."""


@pytest.mark.parametrize(
    ("owner", "name", "mutant"),
    [
        (Scheduler, "claim_usage", claims_all),
        (Scheduler, "claim_usage", claims_nothing),
        (ItemState, "add_usage", adds_nothing),
    ],
)
async def test_a_mutant_that_counts_too_much_or_too_little_is_caught(
    owner, name, mutant, monkeypatch
):
    assert used(await outcomes_of(SEVERAL)) == SEVERAL.serial()
    monkeypatch.setattr(owner, name, mutant)
    assert used(await outcomes_of(SEVERAL)) != SEVERAL.serial()


@pytest.mark.parametrize("commits", range(1, 20))
async def test_killed_at_any_boundary_of_the_journal_the_usage_is_that_of_an_undisturbed_run(
    commits,
):
    assert used(await after_crashes(SEVERAL, [commits])) == SEVERAL.serial()
