"""Print how often a budget was passed.

`python -m benchmarks.budgets [--runs 1000] [--seed 1]`.

Each run has a budget in money or tokens and models of its own, in virtual time. What its calls do
is drawn from the seed: replies of any length that their `max_tokens` allow, thinking, cache writes,
models that refuse it, replies without usage, streams that break off, lost connections, refusals,
429s, 500s and 503s, timeouts of items, calls that are cancelled because another one was faster. The
models keep account of what they would charge, also for what their caller never learns of.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple

from abreast.assembly.names import open_run
from abreast.core.clock import sleep_until
from abreast.core.errors import (
    BudgetSpent,
    CallFailed,
    ConnectionLost,
    Refused,
    ReplyBroken,
    ReplyTimeout,
    RequestRefused,
    ServerFault,
    Throttled,
    Unavailable,
)
from abreast.core.outcome import NO_USAGE, Usage
from abreast.limits.budget import Budget
from abreast.limits.slots import Slots
from abreast.models.port import Json, Message, OnText, Reply, Request
from abreast.models.price import FlatPrice, priced
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.run.retry import Retry
from abreast.testing import ManualClock

_UNBOUNDED = 100_000  # tokens of a reply that no max_tokens bounds
_UNBOUNDED_SHARE = 0.15  # of models that refuse max_tokens
_FREE_FAULTS = (Throttled, ServerFault, Unavailable)  # not charged
_CHARGED_FAULTS = (ConnectionLost, ReplyTimeout, ReplyBroken)  # charged, and the usage is not told
_FAULT_SHARE = 0.3
_TEXTS = ("plain words ", "Größe, naïve ", "日本語のテキスト", "🙂🎈", "x" * 50)
_TOOLS: tuple[Mapping[str, Json], ...] = (
    {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
)


class Spending(NamedTuple):
    """What one run had, and what its models charged."""

    caps: dict[str, float]
    charged: dict[str, float]
    calls: int

    @property
    def passed(self) -> bool:
        """Whether a cap was passed."""
        return any(self.charged[name] > cap * (1 + 1e-9) for name, cap in self.caps.items())


class ChargingModel:
    """A model that charges for everything, whether its caller learns of it or not."""

    def __init__(self, name: str, random: Random, clock: ManualClock, price: FlatPrice) -> None:
        self.name = name
        self.price = price
        self.tokens = 0
        self.usd = 0.0
        self.calls = 0
        self.is_bounded = True
        self._refuses_bound = random.random() < _UNBOUNDED_SHARE
        self._random = random
        self._clock = clock

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer, or fail, after some time; what was done until then is charged in any case."""
        random = self._random
        if self._refuses_bound and request.keeps_bound:
            self.is_bounded = False
            refusal = RequestRefused("no max_tokens, please")
            refusal.lost_bound = True
            raise refusal
        self.calls += 1
        fault = None
        if random.random() < _FAULT_SHARE:
            fault = random.choice((*_FREE_FAULTS, *_CHARGED_FAULTS, Refused))
        await self._sleep(random.uniform(0.0, 0.5))
        if fault in _FREE_FAULTS:
            raise fault("not now", status=500 if fault is ServerFault else 503)
        used = self._draw(request)
        thought = used.output_tokens if hear is None else used.reasoning_tokens
        done = 0
        try:
            pieces = random.randint(1, 5) if hear is not None else 1
            for piece in range(pieces):
                await self._sleep(random.uniform(0.0, 2.0))
                if hear is not None:
                    size = (used.output_tokens - thought) * (piece + 1) // pieces - done
                    done += size
                    hear("ab" * size)
                if fault in _CHARGED_FAULTS and random.random() < 1 / pieces:
                    break
        except asyncio.CancelledError:
            self._charge(used, thought + done)
            raise
        if fault in _CHARGED_FAULTS:
            self._charge(used, thought + done)
            raise fault("broken off")
        self._charge(used, used.output_tokens)
        if fault is not None:
            refused = fault("no", status=200)
            refused.usage = used
            raise refused
        reported = random.choice((used, used, used, NO_USAGE))
        text = "ab" * used.output_tokens  # two bytes for each token
        return Reply(text, usage=reported, seconds=1.0)

    async def close(self) -> None:
        """Nothing is open."""

    def _draw(self, request: Request) -> Usage:
        """The usage of a call: as much as its bytes and its bound allow, or less."""
        random = self._random
        size = len((request.system or "").encode())
        size += sum(len(turn.content.encode()) + 8 for turn in request.messages)
        size += 500 if request.tools or request.schema else 0
        most = _UNBOUNDED
        if self.is_bounded and request.max_tokens is not None:
            most = request.max_tokens + (request.thinking_tokens or 0)
        sent = size if random.random() < 0.3 else random.randint(1, size)
        output = most if random.random() < 0.3 else random.randint(0, most)
        reasons = request.reasoning is not None
        return Usage(
            1,
            sent,
            output,
            None,
            cache_write_tokens=random.choice((0, 0, sent)),
            reasoning_tokens=random.randint(0, output) if reasons else 0,
        )

    def _charge(self, used: Usage, output: int) -> None:
        charged = Usage(
            1, used.input_tokens, output, None, cache_write_tokens=used.cache_write_tokens
        )
        self.tokens += charged.input_tokens + charged.output_tokens
        self.usd += priced(charged, self.price).usd or 0.0

    async def _sleep(self, seconds: float) -> None:
        await sleep_until(self._clock, self._clock.now() + seconds)


