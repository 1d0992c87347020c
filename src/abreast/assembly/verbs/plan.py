"""`abreast.plan`: a repository divided into parts, each worked on in a worktree of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from abreast.assembly.names import open_model, open_run
from abreast.assembly.verbs.opened_store import find_unfinished, opened_store
from abreast.executors.names import check_executor

if TYPE_CHECKING:
    from abreast.assembly.plan_report import PlanReport
    from abreast.assembly.plan_tools import PlanTools
    from abreast.jobs.plan.settings import PlanJob
    from abreast.jobs.plan.work.functions import WorkFunction
    from abreast.limits.budget import Budget
    from abreast.models.port import Effort
    from abreast.run.run import Resume
    from abreast.store.port import RunRow, Store


async def plan(
    repo: str | PathLike[str] = ".",
    *,
    work: WorkFunction | str | None = None,
    prompt: str | None = None,
    model: str | None = None,
    width: int = 10,
    order: Literal["parallel", "sequential", "dependencies"] = "parallel",
    fail_fast: bool = False,
    retries: int = 0,
    timeout: float | str | None = None,
    check: str | None = None,
    rounds: int = 2,
    apply: bool = False,
    repairs: int | None = None,
    temperature: float | None = None,
    reply_tokens: int | None = None,
    reasoning: Effort | None = None,
    max_depth: int | None = None,
    min_files: int | None = None,
    max_files: int | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    all_files: bool = False,
    parts: Sequence[Mapping[str, object]] | None = None,
    planner: str | None = None,
    executor: str | None = None,
    store: str | PathLike[str] | Store | None = None,
    name: str = "plan",
    resume: Resume = "auto",
    seed: int | None = None,
    budget: Budget | str | None = None,
    tags: Sequence[str] = (),
    notify: Callable[[str], None] | None = None,
) -> PlanReport:
    """Divide a repository into parts, and run a function, a command or a model on each.

        def rename(part):
            for place in part.places:
                place.write_text(place.read_text().replace("currency", "unit"))

        result = await abreast.plan("shop", work=rename, width=4)
        result.parts, result.rows(), result.conflicts
        await result.apply()

    Each part is worked on in a worktree of its own, side by side. The directory itself is not
    touched before `apply`, which merges all of it, or nothing. A part that fails does not stop the
    others: look at `result.ok` and at the `status` and `error` of each.

    Args:
        repo: the directory to divide.
        work: a function that gets an `Assignment` (`path` is the worktree, `files` and `places` the
            files of the part, `scope`, `id`, `instruction`) and changes these files; plain, which
            then runs in a thread, or `async`. What it returns is the part's `value`. Or a command
            for sh, in which `{files}` are its files.
        prompt: what is to be done, as the `instruction`. Without `work`, a model does it.
        model: the model that edits the files: provider/model, by default local/smollm2.
        width: how many parts run at once.
        order: whether parts wait for those whose files theirs import.
        fail_fast: stop all at the first failure.
        retries: further attempts for a part that failed.
        timeout: seconds for each part, or a text such as "10min". A plain function can't be
            stopped: it is waited for.
        check: a command that must pass on the merge if it passed before; `{tests}` are the tests
            that import what was changed.
        rounds: a part that wrote to the files of another asks for that change: the other runs again
            with it, in `requests` of its `Assignment`, for at most so many rounds in all. 1 lets
            none ask.
        apply: merge the parts into the directory at the end, if all are done and nothing stands in
            the way; `result.applied` says.
        repairs: how often a model may answer again if a reply breaks a rule; 2 by default.
        temperature: how freely the model chooses; by default as the provider does.
        reply_tokens: the longest reply of the model.
        reasoning: how much the model thinks: none, minimal, low, medium, high, xhigh or max.
        max_depth: divide by directories, and no deeper; the root is 0, the default 8.
        min_files: divide by directories, and leave parts of so few files whole; 10 by default.
        max_files: divide by directories, and parts that have more further.
        max_tokens: divide parts that have more; 40,000 by default.
        min_tokens: divide by imports, into parts of at least so many tokens, where that is
            possible; 2,000 by default. Without any of these five, what has no more than 40,000
            tokens in all is divided by directories.
        include: divide only files of these patterns, such as `"src/"` and `"*.py"`.
        exclude: leave files of these patterns out: they are in no part.
        all_files: divide generated and vendored files, too, which else are in no part.
        parts: the parts, if the directory is not to be divided: each has `name` and `files` (paths,
            directories that end with a slash, patterns), and may have `id`, `instructions` and
            `after`, the parts that it waits for.
        planner: a model that proposes the parts, their names and instructions, for the prompt.
        executor: where a function or a command works: `"local"`, or `"ray"`, the nodes of a cluster
            (`"ray:CPU=4"` for what each takes). There a function is called with its code, in a copy
            of the worktree; what it changes in this process is lost. A model edits from here.
        store: where the run is recorded: a path, a URL or a Store; None for a run in memory.
        name: what the run is called.
        resume: `"auto"` goes on with the newest run of that name if it has not ended and has the
            same directory and work: only parts that are not done are run. Else as in `open_run`.
        seed: makes it repeatable; drawn and recorded if None.
        budget: a cap for everything in it, such as `"500req,10min"`.
        tags: words to find the run by.
        notify: called with messages, such as how many generated files are in no part.

    Raises:
        PlanInvalid: an argument is wrong, or the directory can't be divided (a ValueError).
        TypeError: `work` is neither a function nor a command.
        BudgetSpent: the cap is reached; call it again with a larger one.
    """
    from abreast.assembly.plan_report import PlanReport
    from abreast.assembly.plan_tools import PROGRAM, PlanTools
    from abreast.jobs.plan.errors import PlanFailed
    from abreast.jobs.plan.settings import KIND, PlanJob

    check_executor(executor or "local")
    function = work if callable(work) else None
    if not (work is None or isinstance(work, str) or function is not None):
        raise TypeError(f"work must be a function or a command, not {type(work).__name__}")
    job = PlanJob.of(
        {
            "path": fspath(repo),
            "command": work if isinstance(work, str) else None,
            "call": None if function is None else _name_of(function),
            "prompt": prompt,
            "model": model,
            "width": width,
            "order": order,
            "fail_fast": fail_fast,
            "retries": retries,
            "timeout": timeout,
            "budget": budget if isinstance(budget, str) else None,
            "check": check,
            "rounds": rounds,
            "repairs": repairs,
            "temperature": temperature,
            "reply_tokens": reply_tokens,
            "reasoning": reasoning,
            "max_depth": max_depth,
            "min_files": min_files,
            "max_files": max_files,
            "max_tokens": max_tokens,
            "min_tokens": min_tokens,
            "include": list(include) or None,
            "exclude": list(exclude) or None,
            "all_files": all_files,
            "planner": planner,
            "executor": executor,
            "parts": None if parts is None else [dict(part) for part in parts],
        },
        str(Path.cwd()),
        lambda word: "work" if word in ("command", "call") else word,
    )
    tell = notify or _ignore
    tools = PlanTools(
        job,
        open_caller=lambda model, opened: open_model(model or "local/smollm2", store=opened),
        notify=tell,
        function=function,
    )
    await asyncio.to_thread(_divide, tools, Path(job.path), tell)
    unfinished: PlanFailed | None = None
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = stack.enter_context(opened_store(store))
            found = find_unfinished(opened, name, KIND, resume, partial(_is_same, job))
            options: dict[str, Any] = await tools.open(stack, opened, found.run_id)
            manifest = {**options.pop("manifest"), PROGRAM: function is not None}
            own_budget = options.pop("budget") if budget is None else budget
            run = await stack.enter_async_context(
                open_run(
                    name,
                    store=opened,
                    seed=seed,
                    budget=own_budget,
                    tags=tags,
                    kind=KIND,
                    resume=found.resume,
                    run_id=found.run_id,
                    manifest=manifest,
                    **options,
                )
            )
            result = await tools.work(run, stack)
            run_id = run.id or ""
            if not result.ok:  # recorded as failed, as the command line does
                missing = sum(one.state != "done" for one in result.subplans)
                unfinished = PlanFailed(f"{missing} subplans are not done")
                raise unfinished
    except PlanFailed as error:
        if error is not unfinished:
            raise
    report = PlanReport(job, tools.plan, result, run=run_id, kept_as=tools.run_id, notify=tell)
    if apply:
        await report.apply()
    else:
        await report.preview()
    return report


def _divide(tools: PlanTools, root: Path, notify: Callable[[str], None]) -> None:
    """Divide the directory, after an apply that was killed is taken back or completed."""
    from abreast.worktrees.merge.repair import repair

    if root.is_dir():
        for line in repair(root):
            notify(line)
    tools.divide()
    for note in tools.plan.notes:
        notify(note)


def _name_of(function: WorkFunction) -> str:
    module = getattr(function, "__module__", "") or ""
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _is_same(job: PlanJob, row: RunRow) -> bool:
    """Whether a recorded run has the same directory and work."""
    recorded: Any = row.manifest.get("plan")
    words = ("path", "command", "call", "prompt", "model")
    return isinstance(recorded, dict) and all(
        recorded.get(word) == getattr(job, word) for word in words
    )


def _ignore(message: str) -> None:
    del message
