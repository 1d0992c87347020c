"""The options of a plan, from flags or a file, and the plan that they make, as it is printed."""

import asyncio
import gc
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from abreast.cli.config import Config
from abreast.cli.errors import (
    FAILED,
    UsageError,
    explain,
    one_line,
    os_error_text,
    refusing,
    tell,
)
from abreast.cli.jobs.job_file import read_node, read_text
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.tables import say_json
from abreast.core.errors import AbreastError
from abreast.core.usage import Usage, tokens_in_words
from abreast.jobs.files.yaml_nodes import YamlNode
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.score import score as score_of
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.forecast import CostForecast
from abreast.jobs.plan.settings import CHOOSING, KIND, PlanJob, divide
from abreast.jobs.plan.spec import Plan
from abreast.jobs.plan.work.commands import REPLACED
from abreast.jobs.plan.written.division import written_needs
from abreast.jobs.plan.written.parts import read_parts
from abreast.jobs.plan.written.plan_file import PlanFile
from abreast.jobs.plan.written.planner import propose_parts
from abreast.models.port import Reply, full_name
from abreast.store.port import RunRow, Store
from abreast.views.job_view import many
from abreast.worktrees.merge.errors import ApplyRunning
from abreast.worktrees.merge.repair import repair

_UNCUT_COLUMNS: Final = 5_000


def read_job(
    file: str,
    node: YamlNode,
    flags: Mapping[str, Any],
    spell_flag: Callable[[str], str] = str,
    *,
    works: bool = True,
) -> PlanJob:
    """The job of a file; `flags` override its keys, and `spell_flag` says how they are written.

    Raises `UsageError` with the line of an error.
    """
    place = f"{file}:{node.line}: "
    if node.kind != "mapping":
        raise UsageError(
            f"{place}plan must be a mapping, "
            "such as {command: 'ruff format {files}', width: 10}"
        )
    given = {word: value for word, value in flags.items() if value is not None}

    def spell(word: str) -> str:
        if word in node.pairs and word not in given:
            return f"{file}:{node.line_of(word)}: {word}"
        return spell_flag(word)

    with refusing("", PlanInvalid):
        facts = {
            word: read_parts(value, file) if word == "parts" else value.plain()
            for word, value in node.items()
        }
        home = os.getcwd()  # noqa: PTH109 - stored as text
        return PlanJob.of({**facts, **given}, home, spell, place, works=works)


def plan_node(file: str) -> YamlNode:
    """The plan of a file; raises `UsageError` if it holds none."""
    node = read_node(read_text(file), file)
    if node is None or KIND not in node.pairs or len(node.pairs) > 1:
        raise UsageError(f"{file}:1: the file of a plan has one top-level key, plan")
    return node.pairs[KIND][1]


def recorded_job(row: RunRow, budget: str | None = None) -> PlanJob:
    """The job of a recorded run, with another budget if one is given."""
    with refusing("", PlanInvalid):
        job = PlanJob.recorded(row)
    return replace(job, budget=budget or job.budget)


def current_plan(job: PlanJob) -> tuple[Plan, Imports]:
    """The plan of the job's directory as it is now, after a killed apply is repaired."""
    if Path(job.path).is_dir():
        repair_tree(Path(job.path))
    with refusing("", PlanInvalid):
        return job.divide()


def repair_tree(root: Path) -> None:
    """Undo or complete a killed apply, and print what was done.

    Raises `UsageError` if that is impossible.
    """
    try:
        for line in repair(root):
            tell(line)
    except ApplyRunning as error:
        raise UsageError(str(error), FAILED) from None
    except (AbreastError, OSError) as error:
        raise UsageError(f"a merge was cut off, and can't be taken back: {error}", FAILED) from None


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """The plan of a directory or of a file, and the options that make it, as a file has them."""

    plan: Plan
    imports: Imports
    path: str
    options: Mapping[str, Any]
    needs: Mapping[str, Sequence[str]] | None = None


def make_plan(path: str, given: Mapping[str, Any]) -> ShownPlan:
    """The plan of a directory, or of the file of a plan, after a killed apply is repaired.

    Raises `UsageError` if the directory can't be divided.
    """
    # What is read is kept until the end: to look for garbage in it, now or later, takes a tenth of
    # the time.
    gc.disable()
    try:
        return _make_plan(path, given_flags(given))
    finally:
        gc.freeze()
        gc.enable()


def _make_plan(path: str, flags: dict[str, Any]) -> ShownPlan:
    if Path(path).is_file():
        node = plan_node(path)
        job = read_job(path, node, flags, flag, works=False)
        plan, imports = current_plan(job)
        written = {word: value.plain() for word, value in node.items() if word != "parts"}
        options = {"path": None, **written, **flags}
        return ShownPlan(plan, imports, job.path, options, written_needs(plan, job.parts))
    if not Path(path).is_dir():
        raise UsageError(f"{path} is no directory")
    repair_tree(Path(path))
    with refusing("", PlanInvalid):
        job = PlanJob.of({**flags, "path": path}, os.getcwd(), flag, works=False)  # noqa: PTH109 - text
        plan, imports = job.divide()
    options = {"path": None if path == "." else path}
    options |= {word: flags.get(word) for word in CHOOSING}
    return ShownPlan(plan, imports, path, options)


