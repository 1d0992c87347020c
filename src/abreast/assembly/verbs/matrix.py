"""`abreast.matrix`: a study, of a file or described in Python, run and recorded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from abreast.assembly.names import find_store, open_run
from abreast.executors.names import check_executor
from abreast.jobs.files.shapes import is_whole
from abreast.limits.budget import Budget
from abreast.run.current import current_item
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.assembly.described_study import StudyParts
    from abreast.assembly.study import ReadyStudy
    from abreast.jobs.matrix.result import StudyResult
    from abreast.jobs.matrix.spec import Study
    from abreast.jobs.matrix.tools import BlockingStrategyModel, StrategyModel
    from abreast.jobs.sample.checks import Check
    from abreast.models.port import Model
    from abreast.store.port import Store

    AsyncStrategy: TypeAlias = Callable[[dict[str, Any], StrategyModel], Awaitable[object]]
    PlainStrategy: TypeAlias = Callable[[dict[str, Any], BlockingStrategyModel], object]
    StrategyLike: TypeAlias = (
        str | os.PathLike[str] | AsyncStrategy | PlainStrategy | Mapping[str, object]
    )
    ScoreFunction: TypeAlias = Callable[[dict[str, Any]], object]
    ScoreLike: TypeAlias = str | ScoreFunction | Check | Mapping[str, object]


class Frame(Protocol):
    """A table of pandas or polars."""

    @property
    def columns(self) -> Any:  # noqa: ANN401 - each library's own type
        """The names of its columns."""


async def matrix(
    file: str | os.PathLike[str] | None = None,
    *,
    models: Sequence[str | Model | Mapping[str, object]] | None = None,
    strategies: Mapping[str, StrategyLike] | None = None,
    inputs: str | os.PathLike[str] | Iterable[object] | Frame | None = None,
    scores: Sequence[ScoreLike] | None = None,
    repeats: int | None = None,
    truth: str | None = None,
    controls: Sequence[Literal["empty", "echo", "truth"]] | None = None,
    name: str | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    width: int | Mapping[str, int] | None = None,
    adaptive: bool = False,
    warm: bool = False,
    executor: str | None = None,
    budget: Budget | str | None = None,
    seed: int | None = None,
    tags: Sequence[str] = (),
    resume: bool = True,
    rerun_failed: bool = False,
    run: Run | None = None,
) -> StudyResult:
    """Run a study: every model answers every input by every strategy, and is scored.

        result = await abreast.matrix("study.yaml", store="runs.db")

        result = await abreast.matrix(
            models=["local/smollm2"],
            strategies={"plain": "The capital of {{ input.country }}?", "steps": in_two_steps},
            inputs=[{"country": "France", "truth": "Paris"}],
            scores=["contains", is_short],
            store="runs.db",
        )
        pandas.DataFrame(result.rows())

    Each cell (a model, a strategy, an input, a repeat) is recorded. Called again with the same
    store and name it goes on with the newest run, as `abreast matrix run` does: cells whose
    content is recorded are not run again, and of an edited prompt or function only its cells are.

    Args:
        file: a study's file, as `abreast matrix run` takes it; files that it names are beside it.
            Without one, `models`, `strategies` and `inputs` describe the study.
        models: names such as "openai/gpt-5-mini", mappings (`name`, `label`, `temperature`,
            `max_tokens`, `reasoning`, `thinking_tokens`), or models that are open already.
        strategies: for each name a prompt's text with `{{ input.field }}`, a path of one, a
            function of the input and the model, or a mapping as in a file. An `async def` gets a
            model whose `ask` and `reply` are awaited; a plain function runs in a thread, and there
            they block.
        inputs: rows (mappings, or values, which become `{"text": value}`), a pandas or polars
            frame, or a path: of a CSV, TSV, Parquet, JSON or JSON lines file, any other file, a
            directory, or a pattern. The field `id` names an input; by default its position does.
        scores: names such as "exact" or mappings as in a file, functions of
            `{"output", "value", "input", "truth"}` that return a number or True or False, async or
            not, and `abreast.checks`.
        repeats: how often each cell is run, by default once; with a file, only its first repeats.
        truth: the field of an input that has the right answer; by default "truth".
        controls: strategies that call no model and whose scores are known.
        name: what its runs are called; by default the file's name, or "study".
        store: where it is recorded, such as "runs.db"; by default in memory.
        width: calls at once for each provider, or for some: `{"openai": 8}`; by default 4, or
            what abreast.toml says.
        adaptive: let lanes without a width of their own find out how many calls go at once.
        warm: of prompts that begin alike send one ahead, so that the others find their beginning
            in the provider's cache; in a file, `warm: true`.
        executor: where commands of strategies that are workflows run: `"local"`, or `"ray"`, the
            nodes of a cluster, which see the study's directory at the same path.
        budget: a cap for all that the run costs: `Budget(usd=5)` or "500req,20usd".
        seed: makes the run's seeds repeatable; drawn and recorded if None.
        tags: words to find the run by.
        resume: whether to go on with the newest run of that name; False starts a new one.
        rerun_failed: run failed cells again, too.
        run: the run that it belongs to; by default the run of the current item, else its own.

    Raises:
        ValueError, TypeError: the study is wrong, or no cell of it can run; nothing was sent.
        BudgetSpent: the cap is reached; call it again with more, and it goes on.
        RunBusy: another process runs the study.
    """
    check_executor(executor or "local")
    description = {
        "models": models,
        "strategies": strategies,
        "inputs": inputs,
        "scores": scores,
        "truth": truth,
        "controls": controls,
    }
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    ready, parts = _ready_study(
        file,
        description,
        repeats=repeats,
        name=name,
        width=width,
        budget=budget,
        adaptive=adaptive,
        warm=warm,
        executor=executor,
    )
    _report_unavailable(ready)
    item = current_item()
    within = run if run is not None else item.run if item is not None else None
    if within is not None:
        if store is not None or seed is not None or tags or not resume or rerun_failed:
            raise TypeError(
                "within a run, store, seed, tags, resume and rerun_failed are the run's own and "
                "can't be given again"
            )
        return await _run_within(ready, parts, within, budget)
    async with AsyncExitStack() as stack:
        opened = _open_store(store)
        if isinstance(store, (str, os.PathLike)):
            stack.callback(opened.close)
        return await _run_alone(
            ready,
            parts,
            opened,
            {"seed": seed, "tags": tags, "budget": budget},
            resume=resume,
            rerun_failed=rerun_failed,
        )


def _ready_study(
    file: str | os.PathLike[str] | None,
    description: Mapping[str, Any],
    *,
    repeats: int | None,
    name: str | None,
    width: int | Mapping[str, int] | None,
    budget: Budget | None,
    adaptive: bool,
    warm: bool,
    executor: str | None,
) -> tuple[ReadyStudy, StudyParts]:
    """Read the study, and find out what of it can run here."""
    from abreast.assembly.described_study import StudyParts
    from abreast.assembly.study import ReadyStudy
    from abreast.jobs.matrix.recorded_study import StudyFile
    from abreast.jobs.matrix.spec import CellChoice
    from abreast.models.lanes import find_lanes

    given = {word: value for word, value in description.items() if value is not None}
    if file is not None and given:
        raise TypeError(f"{os.fspath(file)} has the {', '.join(given)} already; leave them out")
    directory = Path.cwd() if file is None else Path(file).resolve().parent
    parts = StudyParts(directory)
    study = (
        _described(parts, given, name or "study", repeats)
        if file is None
        else _of_file(parts, Path(file), name)
    )
    lanes = find_lanes(directory)
    widths = _widths(width, {*lanes, *study.lanes()})
    source = StudyFile(
        "" if file is None else os.fspath(file),
        study.text,
        str(directory),
        width
        if width is None or isinstance(width, int)
        else ",".join(f"{lane}={number}" for lane, number in width.items()),
        None if budget is None else _budget_text(budget),
        repeats=None if file is None else repeats,
        adaptive=adaptive,
        executor=executor,
        warm=warm,
    )
    choice = CellChoice(repeats=_whole("repeats", source.repeats))
    return (
        ReadyStudy(study, source, lanes, widths=widths, choice=choice, opened=parts.opened),
        parts,
    )


def _described(
    parts: StudyParts, given: Mapping[str, Any], name: str, repeats: int | None
) -> Study:
    missing = [word for word in ("models", "strategies", "inputs") if word not in given]
    if missing:
        raise TypeError(f"a study without a file needs {' and '.join(missing)}")
    options = {word: given[word] for word in ("truth", "controls") if word in given}
    return parts.study(
        name,
        models=given["models"],
        strategies=given["strategies"],
        inputs=given["inputs"],
        scores=given.get("scores", ()),
        options=options if repeats is None else {**options, "repeats": repeats},
    )


def _of_file(parts: StudyParts, file: Path, name: str | None) -> Study:
    from abreast.assembly.workflow_tools import wrong_sample
    from abreast.jobs.matrix.design.read_study import load_study

    study = load_study(
        file.read_text("utf-8"),
        str(file),
        parts.directory,
        code_of=parts.code_of,
        check_sample=wrong_sample,
    )
    for line, text in study.warnings:
        warnings.warn(f"{file}:{line}: {text}", stacklevel=4)
    return study if name is None else replace(study, name=name)


def _widths(given: int | Mapping[str, int] | None, lanes: set[str]) -> dict[str, int]:
    if not isinstance(given, Mapping):
        number = _whole("width", given)
        return {} if number is None else dict.fromkeys(lanes, number)
    for lane, number in given.items():
        if lane not in lanes:
            raise ValueError(
                f"width: there is no lane {lane!r}; there are {', '.join(sorted(lanes))}"
            )
        _whole(f"width[{lane!r}]", number)
    return dict(given)


def _whole(word: str, given: Any) -> int | None:  # noqa: ANN401 - checked here
    if given is not None and not is_whole(given, 1):
        raise ValueError(f"{word} must be a whole number of at least 1, not {given!r}")
    return None if given is None else int(given)


def _budget_text(budget: Budget) -> str:
    seconds = [] if budget.seconds is None else [f"{budget.seconds:g}s"]
    return ",".join([*(f"{cap:.15g}{name}" for name, cap in budget.caps.items()), *seconds])


def _report_unavailable(ready: ReadyStudy) -> None:
    """Warn of each reason why arms can't run; raise ValueError if no cell can."""
    reasons: dict[str, list[str]] = {}
    for (model, strategy), why in ready.unavailable.items():
        reasons.setdefault(why, []).append(f"{model} x {strategy}")
    texts = [f"can't run: {', '.join(arms)}: {why}" for why, arms in reasons.items()]
    if not any(ready.cells_per_lane().values()):
        raise ValueError("\n".join(["no cell of the study can run here", *texts]))
    for text in texts:
        warnings.warn(text, stacklevel=3)


