"""`abreast.optimize`: candidates for a faster function, checked, measured and ranked."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from abreast.assembly.names import as_caller, open_model, open_run
from abreast.assembly.verbs.opened_store import find_unfinished, opened_store
from abreast.core.errors import BudgetSpent
from abreast.executors.names import check_executor
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.assembly.candidates_tools import CandidatesTools
    from abreast.assembly.trees.author_agent import AuthorAgent
    from abreast.jobs.candidates.author import ProposalTask
    from abreast.jobs.candidates.job import Author
    from abreast.jobs.candidates.report import CandidatesReport, OptimizeResult
    from abreast.jobs.candidates.results import Proposal
    from abreast.jobs.candidates.spec import CandidatesSpec
    from abreast.limits.budget import Budget
    from abreast.limits.lane import LaneLimits
    from abreast.models.port import Model
    from abreast.run.calls.model import Caller
    from abreast.run.run import Resume
    from abreast.store.port import RunRow, Store
    from abreast.worktrees.background import StopRequest

PathText: TypeAlias = str | PathLike[str]
WriteCandidate: TypeAlias = "Callable[[ProposalTask], Awaitable[str] | str]"
"""Writes one candidate: gets a `ProposalTask`, returns Python; plain or `async`."""

AuthorKind: TypeAlias = Literal["none", "name", "agent", "model", "methods", "function"]

_METHODS: Final = ("repair", "refine", "adapt")


async def optimize(
    function: Callable[..., Any] | str,
    *,
    tests: PathText | Sequence[PathText] = (),
    doctests: bool = False,
    workload: PathText | Sequence[PathText] = (),
    trace: str | None = None,
    hints: bool = False,
    calls_by: str | None = None,
    candidates: PathText | Sequence[PathText] | None = None,
    author: str | Model | Caller | Author | WriteCandidate | None = None,
    model: str | None = None,
    allow: str | Sequence[str] = (),
    proposals: int = 4,
    repairs: int = 2,
    refine: bool = True,
    width: int = 2,
    compare: Literal["strict", "loose"] = "strict",
    exceptions: Literal["type", "args", "message"] = "args",
    rel_tol: float | None = None,
    abs_tol: float | None = None,
    timing: bool = True,
    threshold: float = 0.02,
    blocks: int = 56,
    generated: int = 200,
    timeout: float | str = 60,
    python: PathText | None = None,
    executor: str | None = None,
    branch: str | None = None,
    store: PathText | Store | None = None,
    name: str = "optimize",
    resume: Resume = "auto",
    seed: int | None = None,
    budget: Budget | str | None = None,
    tags: Sequence[str] = (),
    notify: Callable[[str], None] | None = None,
) -> OptimizeResult:
    """Try candidates for a faster function; the result has the best, and a verdict for each.

        result = await abreast.optimize(words.top, tests="tests", candidates="drafts", width=4)
        result.best, result.rows(), result.report("report.html"), result.patch

    A candidate must do what the original does, in all that the tests call it with and in generated
    inputs, and must be faster by more than the noise of this machine. Each is tried in a worktree:
    no file of yours is touched, and no module of this process is replaced. It waits for a machine
    that nothing else measures on.

    Args:
        function: the function, or its place as `"file.py::name"` or `"file.py::Class.method"`.
        tests: what calls it: files, directories or node ids of pytest. At least one of this and
            the next five is needed.
        doctests: whether the doctests of its file are run.
        workload: Python scripts that call it.
        trace: a command of yours, such as `"python app.py"`; its calls are recorded once, without
            confinement, and made again for each candidate.
        hints: whether it is called with what Hypothesis makes of its type hints.
        calls_by: the name of a model that proposes calls; they are tried with the original first,
            and those that raise an error are left out.
        candidates: a directory of Python files, or a list of source texts and of paths to Python
            files, patches and directories. A text is the whole file anew or only the function; a
            text has a line break or the word `def` in it, anything else is a path.
        author: what writes candidates if none are given, and repairs and refines them: the name of
            a model, such as "openai/gpt-4o-mini"; a coding agent, which edits the file in a
            worktree: "claude", "codex" or one of `[agents.NAME]` in abreast.toml; an open model; or
            a function that gets a `ProposalTask` (`target`, `file`,
            `source`, `number`, `count`) and returns Python. An object with some of the methods
            `repair(text, checked)`, `refine(faster)`, `adapt(ancestry)` does only that. Functions
            and methods may be plain, which then run in a thread, or `async`.
        model: with an agent as the author, one of its own models.
        allow: with an agent as the author, what it may do: by default `"edit"`; `"run"` lets it run
            the tests.
        proposals: how many candidates the author writes.
        repairs: how often a wrong candidate may be repaired.
        refine: whether those that are faster are refined.
        width: how many are checked at once; measuring is one at a time.
        compare: whether dict order, -0.0, sharing, and causes of exceptions count.
        exceptions: how much of an exception counts.
        rel_tol: how far floats may be apart, as in `math.isclose`; by default not at all, or 1e-9
            for a function with the comment `# abreast: close`.
        abs_tol: the same, absolute; by default not at all, or 1e-12 with that comment.
        timing: whether candidates are measured; without it, those that behave like the original
            are the `same`, and none is the best.
        threshold: the share that a candidate must be faster by.
        blocks: measure at most so many blocks of six runs or more.
        generated: how many inputs are generated besides those of the tests.
        timeout: CPU time of a run of the tests: seconds, or a text such as "2min".
        python: the project's Python, with its pytest; by default this one.
        executor: where candidates are checked: `"local"`, or `"ray"`, the nodes of a cluster
            (`"ray:CPU=4"` for what each takes). They are measured here.
        branch: the name of a branch that is made of the best, as a commit on HEAD with the evidence
            in its message; nothing is checked out. If it can't be made in the end, `notify` is
            told why, and `result.branch` is None.
        store: where the run is recorded: a path, a URL or a Store; None for a run in memory.
        name: what the run is called.
        resume: `"auto"` goes on with the newest run of that name if it has not ended and has the
            same target, source and candidates; else as in `open_run`.
        seed: makes it repeatable; drawn and recorded if None.
        budget: a cap, such as `"50req,10min"`; each check, measurement and request is one `req`.
        tags: words to find the run by.
        notify: called with messages, such as a worktree that could not be made.

    Raises:
        ValueError, TypeError: an argument is wrong; nothing was started.
        BaselineFailed: the tests fail or don't call the function.
        TreeChanged: the project is no longer the one that the resumed run is about.
        BudgetSpent: the cap is reached; its note says what is known so far. With a store, call it
            again with a larger cap.
    """
    from abreast.assembly.candidates_tools import KIND, CandidatesTools
    from abreast.jobs.candidates.report import OptimizeResult

    check_executor(executor or "local")
    given, kind = _given_candidates(candidates), _author_kind(author)
    _check_source(given, kind)
    permissions = (allow,) if isinstance(allow, str) else tuple(allow)
    if kind != "agent" and (model is not None or permissions):
        raise ValueError("model and allow are for an agent as the author, such as author='claude'")
    spec = _spec(
        {
            "target": function if isinstance(function, str) else place_of(function),
            "tests": [fspath(one) for one in _listed(tests)],
            "doctests": doctests,
            "workload": [fspath(one) for one in _listed(workload)],
            "trace": trace,
            "hints": hints,
            "calls_by": calls_by,
            "candidates": given if isinstance(given, str) else None,
            "model": author if kind == "name" else model,
            "author": author if kind == "agent" else None,
            "allow": [*permissions] or None,
            "proposals": proposals,
            "repairs": 0 if kind == "methods" and not hasattr(author, "repair") else repairs,
            "refine": refine,
            "width": width,
            "compare": compare,
            "exceptions": exceptions,
            "rel_tol": rel_tol,
            "abs_tol": abs_tol,
            "timing": timing,
            "threshold": threshold,
            "blocks": blocks,
            "generated": generated,
            "timeout": timeout if isinstance(timeout, str) else f"{timeout}s",
            "budget": budget if isinstance(budget, str) else None,
            "python": None if python is None else fspath(python),
            "executor": executor,
            "branch": branch,
        }
    )
    tools = await asyncio.to_thread(CandidatesTools, spec, Path.cwd())
    facts = {**tools.facts(), "must_win": False, "program": _digest(given, kind, author)}
    async with contextlib.AsyncExitStack() as stack:
        opened = stack.enter_context(opened_store(store))
        found = find_unfinished(opened, name, KIND, resume, partial(_is_same, facts))
        if tools.branch is not None:
            resumed = found.run_id is not None
            await asyncio.to_thread(tools.branch.check, tools.target.file, resumed=resumed)
        agent: AuthorAgent | None = None
        lanes: dict[str, LaneLimits] = {}
        if kind == "agent":
            agent, lanes = await _open_agent(stack, tools, opened, found.run_id, budget)
        else:
            await _open_author(stack, tools, author, kind, opened)
        if spec.calls_by is not None:
            caller = open_model(spec.calls_by, store=opened)
            tools.use_calls(await stack.enter_async_context(caller))
        run = await stack.enter_async_context(
            open_run(
                name,
                store=opened,
                seed=seed,
                budget=budget,
                lanes=lanes,
                tags=tags,
                kind=KIND,
                resume=found.resume,
                run_id=found.run_id,
                manifest={KIND: facts},
            )
        )
        if agent is not None:
            agent.begin(run.id or run.name)
        propose: Callable[[Run], Awaitable[Sequence[Proposal]]] | None = None
        if isinstance(given, list):
            propose = partial(_read_given, tools, given)
        elif kind == "function":
            propose = partial(_ask_function, tools, cast("WriteCandidate", author))
        try:
            await tools.work(run, notify or _ignore, propose)
        except BudgetSpent as error:
            error.add_note(f"so far: {tools.report().headline()}")
            raise
        return OptimizeResult(await _with_branch(tools, run, notify or _ignore), run.id or "")


async def _with_branch(
    tools: CandidatesTools, run: Run, notify: Callable[[str], None]
) -> CandidatesReport:
    """Make a branch of the winner if one is wanted; return the report with it."""
    from abreast.worktrees.git import GitFailed

    report = tools.report()
    if tools.branch is None or not (commits := report.commits(run.id or "")):
        return report
    try:
        return replace(report, branch=await asyncio.to_thread(tools.branch.make, commits))
    except (GitFailed, ValueError) as error:
        notify(f"the branch {tools.spec.branch} was not made: {error}")
        return report


async def _open_author(
    stack: contextlib.AsyncExitStack,
    tools: CandidatesTools,
    author: object,
    kind: AuthorKind,
    store: Store | None,
) -> None:
    """Open the model that proposes and repairs, or use the author's own functions."""
    from abreast.jobs.candidates.author import FunctionAuthor

    if isinstance(author, str):
        caller = await stack.enter_async_context(open_model(author, store=store))
        tools.author = tools.model_author(caller)
    elif kind == "model":
        tools.author = tools.model_author(as_caller(cast("Model | Caller", author)))
    elif kind == "methods":
        tools.author = FunctionAuthor(*(getattr(author, word, None) for word in _METHODS))


