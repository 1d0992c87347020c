"""Asks a model about each item of a map."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from abreast.cli.config import DEFAULT, WIDTH, Config
from abreast.cli.errors import UsageError, refusing
from abreast.cli.jobs.map.job import WHOLE_LINE, MapJob
from abreast.cli.jobs.map.template import UnstartedItem, value_at
from abreast.cli.jobs.model_options import (
    batch_share,
    check_schema,
    check_sees,
    configured_lanes,
    open_named,
)
from abreast.core.item import position_key
from abreast.limits.budget import Budget
from abreast.models.batch.modes import CallMode
from abreast.models.estimate import NO_BOUND
from abreast.models.lanes import ADAPTIVE_WIDTH, check_keys, split_name
from abreast.models.media import check_media
from abreast.models.port import Json, Request, full_name
from abreast.run.calls.model import Caller
from abreast.run.current import current_item
from abreast.store.port import Store


def width_for(config: Config, model_options: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    """How many items run at once: as many as an adaptive lane takes, unless a width is set.

    With --until or --halt the usual width is used: items that run past the stop are wasted, and a
    lane can't know how many those are.
    """
    found = config.find(WIDTH, given["width"])
    if found.source != DEFAULT or not model_options or given["until"] is not None or given["halt"]:
        return found.value
    lane = configured_lanes(config, model_options["lane_width"]).get(
        full_name(model_options["model"]).partition("/")[0]
    )
    return ADAPTIVE_WIDTH if lane is not None and lane.adaptive else found.value


def check_prompt(job: MapJob) -> None:
    """Raise an error if the model's name, its key, the schema, an image or the budget is wrong."""
    settings, _ = split_name(job.model or "", job.lanes)
    with refusing("--batch" if job.calls.get("mode") else "--tier"):
        CallMode(**job.calls).lane(settings)
    if settings.mode == "batch" and job.timeout is not None:
        raise UsageError("--timeout is for direct calls; leave it out, for a batch takes its time")
    if job.images:
        check_sees(job.model or "", job.lanes)
        with refusing("--image"):
            for path in job.image_paths.constants:
                check_media(str(Path(job.folder, path)))
    check_keys([settings])
    if job.schema is not None:
        check_schema(job.schema, "--schema")
    _ = job.question
    if job.messages is not None and job.messages != WHOLE_LINE:
        with suppress(ValueError):  # it is no line that has no such field
            value_at(job.messages, None)
    if settings.kind != "replay":  # its replies are in the store, which isn't open yet
        budgets = (Budget.parse(job.budget),) if job.budget else ()
        # Raises if the budget limits money and the model's price is unknown.
        open_named(job.model or "", job.lanes).reserve(Request(()), budgets)


def open_caller(job: MapJob, store: Store | None) -> Caller:
    """Open the job's model."""
    return open_named(job.model or "", job.lanes, store, cache=job.cache, warm=job.warm)


async def with_content(job: MapJob, lines: AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
    """Each line with the marks of its files: an item whose file has changed is another item."""
    index = 0
    async with aclosing(aiter(lines)) as opened:  # type: ignore[type-var]  # a generator
        async for line in opened:
            key = job.key_of(line) if job.key_of is not None else position_key(index)
            with refusing(f"item {key}"):
                files = await asyncio.to_thread(job.read_files, line, UnstartedItem(index, key))
            yield [line, [file.mark for file in files]]
            index += 1


def key_of_line(key_of: Callable[[Any], str] | None) -> Callable[[Any], str] | None:
    """The same function for items as `with_content` makes them."""
    return None if key_of is None else lambda value: key_of(value[0])


class PromptEstimate:
    """What the calls of a map may take: a part of each dry run."""

    def __init__(self, job: MapJob) -> None:
        settings, _ = split_name(job.model or "", job.lanes)
        # Recorded replies cost nothing, and their store isn't open.
        self._caller = None if settings.kind == "replay" else open_named(job.model or "", job.lanes)
        self._job = job
        self._calls = self._tokens = 0
        self._usd = 0.0

    def add(self, value: Any, item: UnstartedItem) -> None:  # noqa: ANN401 - any JSON value
        """Add the call for one item."""
        job = self._job
        self._calls += 1
        if self._caller is None:
            return
        with refusing(f"item {item.key}"):
            turns = job.conversation(value, item)
        request = Request(
            turns,
            system=job.system,
            max_tokens=job.max_tokens,
            schema=job.schema,
            reasoning=job.reasoning,
            thinking_tokens=job.thinking_tokens,
        )
        need, _ = self._caller.reserve(request, ())
        self._tokens += need.tokens
        self._usd += need.usd

    def spoken(self) -> str:
        """The sum in words, and that it is no bound."""
        if self._caller is None:
            return f"{self._calls:,} recorded replies"
        is_priced = self._caller.price is not None
        cost = f"{self._usd:.4g} usd" if is_priced else "an unknown cost"
        share = batch_share(self._caller)
        if share is not None and is_priced:
            cost += f", or {self._usd * share:.4g} usd in batches"
        return f"{self._calls:,} calls, {self._tokens:,} tokens, {cost}: {NO_BOUND}"


class PromptWork:
    """Asks the job's question about an item; the value is the reply's text, or its JSON value."""

    def __init__(self, job: MapJob, caller: Caller) -> None:
        """Ask through `caller`."""
        self._job = job
        self._caller = caller

    async def __call__(self, value: Any) -> Json:  # noqa: ANN401 - any JSON value
        """Ask about one item."""
        item = current_item()
        if item is None:
            raise RuntimeError("a question is asked inside an item of a map")
        job = self._job
        marks: list[str] = []
        if job.may_have_files:
            value, marks = value
            turns = await asyncio.to_thread(job.conversation, value, item)
        else:
            turns = job.conversation(value, item)
        if [file.mark for turn in turns for file in turn.files] != marks:
            raise ValueError("its files changed after they were read; start a new run")
        is_talk = job.messages is not None
        reply = await self._caller.ask(
            None if is_talk else turns[0].content,
            messages=turns if is_talk else None,
            files=() if is_talk else turns[0].files,
            system=job.system,
            schema=job.schema,
            temperature=job.temperature,
            max_tokens=job.max_tokens,
            shared_prefix=None if is_talk else job.question.shared_prefix,
            reasoning=job.reasoning,
            thinking_tokens=job.thinking_tokens,
        )
        return reply.value if job.schema is not None else reply.text