async def spend(seed: int) -> Spending:
    """Let one run spend its budget."""
    random = Random(seed)
    clock = ManualClock(1.0)
    models = [_model(number, random, clock) for number in range(random.randint(1, 3))]
    callers = [
        Caller(
            model,
            ModelLane(model.name.partition("/")[0], [Slots(random.randint(1, 32))]),
            price=model.price,
            retry=Retry(random.randint(0, 3), base=0.1, cap=1.0),
            clock=clock,
        )
        for model in models
    ]
    caps: dict[str, float] = {}
    if random.random() < 0.8:
        caps["usd"] = random.choice((random.uniform(0.001, 0.5), random.uniform(0.5, 8.0)))
    if not caps or random.random() < 0.3:
        caps["tokens"] = random.choice((random.randint(5_000, 200_000), 800_000))
    tokens = caps.get("tokens")
    budget = Budget(usd=caps.get("usd"), tokens=None if tokens is None else int(tokens))

    async def work(item: int) -> int:
        draw = Random(f"{seed}/{item}")
        for _ in range(draw.randint(1, 3)):
            with suppress(CallFailed):
                await _calls(draw, callers)
        return item

    timeout = random.choice((None, 1.0, 3.0))
    width = random.choice((1, 4, 16, 64))

    async def drive() -> None:
        with suppress(BudgetSpent):
            async with open_run("budget", seed=seed, clock=clock, budget=budget) as run:
                items = range(random.randint(10, 60))
                async for _ in run.map(work, items, width=width, timeout=timeout):
                    pass

    done: asyncio.Future[object] = asyncio.ensure_future(drive())
    await clock.run_until(done)
    await done
    charged = {"usd": sum(one.usd for one in models), "tokens": sum(one.tokens for one in models)}
    return Spending(caps, charged, sum(one.calls for one in models))


def _model(number: int, random: Random, clock: ManualClock) -> ChargingModel:
    price = FlatPrice(
        random.uniform(0.05, 5.0),
        random.uniform(0.2, 20.0),
        cache_write=random.choice((None, random.uniform(0.05, 7.0))),
    )
    return ChargingModel(f"lane{number}/model", Random(random.random()), clock, price)


async def _calls(draw: Random, callers: list[Caller]) -> None:
    """A call; or two, of which the slower one is cancelled; or one with a judge after it."""
    kind = draw.choice(("one", "hedged", "judged"))
    first = _request(draw)
    hear: OnText | None = draw.choice((None, lambda _text: None))
    if kind == "hedged":
        tasks = [
            asyncio.ensure_future(draw.choice(callers).complete(first, hear)) for _ in range(2)
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ended:
            if isinstance(end, BudgetSpent):
                raise end
        return
    await draw.choice(callers).complete(first, hear)
    if kind == "judged":
        await draw.choice(callers).complete(_request(draw))


def _request(draw: Random) -> Request:
    prompt = draw.choice(_TEXTS) * draw.randint(1, 200)
    reasoning = draw.random() < 0.3
    return Request(
        (Message("user", prompt),),
        system=draw.choice((None, "Be brief.", "Kürze!")),
        max_tokens=draw.choice((None, 16, 500, 2000)),
        tools=_TOOLS if draw.random() < 0.5 else (),
        reasoning="low" if reasoning else None,
        thinking_tokens=draw.choice((None, 1000)) if reasoning else None,
    )


def main() -> int:
    """Print the runs that passed a cap, and how much of their caps all of them used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budgets", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many runs (1000)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    args = parser.parse_args()
    passed = calls = 0
    shares: list[float] = []
    for seed in range(args.seed, args.seed + args.runs):
        spent = asyncio.run(spend(seed))
        calls += spent.calls
        shares.append(max(spent.charged[name] / cap for name, cap in spent.caps.items()))
        if spent.passed:
            passed += 1
            print(f"seed {seed}: {spent.charged} charged of {spent.caps}")
    print(
        f"{passed} of {args.runs} budgets passed (seeds {args.seed} to {args.seed + args.runs - 1},"
        f" {calls:,} calls); the dearest run used {100 * max(shares):.1f}% of its budget,"
        f" the mean is {100 * sum(shares) / len(shares):.1f}%"
    )
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