async def _open_agent(
    stack: contextlib.AsyncExitStack,
    tools: CandidatesTools,
    store: Store | None,
    resumed_run: str | None,
    budget: Budget | str | None,
) -> tuple[AuthorAgent, dict[str, LaneLimits]]:
    """Open the agent that a specification names as its author; return it and the run's lanes.

    Raises `AgentUnknown`, also if it is not installed.
    """
    from abreast.agents.installed import is_installed
    from abreast.agents.known import find_agent, find_agents
    from abreast.agents.runner import AgentUnknown
    from abreast.assembly.process_groups import ProcessGroups
    from abreast.assembly.trees.agents import ChosenAgent
    from abreast.assembly.trees.author_agent import AuthorAgent
    from abreast.models.lanes import find_lanes

    spec, here = tools.spec, Path.cwd()
    runner = find_agent(spec.author or "", find_agents(here))
    if not is_installed(runner, str(here)):
        raise AgentUnknown(f"{runner.name} is not installed: there is no {runner.program!r}")
    chosen = ChosenAgent(runner, spec.allow, spec.model, find_lanes(here))
    agent = await AuthorAgent.open(stack, chosen, ProcessGroups())
    lanes = await agent.open_trees(
        stack,
        tools.root,
        max(1, spec.width),
        store=store,
        resumed_run=resumed_run,
        budget=budget,
    )
    tools.use_agent(agent)
    return agent, lanes