def _open_store(given: str | os.PathLike[str] | Store | None) -> Store:
    if given is not None:
        return find_store(given)
    from abreast.store.memory import MemoryStore

    return MemoryStore()


async def _run_alone(
    ready: ReadyStudy,
    parts: StudyParts,
    store: Store,
    options: Mapping[str, Any],
    *,
    resume: bool,
    rerun_failed: bool,
) -> StudyResult:
    """Run the study in a run of its own, new or resumed."""
    from abreast.jobs.matrix.recorded_study import KIND, newest_study

    row = newest_study(store, ready.study.name) if resume else None
    manifest = ready.manifest()
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(ready.tools(_tools(ready, parts, store)))
        job = ready.matrix(tools)
        opened = open_run(
            ready.study.name,
            store=store,
            kind=KIND,
            manifest=manifest,
            resume="never" if row is None else "retry" if rerun_failed else "must",
            run_id=None if row is None else row.id,
            **options,
        )
        async with opened as own:
            ready.resume(store, own)
            await job.run(own)
            run_id, root = own.id or "", own.path
    return _result(ready, job.tally, store, run_id, root)


async def _run_within(
    ready: ReadyStudy, parts: StudyParts, within: Run, budget: Budget | None
) -> StudyResult:
    """Run the study as a part of another run, whose store has its cells."""
    store = within.store
    if store is None or within.id is None:
        raise ValueError(f"a study is recorded in a store, and {within.path} has none: give store=")
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(ready.tools(_tools(ready, parts, store)))
        job = ready.matrix(tools)
        scope = await stack.enter_async_context(within.child(ready.study.name, budget=budget))
        await job.run(scope)
        return _result(ready, job.tally, store, within.id, scope.path, manifest=ready.manifest())


