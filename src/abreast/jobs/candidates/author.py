"""Authors of candidates: a model that proposes, repairs, refines and adapts, or functions.

Each candidate is one request. Any reply is accepted as text; the evaluator decides on it.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Protocol, TypeVar

from abreast.core.outcome import Done
from abreast.executors.port import BoundCall
from abreast.executors.tasks import LocalExecutor, is_async
from abreast.jobs.candidates.results import Checked, Diff, Proposal, Tried, change_patch
from abreast.jobs.candidates.source.changes import CandidateSource, FileChange, as_source
from abreast.jobs.candidates.source.target import Target
from abreast.models.port import Reply
from abreast.run.run import Run

_DIFFS_IN_REQUEST: Final = 10
_DIFF_CHARACTERS: Final = 2_000  # of each difference in a request
_FENCE: Final = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_PROFILED_LINES: Final = 8  # of a line profile in a request: those that take longest
_RULES: Final = (
    "Keep the name, the signature and the behaviour exactly: "
    "results, exceptions, changes of arguments, output. "
    "Do not cache results between calls. "
    "Use only the standard library and what the file imports already. "
)
_ANSWER: Final = (
    "Answer with the whole function in one Python code block, "
    "with imports it newly needs before it."
)


T = TypeVar("T")


class AskableModel(Protocol):
    """A model together with its lane."""

    async def ask(self, prompt: str, *, system: str | None = None) -> Reply:
        """Send one prompt and return the reply."""


@dataclass(frozen=True, slots=True)
class PromptAuthor:
    """Asks for candidates. What comes is evaluated like a candidate from any other source.

    `original` is the text of the target's file.
    """

    _target: Target
    _original: str

    @property
    def _rules(self) -> str:
        """What a candidate must keep, and how it is handed in."""
        return f"{_RULES}{_ANSWER}"

    async def _ask_for_code(self, prompt: str) -> str | CandidateSource:
        raise NotImplementedError

    async def propose(self, run: Run, count: int, width: int) -> list[Proposal]:
        """Request `count` candidates side by side.

        A request that fails becomes a proposal with the fault `error`.
        """

        async def draft(number: int) -> str | CandidateSource:
            return await self._ask_for_code(
                f"Make `{self._target.qualname}` in this Python file as fast as you can, "
                f"with approach {number} of {count}: prefer one that the others would not take.\n\n"
                f"{_code_block(self._original)}\n\n{self._rules}"
            )

        return await proposals_of(run, draft, count, width, "model")

    async def repair(self, text: str, checked: Checked) -> str | CandidateSource:
        """Ask for a correct version of a wrong candidate, given the differences that were found."""
        return await self._ask_for_code(
            f"This candidate for a faster `{self._target.qualname}` does not do "
            "what the original does.\n\n"
            f"The original:\n{_code_block(self._original)}\n\nThe candidate, as a patch:\n"
            f"{self._patch(text)}\n\n"
            f"What differs:\n{_list_diffs(checked.diffs)}\n\n"
            f"Repair it, and keep it fast. {self._rules}"
        )

    def _patch(self, text: str, files: Sequence[FileChange] = ()) -> str:
        return _code_block(change_patch(self._original, text, self._target.file, files))

    def _so_far(self, faster: Sequence[Tried]) -> str:
        """The best candidates so far, each with its speed, and the line profile of the best."""
        parts = [
            f"Candidate {number} ({_speed(one)}):\n{self._patch(one.text, one.files)}"
            f"{_profile_text(one)}"
            for number, one in enumerate(faster, 1)
        ]
        return (
            f"These candidates for a faster `{self._target.qualname}` behave like the original, "
            "and are faster.\n\n"
            f"The original:\n{_code_block(self._original)}\n\n" + "\n\n".join(parts)
        )

    async def adapt(self, ancestry: Sequence[Tried]) -> str | CandidateSource:
        """Ask for one more candidate, given one candidate and its ancestors, oldest first."""
        parts = [
            f"{number}. {one.name}, {one.verdict} ({_speed(one)}):\n"
            f"{self._patch(one.text, one.files)}"
            for number, one in enumerate(ancestry, 1)
        ]
        return await self._ask_for_code(
            f"This is how a faster `{self._target.qualname}` came about, step by step.\n\n"
            f"The original:\n{_code_block(self._original)}\n\n"
            + "\n\n".join(parts)
            + "\n\nTake one further step that "
            f"follows from what helped and what did not. {self._rules}"
        )


@dataclass(frozen=True, slots=True)
class ModelAuthor(PromptAuthor):
    """Asks a model: each candidate is one request, and stands in a code block of its reply."""

    _model: AskableModel

    async def refine(self, faster: Sequence[Tried]) -> Sequence[str]:
        """Ask for a better version of each candidate: one request, one code block for each."""
        reply = await self._ask(
            self._so_far(faster) + f"\n\nRefine each: faster still, smaller, or easier to read. "
            f"Answer with {len(faster)} Python code blocks in their order. {self._rules}"
        )
        return blocks_of(reply)[: len(faster)]

    async def _ask_for_code(self, prompt: str) -> str:
        return "\n".join(blocks_of(await self._ask(prompt))[:1])

    async def _ask(self, prompt: str) -> str:
        system = (
            "You make Python functions faster. "
            "What you write is tested and measured; nothing else is read."
        )
        return (await self._model.ask(prompt, system=system)).text


async def propose_calls(model: AskableModel, target: Target, original: str) -> str:
    """Ask a model for calls of the target; return its reply's code, one expression to a line."""
    reply = await model.ask(
        f"Write 40 different calls of `{target.qualname}` in this Python file, as its callers "
        "would make them: ordinary arguments, empty ones, limits and special cases, and three "
        "with arguments so large that the call takes as long as it ever will.\n\n"
        f"{_code_block(original)}\n\n"
        "Answer with one Python code block: each line is an expression that makes one call, with "
        "literals, built-ins and names of that file alone. Do not import it.",
        system="You write inputs that show what a Python function does.",
    )
    return "\n".join(blocks_of(reply.text)[:1])