def place_of(function: object) -> str:
    """Return where a function is written, as `file.py::name`.

    Raises TypeError if that can't be known, or is no place that a file can be changed at.
    """
    found = inspect.unwrap(function) if callable(function) else function
    if isinstance(found, MethodType):
        found = found.__func__
    words = getattr(found, "__qualname__", None) or f"{found!r:.60}"
    instead = "or name a function as 'file.py::name'"
    if not isinstance(found, FunctionType):
        raise TypeError(f"{words} is not a function that is written in Python; {instead}")
    file = Path(found.__code__.co_filename)
    if found.__name__ == "<lambda>":
        raise TypeError(f"a lambda can't be optimized: give it a name with def, {instead}")
    if "<locals>" in found.__qualname__:
        raise TypeError(
            f"{words} is inside of another function: move it to the top of its module, {instead}"
        )
    if not file.is_file():
        raise TypeError(f"{words} is in no file: write it into a module, {instead}")
    return f"{file.resolve()}::{found.__qualname__}"


# --- arguments ----------------------------------------------------------------------------------


def _spec(facts: dict[str, Any]) -> CandidatesSpec:
    from abreast.jobs.candidates.spec import CandidatesSpec

    return CandidatesSpec.of(facts, "optimize", sourced=False)


def _listed(given: PathText | Sequence[PathText]) -> Sequence[PathText]:
    return [given] if isinstance(given, (str, PathLike)) else list(given)