def proposed_plan(shown: ShownPlan, model: str, prompt: str, choice: StoreChoice) -> ShownPlan:
    """The plan that a model proposes in place of one; raises `UsageError` if it proposes none.

    The store has what a replay, a cache or the limits of a lane need. It is not a run: the proposal
    is recorded nowhere else than in the file that it may be written to.
    """
    # Not above: the clients of models take longer to import than all the rest.
    from abreast.cli.jobs.model_options import configured_lanes, open_named

    lanes = configured_lanes(Config.load())
    task = prompt or str(shown.options.get("prompt") or shown.options.get("command") or "")
    replies: list[Reply] = []

    async def ask(store: Store | None) -> list[dict[str, Any]]:
        async with open_named(model, lanes, store, flag="--planner") as caller:
            return await propose_parts(caller, shown.plan, task, replies.append)

    try:
        replayed = full_name(model).startswith("replay/")
        with (
            choice.existing() if replayed else choice.look() as store,
            asyncio.Runner() as runner,
        ):
            parts = read_parts(runner.run(ask(store)))
    except AbreastError as error:
        why, code = explain(error)
        raise UsageError(why, code) from None
    given = {word: shown.options.get(word) for word in CHOOSING}
    with refusing("", PlanInvalid):
        plan, imports = divide(shown.path, {**given, "parts": parts})
    used = sum((reply.usage for reply in replies), Usage())
    cost = "unknown cost" if used.usd is None else f"{used.usd:.6g} usd"
    tell(
        f"{replies[-1].model} proposes {many(len(plan.leaves), 'part')}: "
        f"{tokens_in_words(used)}, {cost}"
    )
    return replace(shown, plan=plan, imports=imports, needs=None)


def given_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are given: not those that are None, off, or an empty list."""
    return {
        word: list(value) if isinstance(value, tuple) else value
        for word, value in given.items()
        if value not in (None, False, ())
    }


def check_free(file: str) -> None:
    """Raise `UsageError` if a file is there, or its directory is not: before a model is paid."""
    if Path(file).exists():
        raise _already_there(file)
    if not Path(file).absolute().parent.is_dir():
        raise UsageError(f"-o: {file} can't be written: its directory is not there")


def _already_there(file: str) -> UsageError:
    return UsageError(
        f"-o: {file} is there, and may have been edited; remove it, or name another file"
    )


def write_plan_file(shown: ShownPlan, file: str) -> int:
    """Write a plan as a file to edit; `UsageError` if another file is in its place."""
    text = PlanFile.of(shown.plan, shown.options, shown.needs).text()
    place = Path(file)
    try:
        if place.exists() and place.read_text("utf-8", "replace") != text:
            raise _already_there(file)
        place.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"-o: {file} can't be written ({os_error_text(error)})") from None
    for note in shown.plan.notes:
        tell(one_line(note))
    told = any(shown.options.get(word) for word in ("command", "call", "prompt"))
    work = "" if told else " --command '...'"
    tell(
        f"wrote {many(len(shown.plan.leaves), 'part')} to {file}: edit it, then: "
        f"abreast plan run {file}{work}"
    )
    return 0


def command_of(words: Sequence[str]) -> str:
    """Words as a command of `sh`; those that a plan replaces stay as they are."""
    return " ".join(word if word in REPLACED else shlex.quote(word) for word in words)


def flag(word: str) -> str:
    """How a key of a plan is written on the command line."""
    return f"--{word.replace('_', '-')}"


def print_plan(
    plan: Plan,
    imports: Imports,
    *,
    ids: bool = False,
    as_json: bool = False,
    only_score: bool = False,
    cost: CostForecast | None = None,
    needs: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Print a plan: as JSON, as a tree with its score, or the score alone, with its cost."""
    from abreast.jobs.plan.tree_text import score_lines, show, to_json
    from abreast.worktrees.merge.names import printable

    report = score_of(plan, imports, needs=needs)
    if as_json:
        for note in plan.notes:
            tell(one_line(note))
        more = {} if cost is None else {"forecast": asdict(cost)}
        say_json({**to_json(plan, report), **more})
        return 0
    from rich.console import Console

    terminal = os.isatty(1)
    console = Console(
        highlight=False,
        soft_wrap=True,
        force_terminal=None if terminal else False,
        # A tree is cut at the width of a terminal; in a file or a pipe nothing is.
        width=None if terminal else _UNCUT_COLUMNS,
    )
    if only_score:
        notes = [f"note: {note}" for note in plan.notes]
        for line in [*notes, *score_lines(plan, report), *([] if cost is None else [cost.line()])]:
            console.print(printable(line), markup=False)
    else:
        console.print(show(plan, report, ids=ids, needs=needs))
    return 0
