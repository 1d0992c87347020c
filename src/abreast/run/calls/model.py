"""The caller: a model whose calls are admitted by its lane, retried, charged and recorded.

It implements the model port itself.

Caller.complete -> recorded already? -> cached? -> `abreast.run.calls.attempts`
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self, TypedDict

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.outcome import Usage
from abreast.executors.port import DRIVER
from abreast.models.conversation import MessageLike, has_files, make_conversation
from abreast.models.media import MediaSource
from abreast.models.port import (
    Effort,
    Model,
    OnText,
    Reply,
    Request,
    V,
    check_effort,
    is_greedy,
)
from abreast.models.price import Price
from abreast.run.calls.attempts import CallAttempts
from abreast.run.calls.cache import StoreCache
from abreast.run.calls.forwarded import SharedModelCall, find_shared, forward, share
from abreast.run.calls.journal import (
    WHOLE_ITEM,
    CallJournal,
    call_path,
    digest_of,
    recorded_calls_of,
    restore,
)
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.priced_model import PricedModel
from abreast.run.calls.warm_prefixes import WarmPrefixes
from abreast.run.item_state import Calls, ItemState, current_state
from abreast.run.outcome_record import usage_of
from abreast.run.retry import Retry
from abreast.store.port import Store

# Retries after a 5xx, a lost connection or a timeout. A 429 does not count as an attempt.
CALL_RETRY: Final = Retry(retries=4, base=0.5, cap=30.0)

MAX_SEED: Final = (1 << 31) - 1  # the largest seed that every provider accepts


class AskOptions(TypedDict, total=False):
    """The keywords of `Caller.ask`, for functions that pass them on; `schema` is spelled there."""

    system: str | None
    temperature: float | None
    seed: int | None
    stop: tuple[str, ...]
    max_tokens: int | None
    shared_prefix: int | None
    reasoning: Effort | None
    thinking_tokens: int | None
    hear: OnText | None
    files: Sequence[MediaSource]


class Caller(PricedModel):
    """A model with its lane, price, retries and cache.

    Made by `abreast.open_model`; safe to share among items.

        async with abreast.open_model("local/smollm2") as model:
            reply = await model.ask("Name a colour.", max_tokens=5)
            print(reply.text, reply.usage)

    Inside an item of a run, a call is recorded under the item's path and is not made again when the
    run is resumed.
    """

    def __init__(
        self,
        model: Model,
        lane: ModelLane,
        *,
        price: Price | None = None,
        retry: Retry | None = CALL_RETRY,
        paid: bool = True,
        cache: StoreCache | None = None,
        own_store: Store | None = None,
        replays: str | None = None,
        warm: bool = False,
        reasoning: Effort | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`paid` calls are recorded on disk with their reservation before they are sent.

        `own_store` is closed with it.

        If the model answers with recorded replies, `replays` names the model that gave them: calls
        are recorded under that name, and come without the item's seed. `reasoning` is for requests
        that don't say how much to think. With `warm`, of requests that begin alike one goes ahead,
        so that the others find its beginning cached.
        """
        super().__init__(model, lane, price=price, retry=retry or Retry(0), paid=paid, clock=clock)
        self._cache = cache
        self._own_store = own_store
        self.replays = replays
        self.seeded = replays is None
        self.warm_prefixes = WarmPrefixes() if warm else None
        self._reasoning = reasoning

    def __repr__(self) -> str:
        return f"<{self.name} on {self.lane!r}>"

    @property
    def greedy(self) -> bool:
        """Whether it is deterministic by default, so that repeated draws would all be equal."""
        return is_greedy(self.model)

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> tuple[object, ...]:
        """In another process it asks this one, which makes the calls."""
        return find_caller, (share(self), self.name)

    @property
    def direct(self) -> Caller:
        """The same model without batches: itself, if it has none."""
        return self

    def with_model(self, model: Model) -> Caller:
        """The same lane, price and retries for another model, such as a wrapper of its own."""
        other = copy(self)
        other.model = model
        return other

    def warmed(self) -> Caller:
        """The same, and of requests that begin alike one goes ahead, as with `warm`."""
        if self.warm_prefixes is not None:
            return self
        other = copy(self)
        other.warm_prefixes = WarmPrefixes()
        return other

    def for_item(self, model: Model, *, seeded: bool = True) -> Caller:
        """The same for another model and an item that is this one call.

        The item's outcome has the request and the reply, so the record of the call has neither.
        Unless `seeded`, a request without a seed gets none.
        """
        other = self.with_model(model)
        other.is_item = True
        other.seeded = seeded and self.seeded
        return other

    async def __aenter__(self) -> Self:
        """Return itself; connections are opened by the first call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections, free memory, and store what the lane has learned.

        A second call does nothing.
        """
        await self.model.close()
        self.lane.keep()
        if self._own_store is not None:
            self._own_store.close()

    async def ask(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[MessageLike] | None = None,
        system: str | None = None,
        schema: type[V] | Mapping[str, object] | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        stop: tuple[str, ...] = (),
        max_tokens: int | None = None,
        shared_prefix: int | None = None,
        reasoning: Effort | None = None,
        thinking_tokens: int | None = None,
        hear: OnText | None = None,
        files: Sequence[MediaSource] = (),
    ) -> Reply[V]:
        """Send a prompt or a conversation; return the reply, or raise a subclass of `CallFailed`.

            turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
            reply = await model.ask("And twice that?", messages=turns)

        Args:
            prompt: the user's turn, the last one.
            messages: the turns before it, or all turns where there is no prompt: each a `Message`
                or a mapping with `role` and `content`; TypeError or ValueError for one that is
                wrong.
            system: the system prompt.
            schema: a JSON schema, which the reply's `value` then obeys; or a pydantic model's
                class, of which `value` is then an instance.
            temperature: how freely to choose; the provider's default if None.
            seed: for providers that take one; by default the item's own, so that a repeated run
                sends the same requests.
            stop: texts at which to end.
            max_tokens: the longest reply.
            shared_prefix: so many characters of the prompt begin other prompts too; the provider
                is asked to cache them, and the system prompt, if they are long.
            reasoning: how much to think before it: none, minimal, low, medium, high, xhigh or max.
            thinking_tokens: the most tokens to think with, beside `max_tokens`.
            hear: called with each piece of text as it comes.
            files: images and PDF files, as paths or as `MediaFile`s; ValueError for a path that
                has none.
        """
        if files or (messages and has_files(messages)):
            turns = await asyncio.to_thread(
                make_conversation, prompt, messages, files, system=system
            )
        else:
            turns = make_conversation(prompt, messages, system=system)
        shape = None
        if schema is not None:
            from abreast.models.schema import schema_of

            shape = schema_of(schema)
        request = Request(
            turns,
            system=system,
            temperature=temperature,
            seed=seed,
            stop=stop,
            max_tokens=max_tokens,
            schema=shape,
            shared_prefix=shared_prefix,
            reasoning=check_effort(reasoning),
            thinking_tokens=thinking_tokens,
        )
        reply: Reply[Any] = await self.complete(request, hear)
        if schema is not None and not isinstance(schema, Mapping):
            from abreast.models.schema import as_model

            value = as_model(schema, reply, f"the reply of {self.name}")
            reply = replace(reply, value=value)
        return reply

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer a request once the lane and the budgets admit it.

        A request without a seed gets that of its item.
        """
        if self._reasoning is not None and request.reasoning is None:
            request = replace(request, reasoning=self._reasoning)
        item = current_state()
        call_journal: CallJournal | None = None
        if item is not None and item.context.journal is not None:
            calls = item.calls
            if calls is None:
                calls = item.calls = (
                    await recorded_calls_of(item) if item.context.resumed else Calls({})
                )
            digest = WHOLE_ITEM if self.is_item else digest_of(self.replays or self.name, request)
            number = calls.count(item.attempt, digest)
            path = call_path(item.path, digest, number, item.attempt)
            known = calls.known.get(path)
            if known is not None:
                # Before `restore`, which raises a recorded failure.
                item.add_usage(usage_of(known.data))
                return restore(known, request)
            call_journal = CallJournal(
                item,
                item.context.journal,
                path=path,
                model=self.name,
                lane=self.lane.name,
                texts=not self.is_item,
            )
        if (
            self._cache is not None
            and (found := await self._cache.find(self.name, request)) is not None
        ):
            found = replace(found, usage=Usage(requests=0), seconds=0.0, first_token=None)
            return (
                call_journal.replied(found, request, (0.0, 0.0))
                if call_journal is not None
                else found
            )
        task = asyncio.current_task() if item is not None else None
        own_tasks: set[asyncio.Task[Any]] | None = None
        if item is not None and task is not None and task is not item.task:
            # The item's code started this task: it must end with the item.
            own_tasks = item.own_tasks = item.own_tasks or set()
            own_tasks.add(task)
        try:
            reply = await self._call_model(item, request, hear, call_journal)
            if self._cache is not None:
                await self._cache.keep(self.name, request, reply)
        finally:
            if own_tasks is not None and task is not None:
                own_tasks.discard(task)
        return reply

    def _call_model(
        self,
        item: ItemState | None,
        request: Request,
        hear: OnText | None,
        call_journal: CallJournal | None,
    ) -> Awaitable[Reply]:
        sent = with_item_seed(request, item) if self.seeded else request
        if self.warm_prefixes is None:
            return CallAttempts(self, sent, item, call_journal).answer(hear)
        turn = self.warm_prefixes.turn(request, item)
        return self._call_in_turn(turn, partial(CallAttempts, self, sent, item, call_journal), hear)

    @staticmethod
    async def _call_in_turn(
        turn: AbstractAsyncContextManager[None],
        begin: Callable[[], CallAttempts],
        hear: OnText | None,
    ) -> Reply:
        async with turn:
            return await begin().answer(hear)


class ForwardedCaller(Caller):
    """A model in another process than its run's: the driver makes its calls.

    There they are limited, charged and recorded under the item's path.
    """

    def __init__(
        self, name: str, call: Callable[[Request], Callable[[], Awaitable[Reply]]]
    ) -> None:
        """`call` makes of a request what the driver has to do."""
        self._name, self._call = name, call

    def __repr__(self) -> str:
        return f"<{self._name}, called by the driver>"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._name, self._call)

    @property
    def name(self) -> str:
        """`provider/model`, as it was opened."""
        return self._name

    @property
    def greedy(self) -> bool:
        """Not known here."""
        return False

    def warmed(self) -> Caller:
        """Itself: the driver makes the calls."""
        return self

    async def close(self) -> None:
        """Nothing to close here."""

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Have the driver answer a request; `hear` gets the text in one piece."""
        channel = DRIVER.get()
        if channel is None:
            raise RuntimeError(f"{self._name} was opened in an item of another process")
        return await forward(channel, self._call(request), hear)


def find_caller(key: str, name: str) -> Caller:
    """The model that was pickled: itself in its own process, else one that asks for it there."""
    found: Caller | None = find_shared(key)
    return found or ForwardedCaller(name, partial(SharedModelCall, key, name))


def with_item_seed(request: Request, item: ItemState | None) -> Request:
    """The request as it is sent, with the item's seed.

    Its path in the journal is that of the request without it, so it doesn't depend on the run's
    seed.
    """
    if item is None or request.seed is not None:
        return request
    return Request(
        request.messages,
        request.system,
        request.temperature,
        item.seed & MAX_SEED,
        request.stop,
        request.max_tokens,
        request.schema,
        request.tools,
        request.extra,
        request.reasoning,
        request.thinking_tokens,
        request.shared_prefix,
        tool_choice=request.tool_choice,
    )
