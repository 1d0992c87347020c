"""The batch caller: a model whose calls are made in batches, at their price.

A call differs from a direct one only in its way to the provider: it is journaled, reserved and
settled as all others, by `abreast.run.calls.attempts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from abreast.core.errors import BatchMissed, CallFailed
from abreast.core.outcome import Usage
from abreast.limits.limit import Limit
from abreast.models.batch.service import MISSED, BatchAnswer, BatchService
from abreast.models.batch.terms import BatchTerms
from abreast.models.estimate import TokenEstimate
from abreast.models.port import OnText, Reply, Request
from abreast.models.price import Price, priced
from abreast.models.providers.accepted_form import MAX_LESSONS
from abreast.run.calls.attempts import CallAttempts
from abreast.run.calls.batch.gatherer import TOO_MUCH_ENQUEUED, Gatherer
from abreast.run.calls.batch.run_batches import batches_of
from abreast.run.calls.journal import CallJournal
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller, with_item_seed
from abreast.run.calls.priced_model import PricedModel
from abreast.run.item_state import ItemState
from abreast.run.map.away import away

if TYPE_CHECKING:
    from abreast.limits.shared.share import LaneShare

MAX_MISSES: Final = 5  # batches that may leave a call without an answer before it fails
_RETRIED_STATUS: Final = (408, 409, 429)  # and all from 500 on: errors of the provider
_TOKEN_BYTES: Final = 4


class _GoesDirect(Exception):
    """A call is to be made directly, as its batch did not answer it."""


class BatchCaller(Caller):
    """A model with its lane and price, whose calls are made in batches.

    Its calls are made by items of a run, in `async` functions: while they wait, their items have
    no place in the width of their map.
    """

    def __init__(
        self,
        direct: Caller,
        service: BatchService,
        terms: BatchTerms,
        *,
        price: Price | None,
    ) -> None:
        """`direct` makes calls that go without a batch; `price` is that of batches."""
        vars(self).update(vars(direct))
        self._direct = direct
        self.service = service
        self.terms = terms
        self.batch_price = price

    @property
    def direct(self) -> Caller:
        """The same model without batches."""
        return self._direct

    @property
    def share(self) -> float | None:
        """The share of the usual price that calls cost in batches; None if it is not known."""
        if self.price is None or self.batch_price is None:
            return None
        usual = self.price.of(1000, 1000)
        return self.batch_price.of(1000, 1000) / usual if usual else None

    def __repr__(self) -> str:
        return f"<{self.name} in batches on {self.lane!r}>"

    async def _call_model(
        self,
        item: ItemState | None,
        request: Request,
        hear: OnText | None,
        call_journal: CallJournal | None,
    ) -> Reply:
        if item is None or item.place.away is None:
            raise ValueError(f"{self.name} is called in batches, so by the items of a run's map")
        if not item.place.away.can_wait:
            raise ValueError(
                f"{self.name} is called in batches, and only `async` functions in the run's own "
                f"process can wait for one: the function of {item.map_name} is none"
            )
        gatherer = await batches_of(item.context).gatherer(
            item.context, self.service, self.terms, lane=self.lane.name
        )
        sent = with_item_seed(request, item)
        batched = _BatchedCall(self, item, call_journal, gatherer)
        try:
            return await CallAttempts(batched, sent, item, call_journal).answer(hear)
        except _GoesDirect:
            return await CallAttempts(self, sent, item, call_journal).answer(hear)


class _BatchedCall(PricedModel):
    """One call by batch: what its attempts need, and the model that waits for its answers."""

    pays_when_left = False  # its batch is still there when the run is resumed

    def __init__(
        self,
        caller: BatchCaller,
        item: ItemState,
        call_journal: CallJournal | None,
        gatherer: Gatherer,
    ) -> None:
        self._caller = caller
        lane = ModelLane(caller.lane.name, outage=0.0)  # the limits are those of direct calls
        super().__init__(
            self,
            lane,
            price=caller.batch_price,
            retry=caller.retry,
            paid=caller.paid,
            clock=caller.clock_for(item),
        )
        self.estimates = caller.estimates
        self._item = item
        self._journal = call_journal
        self._gatherer = gatherer
        self._sent = 0  # how often it was put into a batch

    @property
    def name(self) -> str:
        """`provider/model`, as it was opened."""
        return self._caller.name

    def limits_for(self, item: ItemState | None) -> tuple[Limit, ...]:  # noqa: ARG002 - none for all
        """None: the provider counts batches apart."""
        return ()

    def share_for(self, item: ItemState | None) -> LaneShare | None:
        """That of the lane, whose budget is for batches too."""
        return self._caller.share_for(item)

    # --- the model port

    async def close(self) -> None:
        """Nothing to close."""

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Wait for the answer of a batch; the item has no place in the width meanwhile."""
        async with away(self._item, self._gatherer.size):
            reply = await self._answer(request)
        self._note_saving(reply)
        if hear is not None and reply.text:
            hear(reply.text)
        return reply

    async def _answer(self, request: Request) -> Reply:
        misses = 0
        for _ in range(MAX_MISSES + MAX_LESSONS):
            body, changed = self._caller.service.write(request)
            answer = await self._submit(request, body)
            why = answer.why
            if answer.status != MISSED:
                try:
                    return self._caller.service.read(request, answer, changed)
                except CallFailed as error:
                    error.usage = error.usage or Usage(requests=0)  # errors are free
                    if self._caller.service.provider.learns(error, body, request):
                        continue
                    if not (answer.status >= 500 or answer.status in _RETRIED_STATUS):  # noqa: PLR2004 - server errors
                        raise
                    why = str(error)
            if why == TOO_MUCH_ENQUEUED:
                continue
            if self._caller.terms.fallback == "direct":
                raise _GoesDirect
            misses += 1
            if misses >= MAX_MISSES:
                break
        missed = BatchMissed(f"{self.name}: {misses} batches left it without an answer ({why})")
        missed.usage = Usage(requests=0)
        raise missed

    async def _submit(self, request: Request, body: dict[str, object]) -> BatchAnswer:
        """Put the request into a batch, and wait for its answer.

        Its id is the call's path and how often it was sent: a resumed run finds the same answers.
        """
        path = self._journal.path if self._journal is not None else f"{self._item.path}@{id(self)}"
        call = f"{path}#{self._sent}"
        self._sent += 1
        size = len(str(body))
        estimate: TokenEstimate = self.estimates.of(request)
        tokens = max(estimate.input_tokens, size // _TOKEN_BYTES)
        anew = self._item.ignores_recorded_calls
        return await self._gatherer.answer(call, body, (size, tokens), anew=anew)

    def _note_saving(self, reply: Reply) -> None:
        if self._journal is None:
            return
        direct, batch = (
            priced(reply.usage, price).usd for price in (self._caller.price, self.price)
        )
        self._journal.more = {"batch": True}
        if direct is not None and batch is not None:
            self._journal.more["saved"] = direct - batch