def _given_candidates(given: PathText | Sequence[PathText] | None) -> str | list[str] | None:
    """Return the directory of candidates, or their texts and paths; None if none are given."""
    if given is None:
        return None
    if isinstance(given, (str, PathLike)) and Path(fspath(given)).is_dir():
        return fspath(given)
    texts = []
    for one in _listed(given):
        if not isinstance(one, (str, PathLike)):
            raise TypeError(
                f"candidates must be source texts and paths, not {type(one).__name__}: {one!r:.60}"
            )
        text = fspath(one)
        if not _is_source(text) and not Path(text).exists():
            raise ValueError(f"candidates: there is no {text!r:.80}, and it is no source text")
        texts.append(text)
    return texts


def _is_source(text: str) -> bool:
    return "\n" in text or "def " in text


def _author_kind(author: object) -> AuthorKind:
    if author is None:
        return "none"
    if isinstance(author, str):
        # A model is named provider/model, or provider:model.
        return "name" if "/" in author or ":" in author else "agent"
    if callable(getattr(author, "complete", None)):
        return "model"
    if any(callable(getattr(author, word, None)) for word in _METHODS):
        return "methods"
    if callable(author):
        return "function"
    raise TypeError(
        "author must be the name of a model or of an agent, a function, or an object with repair "
        f"or refine, not {author!r:.60}"
    )


def _check_source(given: str | list[str] | None, kind: AuthorKind) -> None:
    """Raise ValueError unless candidates come from one place."""
    if given is not None and kind == "function":
        raise ValueError(
            "candidates and an author function both propose: leave one of them out, "
            "or give an author with a method repair or refine"
        )
    if given is None and kind == "methods":
        raise ValueError("give candidates, too: this author only repairs and refines")
    if given is None and kind == "none":
        raise ValueError("give candidates, or an author that writes them")


def _digest(given: str | list[str] | None, kind: AuthorKind, author: object) -> str | None:
    """A digest of what a program gives; None if `abreast resume` can go on without the program."""
    if not isinstance(given, list) and kind in ("none", "name", "agent"):
        return None
    words = [getattr(author, word, "") for word in ("__module__", "__qualname__", "name")]
    facts = [given, kind, *map(str, words)]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()


def _is_same(facts: dict[str, Any], row: RunRow) -> bool:
    """Whether a recorded run has the same target, source and candidates."""
    from abreast.jobs.candidates.spec import EVIDENCE

    recorded: Any = row.manifest.get("candidates")
    if not isinstance(recorded, dict) or not isinstance(recorded.get("spec"), dict):
        return False
    words = ("target", "original", "program")
    sources = ("candidates", "model", "author", "timing", *EVIDENCE)
    # Runs of before always measured, and had tests.
    before = {
        "timing": True,
        "doctests": False,
        "workload": [],
        "trace": None,
        "hints": False,
        "calls_by": None,
        "author": None,
        **recorded["spec"],
    }
    return all(recorded.get(word) == facts[word] for word in words) and all(
        before.get(word) == facts["spec"][word] for word in sources
    )


def _ignore(message: str) -> None:
    del message


# --- where candidates come from -----------------------------------------------------------------


async def _read_given(tools: CandidatesTools, given: list[str], run: Run) -> Sequence[Proposal]:
    from abreast.jobs.candidates.results import Proposal
    from abreast.worktrees.background import run_in_thread

    del run

    def read(stop: StopRequest) -> list[Proposal]:
        found = []
        for number, text in enumerate(given, 1):
            if _is_source(text):
                found.append(Proposal(f"candidate-{number}", text, "text"))
            else:
                found += tools.read_path(Path(text), stop)
        return found

    return await run_in_thread(read)


async def _ask_function(
    tools: CandidatesTools, write: WriteCandidate, run: Run
) -> Sequence[Proposal]:
    from abreast.jobs.candidates.author import ProposalTask, answer, blocks_of, proposals_of

    spec = tools.spec

    async def draft(number: int) -> str:
        file = tools.root / tools.target.file
        text = await answer(
            write, ProposalTask(str(tools.target), file, tools.original, number, spec.proposals)
        )
        if not isinstance(text, str):
            raise TypeError(f"it must return Python as text, not {type(text).__name__}")
        return "\n".join(blocks_of(text)[:1])

    return await proposals_of(run, draft, spec.proposals, max(1, spec.width), "function")