def _tools(ready: ReadyStudy, parts: StudyParts, store: Store) -> Any:  # noqa: ANN401 - Tools, imported late
    from abreast.assembly.workflow_tools import Tools

    return Tools(
        cwd=str(parts.directory),
        lanes=ready.lanes,
        store=store,
        find=parts.find,
        executor=ready.source.executor or "local",
    )


def _result(
    ready: ReadyStudy,
    tally: Any,  # noqa: ANN401 - MatrixTally, imported late
    store: Store,
    run_id: str,
    root: str,
    *,
    manifest: Mapping[str, Any] | None = None,
) -> StudyResult:
    from abreast.core.outcome import NO_USAGE
    from abreast.jobs.matrix.recorded_study import report_content
    from abreast.jobs.matrix.result import StudyResult
    from abreast.jobs.matrix.spec import CONTROL_LANE
    from abreast.run.call_totals import CALL_KINDS, call_totals
    from abreast.store.port import each_event

    row = store.get(run_id)
    rows, facts = report_content(store, row, root=root, manifest=manifest)
    events = (
        event for event in each_event(store, run_id, CALL_KINDS) if event.path.startswith(root)
    )
    return StudyResult(
        ready.study.name,
        run_id,
        sum(ready.cells_per_lane().values()),
        tally.done,
        tally.failed,
        sum(call_totals(events).by_model.values(), NO_USAGE),
        sum(lane.fresh for name, lane in tally.lanes.items() if name != CONTROL_LANE),
        dict(ready.unavailable),
        tuple(rows),
        facts,
    )
