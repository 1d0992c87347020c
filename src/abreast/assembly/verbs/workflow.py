"""`abreast.workflow`: a workflow file, run within a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from abreast.assembly.names import open_run
from abreast.assembly.verbs.run_options import refuse_run_options
from abreast.executors.names import check_executor
from abreast.run.current import current_item
from abreast.run.run import Resume, Run

if TYPE_CHECKING:
    from abreast.jobs.workflow.job import FlowResult
    from abreast.jobs.workflow.spec import Workflow
    from abreast.jobs.workflow.tools import CustomKind
    from abreast.limits.budget import Budget
    from abreast.limits.lane import LaneLimits
    from abreast.store.port import Store


async def workflow(
    file: str | os.PathLike[str],
    inputs: Mapping[str, object] | None = None,
    *,
    run: Run | None = None,
    model: str | None = None,
    verdicts: Mapping[str, str] | None = None,
    executor: str | None = None,
    warm: bool = False,
    store: str | os.PathLike[str] | Store | None = None,
    budget: Budget | str | None = None,
    lanes: Mapping[str, LaneLimits] | None = None,
    seed: int | None = None,
    resume: Resume = "auto",
    run_id: str | None = None,
    hooks: Sequence[object] = (),
    tags: Sequence[str] = (),
    redact: Callable[[str, object], object] | None = None,
    types: Sequence[type] = (),
) -> FlowResult:
    """Run a workflow file; the result has its status, error, outputs, and every step by full id.

        result = await abreast.workflow("flow.yaml", {"city": "Paris"}, store="runs.db")
        result.steps["fan:greet:2"].output

    Args:
        file: the file; other files that it names are looked for beside it.
        inputs: values of its inputs.
        run: the run that it belongs to; by default the run of the current item, else one named
            after the workflow.
        model: the model for prompts that name none.
        verdicts: the answers to gates, by their full ids.
        executor: where its commands run: `"local"`, or `"ray"`, the nodes of a cluster
            (`"ray:CPU=4"` for what each takes), which see its directory at the same path.
        warm: of prompts that begin alike send one ahead, so that the others find their beginning
            in the provider's cache; in the file, `warm: true` does it for a step.
        store: of a run of its own, as the options after `lanes`: a path, a URL or a Store; None for
            a run that lives in memory.
        budget: a cap for everything in it.
        lanes: names for limits.
        seed: makes its seeds repeatable; drawn and recorded if None.
        resume: whether to go on with an earlier run of that workflow, as in `open_run`.
        run_id: resume this run and no other.
        hooks: functions that get every event, and objects that may change numbers.
        tags: words to find the run by.
        redact: called with (path, value) before a value is written; by default it hides the
            workflow's secret inputs.
        types: your classes that recorded values may have, as in `open_run`.

    Raises:
        WorkflowInvalid: the file can't be run; it has every problem with its line.
        ValueError: the inputs don't fit.
        TypeError: within a run, `store` or another option is given that only a run of its own
            takes.
    """
    from abreast.agents.known import find_agents
    from abreast.assembly.trees.workflow_trees import open_workflow_trees
    from abreast.assembly.workflow_tools import RunTools, Tools, find_function, find_kinds
    from abreast.jobs.plan.review.tree_manifest import TREES
    from abreast.jobs.workflow.inputs import SealedInputs, Secrets, resolve_inputs
    from abreast.jobs.workflow.job import Flow
    from abreast.limits.pool import Pool
    from abreast.worktrees.results.item_trees import WORKTREES

    check_executor(executor or "local")
    item = current_item()
    within = run if run is not None else item.run if item is not None else None
    if within is not None:
        refuse_run_options(
            {
                "store": store,
                "seed": seed,
                "resume": resume,
                "run_id": run_id,
                "hooks": hooks,
                "tags": tags,
                "redact": redact,
                "types": types,
            }
        )
    kinds = find_kinds()
    loaded = _read_workflow(Path(file), kinds)
    values = resolve_inputs(loaded.inputs, inputs or {})
    tools = Tools(
        kinds=kinds, find=find_function, executor=executor or "local", agents=find_agents()
    )
    if model is not None:
        tools.default_model = model
    async with contextlib.AsyncExitStack() as stack:
        run_tools = await stack.enter_async_context(RunTools(tools))
        path = str(Path.cwd())
        opened = await open_workflow_trees(stack, loaded, values, path, lambda _text: None)
        if opened is not None:
            lanes = {**(lanes or {}), WORKTREES: Pool(opened.pool.slots)}
        if within is None:
            secrets = Secrets(SealedInputs(loaded.inputs, values).secrets.values())
            if secrets and redact is None:
                redact = lambda _path, value: secrets.hide(value)  # noqa: E731 - as short as it is
            within = await stack.enter_async_context(
                open_run(
                    loaded.id,
                    kind="workflow",
                    store=store,
                    budget=budget,
                    lanes=lanes,
                    seed=seed,
                    resume=resume,
                    run_id=run_id,
                    hooks=hooks,
                    tags=tags,
                    redact=redact,
                    types=types,
                    manifest=None if opened is None else {TREES: {"path": path, "task": loaded.id}},
                )
            )
        else:
            within = await stack.enter_async_context(
                within.child(loaded.id, lanes=lanes, budget=budget)
            )
        if opened is not None:
            run_tools.use_trees(opened.of_run(within.id or within.name))
        return await Flow(loaded, run_tools, verdicts, warm=warm).run(within, values)


def _read_workflow(path: Path, kinds: Mapping[str, CustomKind]) -> Workflow:
    from abreast.jobs.workflow.load.load import load

    return load(path.read_text("utf-8"), path.name, directory=path.resolve().parent, kinds=kinds)