class EditingAgent(Protocol):
    """A coding agent that works in a tree of its own for each request."""

    async def edit(self, prompt: str, file: str) -> CandidateSource:
        """Let it work on a prompt; return the text of a file afterwards, empty if unchanged.

        And the other files that it has changed, as far as a candidate may change them.
        """


@dataclass(frozen=True, slots=True)
class AgentAuthor(PromptAuthor):
    """Lets a coding agent write candidates: it edits files in a tree of its own.

    So it may read the project and run its tests. It refines by one more candidate in all.
    """

    _agent: EditingAgent

    @property
    def _rules(self) -> str:
        return (
            f"{_RULES}Edit the function in the file {self._target.file} of this directory. "
            "You may change or add other modules that it uses, but no tests and no configuration, "
            "which stay as they are. Leave nothing else behind. What you say is not read."
        )

    async def refine(self, faster: Sequence[Tried]) -> Sequence[str | CandidateSource]:
        """Ask for one that is faster than all so far; it counts as a refinement of the best."""
        best = max(faster, key=lambda one: one.speedup or 0.0)
        text = await self._ask_for_code(
            f"{self._so_far(faster)}\n\nWrite one that is faster than all of them. {self._rules}"
        )
        return ["" if one is not best else text for one in faster]

    async def _ask_for_code(self, prompt: str) -> CandidateSource:
        return await self._agent.edit(prompt, self._target.file)


@dataclass(frozen=True, slots=True)
class ProposalTask:
    """What a function that writes a candidate gets."""

    target: str
    """The function, as `pkg/mod.py::name`; the file is relative to the repository."""
    file: Path
    """The file of the function."""
    source: str
    """The text of that file."""
    number: int
    """Which of the candidates it writes, from 1 on."""
    count: int
    """How many are wanted."""


