"""Tries candidates: their behaviour side by side, then their speed one at a time.

Repairs, refines and goes on.

    sources -> those that are new -> behaviour (several at once, each in a slot) -> what passed -> measuring (alone)
                                       `-> wrong: repair, at once, and again behaviour

A candidate is an item of one map. Its behaviour check is a step beneath it that holds a slot, and
nothing else does: so a slot is free again as soon as a check ends, whichever way, and while a model
thinks about a repair. Measuring is a map of its own, after all checks have ended; it holds all of
the machine. Every step is a journal entry, so that a run which was killed goes on where it was.

Names decide, not time: first candidates are told apart in the order in which they came; repairs,
which come whenever they come, are compared with those and with their own ancestors, and with each
other only once all are there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from abreast.core.errors import AbreastError, Stopped
from abreast.core.outcome import Cancelled, Done, Failed
from abreast.executors.port import BoundCall
from abreast.executors.tasks import LocalExecutor, is_async
from abreast.jobs.candidates.registry import Link, Registry, child_of
from abreast.jobs.candidates.results import Checked, ProfiledLine, Proposal, Timed, Tried, best_of
from abreast.jobs.candidates.source.normal_form import Register
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, candidate_text
from abreast.limits.pool import Pool
from abreast.limits.slots import Slots
from abreast.run.current import CurrentItem, current_item
from abreast.run.run import Run
from abreast.worktrees.errors import WorktreesUnavailable
from abreast.worktrees.pool import Worktrees, open_worktrees
from abreast.worktrees.slot import Slot

WORKTREES: Final = "worktrees"
MACHINE: Final = "machine"
TRIES: Final = "tries"

T = TypeVar("T")


class TreeChanged(AbreastError):
    """The working tree is no longer the one that the recorded results are about."""

    retryable = False


class Laboratory(Protocol):
    """What judges a text: each of these works in the slots it is given, and nowhere else."""

    async def begin(self, slot: Slot) -> object:
        """See what the original does, before any candidate.

        What it returns is recorded, and handed to `ready`.

        Raises an `AbreastError` if there is nothing to go by: no test passes, or no call is like
        the other.
        """

    def ready(self, seen: object, slot: Slot) -> None:
        """Go on from what `begin` returned, in this process or an earlier one.

        The slot has the original.
        """

    async def check(self, slot: Slot, text: str) -> Checked:
        """Whether a text behaves like the original."""

    async def time(self, original: Slot, candidate: Slot, text: str, seed: int) -> Timed:
        """How much faster a text is, measured alone."""

    async def profile(self, slot: Slot) -> list[ProfiledLine]:
        """How often each line of what is staged in the slot is run, and for how long."""


class Author(Protocol):
    """Who writes further candidates. Each call is one request; an empty text is no candidate.

    Each may be an `async def` or a plain function, which then runs in a thread of its own.
    """

    def repair(self, text: str, checked: Checked) -> Awaitable[str] | str:
        """One that behaves, from one that doesn't and the differences that were seen."""

    def refine(self, faster: Sequence[Tried]) -> Awaitable[Sequence[str]] | Sequence[str]:
        """For each of those that are faster, a better one: one request for all of them."""

    def adapt(self, ancestry: Sequence[Tried]) -> Awaitable[str] | str:
        """One more, from a candidate and all that it came from, the oldest first."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How candidates are tried: at most `width` at once.

    Of `repairs`, each candidate has so many at most.
    """

    width: int = 1
    repairs: int = 2
    most_repairs: int = 12
    """Candidates beyond that number are not repaired: it bounds the requests of a run."""
    share: float = 0.5
    """A candidate of which a larger share of calls differs is not worth a repair."""
    refine: bool = True


@dataclass(frozen=True, slots=True)
class CandidatesContext:
    """What is tried where: the target, its file's text, the directory of the project, and who judges and writes."""

    target: Target
    original: str
    root: Path
    laboratory: Laboratory
    author: Author | None = None
    how: EvaluationOptions = EvaluationOptions()


