"""The candidates job: checks behaviour side by side, measures speed one at a time, then refines.

    sources -> new ones -> behaviour (several at once, a slot each) -> passed -> measuring (alone)
                             `-> wrong: repair at once, then behaviour again

A candidate is an item of one map. Its behaviour check is a step beneath it and the only holder of a
slot, so a slot is free as soon as a check ends, with any verdict, and while a model works on a
repair. Measuring is a map of its own that starts after all checks have ended and holds the whole
machine. Every step is a journal entry, so a killed run resumes where it was.

Duplicates are found by name order, not by time: first candidates are compared in the order in which
they were proposed. Repairs arrive at any time, so each is compared with the first candidates and
with its own ancestors, and with other repairs only when all of them are there.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from abreast.core.errors import AbreastError, RecordedError, Stopped
from abreast.core.outcome import Cancelled, Done, Failed, Outcome
from abreast.jobs.candidates.author import request_step
from abreast.jobs.candidates.registry import (
    Link,
    Registry,
    child_of,
    has_text,
    is_whole,
    next_source,
)
from abreast.jobs.candidates.results import Checked, ProfiledLine, Proposal, Timed, Tried, best_of
from abreast.jobs.candidates.source.changes import CandidateSource, FileChange, stage_source
from abreast.jobs.candidates.source.normal_form import DuplicateFinder
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

Written: TypeAlias = str | CandidateSource


class TreeChanged(AbreastError):
    """The working tree is no longer the one that the recorded results are about."""

    retryable = False


class CandidateEvaluator(Protocol):
    """Evaluates candidates. Every method works only in the slots that are passed to it."""

    def open(self, slot: Slot) -> AbstractAsyncContextManager[None]:
        """Within this context the other methods are called; `slot` holds the original."""

    async def begin(self, slot: Slot) -> object:
        """Trace the original, before any candidate.

        The return value is recorded and passed to `ready`. Raises an `AbreastError` if candidates
        could not be compared with it: no test passes, or no call gives the same result twice.
        """

    def ready(self, seen: object, slot: Slot) -> None:
        """Take over what `begin` returned, in this process or an earlier one.

        `slot` holds the original.
        """

    async def check(self, slot: Slot, text: str, files: Sequence[FileChange] = ()) -> Checked:
        """Check whether a text behaves like the original; `files` are others that it changes."""

    async def time(self, original: Slot, candidate: Slot, text: str, seed: int) -> Timed:
        """Measure how much faster a text is, while nothing else runs."""

    async def profile(self, slot: Slot) -> list[ProfiledLine]:
        """Return how often each line of the code staged in the slot runs, and for how long."""


class Author(Protocol):
    """Writes further candidates. Each call is one request; an empty text is no candidate.

    Each method may be an `async def`, or a plain function, which then runs in a thread of its own.
    Text alone changes the target's file; the other files stay as the candidate before had them.
    """

    def repair(self, text: str, checked: Checked) -> Awaitable[Written] | Written:
        """Return a correct version of a wrong candidate, given the differences found."""

    def refine(self, faster: Sequence[Tried]) -> Awaitable[Sequence[Written]] | Sequence[Written]:
        """Return a better version of each of the faster candidates, by one request for all."""

    def adapt(self, ancestry: Sequence[Tried]) -> Awaitable[Written] | Written:
        """Return one more candidate, given one candidate and its ancestors, oldest first."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How candidates are evaluated: at most `width` at once, with at most `repairs` of each.

    Attributes:
        most_repairs: How many candidates of a round may be repaired; this bounds the requests of a
            run.
        share: A candidate is not repaired if a larger share of its calls differs.
        executor: Where candidates are checked; they are timed here.
        timing: Whether candidates that behave like the original are measured.
    """

    width: int = 1
    repairs: int = 2
    most_repairs: int = 12
    share: float = 0.5
    refine: bool = True
    executor: str = "local"
    timing: bool = True


@dataclass(frozen=True, slots=True)
class CandidatesContext:
    """What is evaluated and how.

    The target, the text of its file, the directory of the project, the evaluator and the author.
    """

    target: Target
    original: str
    root: Path
    evaluator: CandidateEvaluator
    author: Author | None = None
    how: EvaluationOptions = EvaluationOptions()


class CandidateRun:
    """Evaluates the candidates of one run, once.

    `tried` has what is known so far, in the order of the result.
    """

    def __init__(
        self, context: CandidatesContext, notify: Callable[[str], None] = lambda _: None
    ) -> None:
        """Nothing starts before `run`; `notify` is called with messages for the user."""
        self._context, self._notify = context, notify
        self._registry = Registry(context.target, context.original, timing=context.how.timing)
        self._original: Slot | None = None
        self._repairable: frozenset[str] = frozenset()
        self._earlier: tuple[CandidateSource, ...] = ()
        # The line profile of the winner; empty if it could not be made.
        self.profile: tuple[ProfiledLine, ...] = ()
        self._profiles: dict[str, tuple[ProfiledLine, ...]] = {}
        # Candidates whose check or measurement has failed: not by themselves, but by the machine.
        self.failed: set[str] = set()

    @property
    def tried(self) -> list[Tried]:
        """The candidates so far, in the order of the proposals, each followed by its repairs."""
        return list(self._registry.tried.values())

    async def run(
        self, run: Run, propose: Callable[[], Awaitable[Sequence[Proposal]]]
    ) -> list[Tried]:
        """Evaluate all proposals. No worktree is made if none of them is new."""

        async def sources() -> list[Proposal]:
            return list(await propose())

        new = self._registry.enter(await run.step("sources", sources))
        if new:
            async with self._open_slots(run, len(new)) as tries:
                await self._try_all(tries, new)
                await self._profile(tries)
        verdicts = [one.verdict for one in self.tried if one.verdict != "duplicate"]
        errors = verdicts.count("error")
        run.count_results("candidate", done=len(verdicts) - errors, failed=errors)
        return self.tried

    @asynccontextmanager
    async def _open_slots(self, run: Run, count: int) -> AsyncIterator[Run]:
        context = self._context
        width = context.how.width if context.author else min(context.how.width, count)
        async with open_worktrees(
            context.root, width + 1, ignored=True, executor=context.how.executor
        ) as trees:
            for failure in trees.failures:
                self._notify(f"worktree {failure.index} could not be made: {failure.reason}")
            for note in trees.notes:
                self._notify(note)
            *pool, original = trees.slots
            if not pool:
                raise WorktreesUnavailable(
                    "only one worktree could be made, and two are needed to compare"
                )

            async def begin() -> object:
                return await context.evaluator.begin(original)

            async with (
                context.evaluator.open(original),
                run.child(TRIES, lanes={WORKTREES: Pool(pool), MACHINE: Slots(len(pool))}) as tries,
            ):
                await self._check_tree_unchanged(tries, trees)
                seen = await tries.step("original", begin, hold={MACHINE: "all"})
                context.evaluator.ready(seen, original)
                self._original = original
                yield tries

    async def _check_tree_unchanged(self, tries: Run, trees: Worktrees) -> None:
        digest, ignored = await trees.digest(), await trees.ignored_digest()

        async def tree() -> str:
            return f"{digest} {ignored}".strip()

        # A digest recorded before slots had ignored files does not cover them.
        before, _, ignored_before = (await tries.step("tree", tree)).partition(" ")
        if before != digest or (ignored_before and ignored_before != ignored):
            raise TreeChanged(
                f"{self._context.root} has changed since this run began: start a new one"
            )

    # --- rounds

    async def _try_all(self, tries: Run, new: list[Tried]) -> None:
        """Evaluate the first candidates with their repairs, then refined ones, then adapted ones.

        An adapted candidate is one more step from a refined one that is faster.
        """
        await self._round(tries, "", new)
        author, registry = self._context.author, self._registry
        if author is None or not self._context.how.refine:
            return
        if faster := await self._with_profile(tries, registry.faster):
            texts: Sequence[Written] = await tries.step(
                "refine", request_step(author.refine, faster)
            )
            refined = [
                child_of(one, text, "refinement")
                for one, text in zip(faster, texts, strict=False)
                if has_text(text)
            ]
            await self._round(tries, "-refined", registry.enter(refined))
        adapted: list[Proposal] = []
        for one in registry.faster:
            if one.origin == "refinement":
                text: Written = await tries.step(
                    f"adapt-{one.name}", request_step(author.adapt, registry.ancestry(one))
                )
                adapted += [child_of(one, text, "adaptive")] if has_text(text) else []
        await self._round(tries, "-adapted", registry.enter(adapted))

    async def _round(self, tries: Run, name: str, new: list[Tried]) -> None:
        if new:
            await self._check(tries, f"candidate{name}", new)
            if self._context.how.timing:
                await self._measure(tries, f"measure{name}")
            self._registry.copy_to_duplicates()

    # --- behaviour

    async def _check(self, tries: Run, name: str, new: list[Tried]) -> None:
        # By the order in this round, so that timing does not decide which may be repaired.
        self._repairable = frozenset(one.name for one in new[: self._context.how.most_repairs])
        self._earlier = tuple(
            CandidateSource(one.text, one.files) for one in self.tried if one.text
        )

        async def line_of(item: Mapping[str, Any]) -> list[Link]:
            return await self._check_with_repairs(item["name"], _source_in(item))

        names = dict.fromkeys(one.name for one in new)
        items = [_item(name, self._registry.source_of(name)) for name in names]
        mapped = tries.map(
            line_of, items, width=len(items), name=name, key=lambda item: item["name"]
        )
        async with mapped:
            async for outcome in mapped:
                self._note_failure(outcome)
                links = (
                    outcome.value
                    if isinstance(outcome, Done)
                    else [Link("", _failed_check(outcome))]
                )
                self._registry.settle(outcome.key, links)

    def _note_failure(self, outcome: Outcome[Any]) -> None:
        if isinstance(outcome, Failed):
            self.failed.add(outcome.key)

    async def _check_with_repairs(self, name: str, source: CandidateSource) -> list[Link]:
        """Check a candidate and its repairs.

        Raises what the first check raises, such as OSError: the item has failed then, and can be
        tried again. Later failures keep what was found before.
        """
        context, scope = self._context, _require_item().run
        links = [_link(source, await self._check_step(scope, "behaviour", source))]
        if context.author is None or name not in self._repairable:
            return links
        own = DuplicateFinder(context.original)
        for number, one in enumerate(self._earlier):
            own.enter(str(number), one.text, one.files)
        for number in range(1, context.how.repairs + 1):
            checked = links[-1].checked
            if checked.verdict != "wrong" or not checked.diffs or checked.share > context.how.share:
                break
            # Requested at once: the checks of other candidates may still be running.
            reply = await scope.step(
                f"repair-{number}", request_step(context.author.repair, links[-1].text, checked)
            )
            source = next_source(reply, links[-1].files)
            try:
                text = candidate_text(
                    context.original, context.target, source.text, whole=is_whole(reply)
                )
            except CandidateInvalid as error:
                return [*links, _link(source, Checked("error", str(error)))]
            source = replace(source, text=text)
            if own.enter(f"repair {number}", text, source.files).kind != "new":
                why = "the repair is a candidate that was there before"
                return [*links, _link(source, Checked("error", why))]
            checked = await self._check_repair(scope, f"behaviour-{number}", source)
            links.append(_link(source, checked))
        return links

    async def _check_repair(self, scope: Run, name: str, source: CandidateSource) -> Checked:
        try:
            return await self._check_step(scope, name, source)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - one failure never loses another
            return Checked("error", _describe_error(error))

    async def _check_step(self, scope: Run, name: str, source: CandidateSource) -> Checked:
        # Text alone is recorded as it was before candidates could change several files.
        given = source if source.files else source.text
        found: Checked = await scope.step(name, self._check_one, given, hold=(WORKTREES, MACHINE))
        return found

    async def _check_one(self, given: Written) -> Checked:
        source = next_source(given, ())
        slot = await self._stage(source)
        return await self._context.evaluator.check(slot, source.text, source.files)

    async def _stage(self, source: CandidateSource) -> Slot:
        slot = _require_item().held[WORKTREES]
        if not isinstance(slot, Slot):
            raise TypeError(f"a candidate is tried in a worktree, not in {slot!r}")
        await slot.reset()
        await stage_source(slot, self._context.target, source)
        return slot

    # --- speed

    async def _measure(self, tries: Run, name: str) -> None:
        passed = self._registry.passed
        items = [_item(one.name, CandidateSource(one.text, one.files)) for one in passed]
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
                self._note_failure(outcome)
                timed = (
                    outcome.value
                    if isinstance(outcome, Done)
                    else Timed("error", _failed_check(outcome).reason)
                )
                self._registry.time(outcome.key, timed)

    async def _time_one(self, item: Mapping[str, Any]) -> Timed:
        if (original := self._original) is None:
            raise RuntimeError("a candidate is measured beside the original")
        candidate = await self._stage(_source_in(item))
        await original.reset()
        timed = await self._context.evaluator.time(
            original, candidate, item["text"], _require_item().seed
        )
        # At once, so that a run that is interrupted now still reports the best so far.
        self._registry.time(item["name"], timed)
        return timed

    # --- the winner

    async def _profile(self, tries: Run) -> None:
        """Make the line profile of the winner; if that fails, report the winner without one."""
        if (winner := best_of(self.tried)) is not None:
            self.profile = await self._profile_of(tries, winner)

    async def _with_profile(self, tries: Run, faster: list[Tried]) -> list[Tried]:
        """The candidates, the best of them with its line profile, for the author to see."""
        best = best_of(faster)
        if best is None:
            return faster
        lines = await self._profile_of(tries, best)
        return [replace(one, profile=lines) if one is best else one for one in faster]

    async def _profile_of(self, tries: Run, one: Tried) -> tuple[ProfiledLine, ...]:
        if one.name not in self._profiles:
            self._profiles[one.name] = ()
            try:
                found = await tries.step(
                    f"profile-{one.name}",
                    self._profile_one,
                    CandidateSource(one.text, one.files) if one.files else one.text,
                    hold={WORKTREES: 1, MACHINE: "all"},
                )
                self._profiles[one.name] = tuple(found)
            except Stopped:
                raise
            except Exception as error:  # noqa: BLE001 - no failure here may lose the winner
                self._notify(f"there is no line profile of {one.name}: {_describe_error(error)}")
        return self._profiles[one.name]

    async def _profile_one(self, given: Written) -> list[ProfiledLine]:
        return await self._context.evaluator.profile(await self._stage(next_source(given, ())))


def _item(name: str, source: CandidateSource) -> dict[str, Any]:
    """A candidate as an item; as before there were several files if it has only the target's."""
    return {"name": name, "text": source.text, **({"files": source.files} if source.files else {})}


def _source_in(item: Mapping[str, Any]) -> CandidateSource:
    return CandidateSource(item["text"], tuple(item.get("files", ())))


def _link(source: CandidateSource, checked: Checked) -> Link:
    return Link(source.text, checked, source.files)


def _require_item() -> CurrentItem:
    if (found := current_item()) is None:
        raise RuntimeError("a candidate is an item of a map")
    return found


def _failed_check(outcome: Failed | Cancelled) -> Checked:
    return Checked(
        "error", _describe_error(outcome.error) if isinstance(outcome, Failed) else outcome.reason
    )


def _describe_error(error: BaseException) -> str:
    """The same for an error and for its record."""
    if isinstance(error, RecordedError):
        return f"{error.kind.rpartition('.')[2]}: {error.message}"
    return f"{type(error).__name__}: {error}"