@dataclass(frozen=True, slots=True)
class FunctionAuthor:
    """Functions as the author: those that are None write no candidate."""

    repair_with: Callable[[str, Checked], Awaitable[str] | str] | None = None
    refine_with: Callable[[Sequence[Tried]], Awaitable[Sequence[str]] | Sequence[str]] | None = None
    adapt_with: Callable[[Sequence[Tried]], Awaitable[str] | str] | None = None

    async def repair(self, text: str, checked: Checked) -> str:
        """Return a correct version of a wrong candidate."""
        return "" if self.repair_with is None else await answer(self.repair_with, text, checked)

    async def refine(self, faster: Sequence[Tried]) -> Sequence[str]:
        """Return a better version of each of the faster candidates."""
        return [] if self.refine_with is None else await answer(self.refine_with, faster)

    async def adapt(self, ancestry: Sequence[Tried]) -> str:
        """Return one more candidate, given one candidate and its ancestors."""
        return "" if self.adapt_with is None else await answer(self.adapt_with, ancestry)


async def answer(ask: Callable[..., Awaitable[T] | T], *given: object) -> T:
    """Call a function, plain or `async`; a plain one runs in a thread of its own."""
    found = ask(*given) if is_async(ask) else await _in_thread(ask, *given)
    return await found if isinstance(found, Awaitable) else found


def request_step(
    ask: Callable[..., Awaitable[T] | T], *given: object
) -> Callable[[], Awaitable[T]]:
    """Return a request as a step without arguments: they all follow from recorded results."""

    async def request() -> T:
        return await answer(ask, *given)

    return request


async def _in_thread(ask: Callable[..., T], *given: object) -> T:
    """Call a plain function in a daemon thread, which is no longer awaited once cancelled."""
    bound: BoundCall[tuple[object, ...], T] = LocalExecutor().bind(lambda given: ask(*given), 1)
    try:
        return await bound.async_call(given)
    finally:
        await bound.close(0.0)


_MAPS: Final = {
    "model": ("propose", "draft"),
    "command": ("command", "command"),
    "function": ("propose", "draft"),
}


async def proposals_of(
    run: Run,
    make: Callable[[int], Awaitable[str | CandidateSource]],
    count: int,
    width: int,
    origin: Literal["model", "command", "function"],
) -> list[Proposal]:
    """Make `count` candidates side by side; one that fails has the fault `error`."""
    name, prefix = _MAPS[origin]
    found: list[Proposal] = []
    async with run.map(make, range(1, count + 1), width=width, name=name) as made:
        async for outcome in made:
            proposal = Proposal(f"{prefix}-{int(outcome.key) + 1}", "", origin)
            if isinstance(outcome, Done):
                source = as_source(outcome.value)
                whole = bool(source.files)
                found.append(replace(proposal, text=source.text, files=source.files, whole=whole))
            else:
                error = getattr(outcome, "error", "")
                if origin == "model":
                    reason = f"the model gave none: {error}"
                elif origin == "function" and error:
                    reason = f"the author raised {type(error).__name__}: {error}"
                else:
                    reason = str(error or "it was stopped")
                found.append(replace(proposal, fault="error", reason=reason))
    return found


def blocks_of(text: str) -> list[str]:
    """Return the code blocks of a reply, or the whole reply if it has none."""
    return [str(block) for block in _FENCE.findall(text)] or ([text] if text.strip() else [])


def _code_block(text: str) -> str:
    return f"```python\n{text.rstrip()}\n```"


def _list_diffs(diffs: Sequence[Diff]) -> str:
    shown = [f"- {str(one)[:_DIFF_CHARACTERS]}" for one in diffs[:_DIFFS_IN_REQUEST]]
    if len(diffs) > _DIFFS_IN_REQUEST:
        shown.append(f"- and {len(diffs) - _DIFFS_IN_REQUEST} more")
    return "\n".join(shown)


def _profile_text(one: Tried) -> str:
    """The lines that take longest, in the order of the file; empty without a profile."""
    total = sum(line.seconds for line in one.profile)
    if not total:
        return ""
    texts = one.text.splitlines()
    longest = sorted(one.profile, key=lambda line: -line.seconds)[:_PROFILED_LINES]
    shown = [
        f"{line.seconds / total:4.0%} {line.hits:>9} times  {texts[line.number - 1].strip()}"
        for line in sorted(longest, key=lambda line: line.number)
        if line.number <= len(texts)
    ]
    return "\nWhere its time goes:\n" + "\n".join(shown)


def _speed(one: Tried) -> str:
    ratio = one.timed.ratio if one.timed else None
    return "not measured" if ratio is None else f"{ratio:.2f} times as fast"