class Trials:
    """One driving of a run's candidates.

    `tried` has what is known so far, in the order of the result.
    """

    def __init__(
        self, setting: CandidatesContext, told: Callable[[str], None] = lambda _: None
    ) -> None:
        """Nothing starts before `run`; `told` hears what a person should know."""
        self._setting = setting
        self._told = told
        self._roll = Registry(setting.target, setting.original)
        self._original: Slot | None = None
        self._repairable: frozenset[str] = frozenset()
        self._first: tuple[str, ...] = ()
        self.profile: tuple[ProfiledLine, ...] = ()
        """Of the winner, if it could be had."""

    @property
    def tried(self) -> list[Tried]:
        """What is known so far, in the order of the proposals, repairs right after what they repair."""
        return list(self._roll.tried.values())

    async def run(
        self, run: Run, propose: Callable[[], Awaitable[Sequence[Proposal]]]
    ) -> list[Tried]:
        """Try all that is proposed. No worktree is made if nothing of it is new."""

        async def sources() -> list[Proposal]:
            return list(await propose())

        new = self._roll.enter(await run.step("sources", sources))
        if new:
            async with self._opened(run, len(new)) as tries:
                await self._try_all(tries, new)
                await self._profile(tries)
        verdicts = [one.verdict for one in self.tried if one.verdict != "duplicate"]
        errors = verdicts.count("error")
        run.count_results("candidate", done=len(verdicts) - errors, failed=errors)
        return self.tried

    @asynccontextmanager
    async def _opened(self, run: Run, count: int) -> AsyncIterator[Run]:
        """The slots, with one more for the original, and the lanes that lend them."""
        setting = self._setting
        width = setting.how.width if setting.author else min(setting.how.width, count)
        async with open_worktrees(setting.root, width + 1, ignored=True) as trees:
            for failure in trees.failures:
                self._told(f"worktree {failure.index} could not be made: {failure.reason}")
            for note in trees.notes:
                self._told(note)
            pool, self._original = trees.slots[:-1], trees.slots[-1]
            if not pool:
                raise WorktreesUnavailable(
                    "only one worktree could be made, and two are needed to compare"
                )
            async with run.child(
                TRIES, lanes={WORKTREES: Pool(pool), MACHINE: Slots(len(pool))}
            ) as tries:
                await self._same_tree(tries, trees)
                seen = await tries.step("original", self._begin, hold={MACHINE: "all"})
                setting.laboratory.ready(seen, self._original)
                yield tries

    async def _same_tree(self, tries: Run, trees: Worktrees) -> None:
        digest, ignored = await trees.digest(), await trees.ignored_digest()

        async def tree() -> str:
            return f"{digest} {ignored}".strip()

        # Recorded before ignored files were in the slots, it says nothing of them.
        before, _, ignored_before = (await tries.step("tree", tree)).partition(" ")
        if before != digest or (ignored_before and ignored_before != ignored):
            raise TreeChanged(
                f"{self._setting.root} has changed since this run began: start a new one"
            )

    async def _begin(self) -> object:
        if self._original is None:
            raise RuntimeError("there is no slot for the original")
        return await self._setting.laboratory.begin(self._original)

    # --- rounds -------------------------------------------------------------------------------------------------------

    async def _try_all(self, tries: Run, new: list[Tried]) -> None:
        """First candidates with their repairs; then refined ones.

        Then one more from each that came of a refinement.
        """
        await self._round(tries, "", new)
        author, roll = self._setting.author, self._roll
        if author is None or not self._setting.how.refine:
            return
        if faster := roll.faster:
            texts = await tries.step("refine", _asked(author.refine, faster))
            refined = [
                child_of(one, text, "refinement")
                for one, text in zip(faster, texts, strict=False)
                if text.strip()
            ]
            await self._round(tries, "-refined", roll.enter(refined))
        adapted: list[Proposal] = []
        for one in roll.faster:
            if one.origin == "refinement":
                text = await tries.step(
                    f"adapt-{one.name}", _asked(author.adapt, roll.ancestry(one))
                )
                adapted += [child_of(one, text, "adaptive")] if text.strip() else []
        await self._round(tries, "-adapted", roll.enter(adapted))

    async def _round(self, tries: Run, name: str, new: list[Tried]) -> None:
        if new:
            await self._check(tries, f"candidate{name}", new)
            await self._measure(tries, f"measure{name}")
            self._roll.copy_to_duplicates()

    # --- behaviour ----------------------------------------------------------------------------------------------------

    async def _check(self, tries: Run, name: str, new: list[Tried]) -> None:
        """Check candidates side by side, each with its repairs, and note what came out, in their order."""
        # Those of this round, in their order: what comes later does not decide who may be repaired.
        self._repairable = frozenset(one.name for one in new[: self._setting.how.most_repairs])
        self._first = tuple(one.text for one in self.tried if one.text)
        texts = {one.name: self._roll.text_of(one.name) for one in new}

        async def line_of(item: Mapping[str, str]) -> list[Link]:
            return await self._line_of(item["name"], item["text"])

        items = [{"name": name, "text": text} for name, text in texts.items()]
        mapped = tries.map(
            line_of, items, width=len(items), name=name, key=lambda item: item["name"]
        )
        async with mapped:
            async for outcome in mapped:
                links = outcome.value if isinstance(outcome, Done) else [Link("", _broken(outcome))]
                self._roll.settle(outcome.key, links)

    async def _line_of(self, name: str, text: str) -> list[Link]:
        """A candidate and its repairs, until one behaves, or none can be had."""
        setting, scope = self._setting, _item().run
        links = [Link(text, await self._checked(scope, "behaviour", text))]
        if setting.author is None or name not in self._repairable:
            return links
        own = Register(setting.original)
        for number, one in enumerate(self._first):
            own.enter(str(number), one)
        for number in range(1, setting.how.repairs + 1):
            checked = links[-1].checked
            if checked.verdict != "wrong" or not checked.diffs or checked.share > setting.how.share:
                break
            # Begun at once: other candidates may still be on their way.
            reply = await scope.step(
                f"repair-{number}", _asked(setting.author.repair, links[-1].text, checked)
            )
            try:
                text = candidate_text(setting.original, setting.target, reply)
            except CandidateInvalid as error:
                return [*links, Link(reply, Checked("error", str(error)))]
            if own.enter(f"repair {number}", text).kind != "new":
                return [
                    *links,
                    Link(text, Checked("error", "the repair is a candidate that was there before")),
                ]
            links.append(Link(text, await self._checked(scope, f"behaviour-{number}", text)))
        return links

    async def _checked(self, scope: Run, name: str, text: str) -> Checked:
        """The behaviour check, in a slot that is held for nothing else."""
        try:
            found: Checked = await scope.step(
                name, self._check_one, text, hold=(WORKTREES, MACHINE)
            )
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - one failure never loses another
            return Checked("error", _words(error))
        return found

    async def _check_one(self, text: str) -> Checked:
        return await self._setting.laboratory.check(await self._staged(text), text)

    async def _staged(self, text: str) -> Slot:
        """The slot that is held, as the main tree is, with this text in it."""
        slot = _item().held[WORKTREES]
        if not isinstance(slot, Slot):
            raise TypeError(f"a candidate is tried in a worktree, not in {slot!r}")
        await slot.reset()
        await slot.stage(self._setting.target.file, text)
        return slot

    # --- speed --------------------------------------------------------------------------------------------------------

    async def _measure(self, tries: Run, name: str) -> None:
        """Measure what passed and was not measured yet, one at a time, with the machine to itself."""
        items = [{"name": one.name, "text": one.text} for one in self._roll.passed]
        mapped = tries.map(
            self._time_one,
            items,
            width=1,
            name=name,
            key=lambda item: item["name"],
            hold={WORKTREES: 1, MACHINE: "all"},
        )
        async with mapped:
            async for outcome in mapped:
                timed = (
                    outcome.value
                    if isinstance(outcome, Done)
                    else Timed("error", _broken(outcome).reason)
                )
                self._roll.time(outcome.key, timed)

    async def _time_one(self, item: Mapping[str, str]) -> Timed:
        original = self._original
        if original is None:
            raise RuntimeError("a candidate is measured beside the original")
        candidate = await self._staged(item["text"])
        await original.reset()
        timed = await self._setting.laboratory.time(original, candidate, item["text"], _item().seed)
        self._roll.time(
            item["name"], timed
        )  # at once: whoever interrupts it now has the best so far
        return timed

    # --- the winner ---------------------------------------------------------------------------------------------------

    async def _profile(self, tries: Run) -> None:
        """The line profile of the winner, and of nobody else.

        That it fails is no reason to lose the winner.
        """
        winner = best_of(self.tried)
        if winner is None:
            return
        try:
            found = await tries.step(
                "profile", self._profile_one, winner.text, hold={WORKTREES: 1, MACHINE: "all"}
            )
            self.profile = tuple(found)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._told(f"there is no line profile of {winner.name}: {_words(error)}")

    async def _profile_one(self, text: str) -> list[ProfiledLine]:
        return await self._setting.laboratory.profile(await self._staged(text))


def _item() -> CurrentItem:
    found = current_item()
    if found is None:
        raise RuntimeError("a candidate is an item of a map")
    return found


def _broken(outcome: Failed | Cancelled) -> Checked:
    return Checked(
        "error", _words(outcome.error) if isinstance(outcome, Failed) else outcome.reason
    )


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _asked(ask: Callable[..., Awaitable[T] | T], *given: object) -> Callable[[], Awaitable[T]]:
    """A request as a step without arguments: what it is asked follows from what is recorded."""

    async def request() -> T:
        answer = ask(*given) if is_async(ask) else await _in_thread(ask, *given)
        return await answer if isinstance(answer, Awaitable) else answer

    return request


async def _in_thread(ask: Callable[..., T], *given: object) -> T:
    """Call a plain function in a daemon thread: cancelled, it is no longer waited for."""

    def call(given: tuple[object, ...]) -> T:
        return ask(*given)

    bound: BoundCall[tuple[object, ...], T] = LocalExecutor().bind(call, 1)
    try:
        return await bound.async_call(given)
    finally:
        await bound.close(0.0)
