"""Print what calls cost by a provider's bill, and what was booked for them.

`python -m benchmarks.bills [PROFILE ...]`.

For each strict profile of the storm a run makes calls of every kind to a model with a price: plain,
streamed, with a schema, with tools, with reasoning, with a long beginning that is cached, and one
that fails first. The storm bills each request by the tokens that it counted itself, at the rates of
genai-prices, or of the lane. What was booked is read from the store. The exit code is 1 if they
differ by a millionth of a cent, or if a kind of token that the profile has was not billed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_prices import Usage as Tokens
from genai_prices import calc_price

from abreast.assembly.names import open_model, open_run
from abreast.core.outcome import NO_USAGE, Usage
from abreast.models.lanes import price_names, read_lanes
from abreast.models.port import Json, Message, Request
from abreast.run.call_totals import CALL_KINDS, call_totals
from abreast.run.calls.model import Caller
from abreast.run.retry import Retry
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.testing.storm import open_storm
from abreast.testing.storm.log import BilledTokens, LogEntry, billed_of
from benchmarks.providers import KEY, LANES, Lane

SMALLEST = 1e-8  # US dollars: a millionth of a cent
_RULES = "Be kind and brief. " * 400
_RATES = {"input": 3.0, "output": 15.0, "cached_input": 0.3, "cache_write": 3.75}
_LABEL = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}
_WEATHER: Mapping[str, Json] = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {}},
}
# Profiles whose replies count these tokens.
_CACHING = (
    *("openai-reasoning", "openai-responses", "anthropic-new", "anthropic-classic"),
    *("gemini", "deepseek"),
)
_REASONING = ("openai-reasoning", "openai-responses", "anthropic-new", "gemini", "xai")


@dataclass(frozen=True, slots=True)
class Bill:
    """What a profile billed, by tokens and in US dollars, and what was booked."""

    tokens: BilledTokens
    usd: float
    booked: Usage
    missing: tuple[str, ...] = ()
    """Kinds of tokens that should have been billed, and were not."""

    @property
    def difference(self) -> float:
        """US dollars that were booked too much, or too little."""
        return (self.booked.usd or 0.0) - self.usd

    @property
    def is_equal(self) -> bool:
        """Whether the money and every kind of token are the same."""
        billed, booked = self.tokens, self.booked
        counts = (billed.input, billed.cached, billed.cache_writes, billed.output, billed.reasoning)
        own = (booked.input_tokens, booked.cached_input_tokens, booked.cache_write_tokens)
        return abs(self.difference) < SMALLEST and counts == (
            *own,
            booked.output_tokens,
            booked.reasoning_tokens,
        )


async def compare(profile: str, folder: Path) -> Bill:
    """Make the calls of a profile, and compare the storm's bill with the store."""
    lane = LANES[profile]
    async with open_storm(strict=profile) as storm:
        table: dict[str, Any] = dict(lane.table(storm.url))
        if lane.name in ("openrouter", "vllm"):
            table["price"] = _RATES
        lanes = read_lanes({lane.name: table}, "abreast.toml")
        store = str(folder / "runs.db")
        name = f"{lane.name}/{lane.model}"
        retry = Retry(2, base=0.0, cap=0.0)
        async with (
            open_model(name, lanes=lanes, retry=retry) as model,
            open_run("bill", store=store) as run,
        ):
            calls = [call for call in CALLS if call not in _IMPOSSIBLE.get(profile, ())]
            async for outcome in run.map(lambda call: call(model), calls, width=4, key=_name):
                if not outcome.ok:
                    raise RuntimeError(f"{profile}, {outcome.key}: {outcome}")
            prices = None if "price" in table else price_names(lanes[lane.name], lane.model)
        entries = [*storm.log]
    tokens = billed_of(entries)[lane.model]
    missing = [word for word in _expected(profile) if not getattr(tokens, word)]
    return Bill(tokens, _dollars(entries, prices), _booked(store, lane), tuple(missing))


def _expected(profile: str) -> Iterable[str]:
    if profile in _CACHING:
        yield "cached"
    if profile.startswith("anthropic"):
        yield "cache_writes"
    if profile in _REASONING:
        yield "reasoning"


# --- the calls


async def _plain(model: Caller) -> str:
    return (await model.ask("Say hello")).text


async def _streamed(model: Caller) -> str:
    return (await model.ask("Say a longer hello", hear=lambda _text: None)).text


async def _schema(model: Caller) -> str:
    return (await model.ask("Label it", schema=_LABEL)).text


async def _tools(model: Caller) -> str:
    asked = Request((Message("user", "Please call weather."),), tools=(_WEATHER,))
    return str((await model.complete(asked)).tool_calls)


async def _reasoning(model: Caller) -> str:
    return (await model.ask("Think", reasoning="low", max_tokens=4000)).text


async def _cached(model: Caller) -> str:
    """One after the other: the first writes to the cache, or fills it."""
    texts = [
        (await model.ask(f"{_RULES}{number}", shared_prefix=len(_RULES))).text
        for number in range(3)
    ]
    return " ".join(texts)


async def _failing(model: Caller) -> str:
    return (await model.ask("fault-500x1 Say hello")).text


CALLS: tuple[Callable[[Caller], Awaitable[str]], ...] = (
    _plain,
    _streamed,
    _schema,
    _tools,
    _reasoning,
    _cached,
    _failing,
)


# It has no tools but forced ones, and its streams have no usage.
_IMPOSSIBLE = {"vllm-old": (_tools, _streamed)}


def _name(call: Callable[[Caller], Awaitable[str]]) -> str:
    return call.__name__.strip("_")


# --- the two sums


def _dollars(entries: Iterable[LogEntry], prices: tuple[str, str] | None) -> float:
    """What the requests cost by the log of the storm: by the table, or by the lane's rates."""
    usd = 0.0
    for entry in entries:
        if not billed_of([entry]):
            continue
        read, written = entry.cached_tokens, entry.cache_write_tokens
        if prices is None:
            plain = entry.input_tokens - read - written
            usd += plain * _RATES["input"] / 1e6 + entry.output_tokens * _RATES["output"] / 1e6
            usd += read * _RATES["cached_input"] / 1e6 + written * _RATES["cache_write"] / 1e6
            continue
        provider, model = prices
        tokens = Tokens(
            input_tokens=entry.input_tokens,
            cache_read_tokens=read,
            cache_write_tokens=written,
            output_tokens=entry.output_tokens,
        )
        usd += float(calc_price(tokens, model, provider_id=provider).total_price)
    return usd


def _booked(place: str, lane: Lane) -> Usage:
    """What the store has of the run's calls."""
    with closing(SqliteStore(place)) as store:
        totals = call_totals(each_event(store, "bill-1", CALL_KINDS))
    return totals.by_model.get(f"{lane.name}/{lane.model}", NO_USAGE)


def main() -> int:
    """Print a row for each profile; 1 if a bill differs from what was booked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bills", description=__doc__)
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help=f"of {' '.join(LANES)}")
    profiles = parser.parse_args().profiles or list(LANES)
    if unknown := [name for name in profiles if name not in LANES]:
        parser.error(f"no such profile: {', '.join(unknown)} (there are {', '.join(LANES)})")
    os.environ["STORM_KEY"] = KEY
    heads = ("requests", "input", "cached", "written", "output", "reasoning")
    print(f"{'profile':<18}{'model':<26}", *(f"{head:>9}" for head in heads), end="")
    print(f"{'billed usd':>13}{'booked usd':>13}{'difference':>12}")
    wrong = 0
    for profile in profiles:
        with tempfile.TemporaryDirectory() as folder:
            bill = asyncio.run(compare(profile, Path(folder)))
        tokens = bill.tokens
        counts = (tokens.requests, tokens.input, tokens.cached, tokens.cache_writes)
        numbers = (*counts, tokens.output, tokens.reasoning)
        print(
            f"{profile:<18}{LANES[profile].model:<26}", *(f"{one:>9,}" for one in numbers), end=""
        )
        print(f"{bill.usd:>13.8f}{bill.booked.usd or 0.0:>13.8f}{bill.difference:>12.1e}", end="")
        print("" if bill.is_equal else "  DIFFERS", *(f"  no {word}" for word in bill.missing))
        wrong += not bill.is_equal or bool(bill.missing)
    print(f"{wrong} of {len(profiles)} bills differ from what was booked")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
