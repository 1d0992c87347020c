"""Checks, dry run and rehearsal of a workflow, which run none of its steps."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abreast.assembly.names import open_model
from abreast.assembly.trees.workflow_agents import find_integration, resolve_integration
from abreast.assembly.workflow_tools import Runner
from abreast.cli.config import MODEL, Config
from abreast.cli.errors import UsageError, tell
from abreast.cli.jobs.model_options import batch_share, configured_lanes
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say, say_json, say_table
from abreast.core.events import ITEM_SETTLED
from abreast.jobs.files.expressions import ExpressionText
from abreast.jobs.workflow.dry_run import PlannedStep, plan
from abreast.jobs.workflow.load.analysis import Agent, agents_of, every, lanes_of
from abreast.jobs.workflow.rehearsal import Rehearsal
from abreast.jobs.workflow.spec import Command, Prompt, Sample, Value, Workflow
from abreast.jobs.workflow.steps.actions import AGENT, has_images
from abreast.models.estimate import NO_BOUND
from abreast.models.lanes import LaneSettings, refuses_files
from abreast.models.port import Message, Request
from abreast.store.codec import codec
from abreast.store.port import each_event


def print_checked(workflow: Workflow, *, as_json: bool) -> int:
    """Print that the file is right, with its warnings; return the exit code."""
    if as_json:
        say_json(
            {
                "file": workflow.file,
                "ok": True,
                "problems": [],
                "warnings": [{"line": line, "text": text} for line, text in workflow.warnings],
            }
        )
        return 0
    for line, text in workflow.warnings:
        tell(f"{workflow.file}:{line}: warning: {text}")
    say(f"{workflow.file}: {len(workflow.steps)} steps, nothing wrong")
    return 0


@dataclass(slots=True)
class _WorstCase:
    calls: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    batch_usd: float | None = None  # of calls in batches, with the others
    unknown: bool = False


def print_dry_run(
    workflow: Workflow,
    inputs: Mapping[str, Any],
    config: Config,
    lanes: Mapping[str, LaneSettings],
    *,
    as_json: bool,
) -> int:
    """Print the steps, how often each runs at most, and what the calls cost at worst."""
    planned = plan(workflow.steps, inputs)
    worst = _WorstCase()
    for one in planned:
        if isinstance(one.step, (Prompt, Sample)):
            name = _model_of(one, workflow) or config.get(MODEL)
            _add_calls(worst, one, name, lanes)
    if as_json:
        say_json(_as_json(planned, worst))
        return 0
    rows = [
        (f"{'. ' * one.depth}{common.id}", common.type, one.count, one.width or "", common.line)
        for one in planned
        for common in [one.step.common]
    ]
    say_table(("step", "type", "at most", "at once", "line"), rows)
    per = " for one item of each list that isn't known yet" if worst.unknown else ""
    cost = "unknown cost" if worst.usd is None else f"{worst.usd:.4g} usd"
    if worst.usd is not None and worst.batch_usd is not None:
        cost += f", or {worst.batch_usd:.4g} usd in batches"
    say(f"model calls at worst: {worst.calls}{per}, about {worst.tokens:,} tokens, {cost}")
    say(f"tokens and cost are {NO_BOUND}")
    return 0


def _add_calls(
    worst: _WorstCase, one: PlannedStep, name: str, lanes: Mapping[str, LaneSettings]
) -> None:
    worst.calls += one.calls
    worst.unknown = worst.unknown or bool(one.per)
    text, most, thinking = _prompt_of(one)
    try:
        caller = open_model(name, lanes=lanes)
        request = Request((Message("user", text),), max_tokens=most, thinking_tokens=thinking)
        need, _ = caller.reserve(request, ())
    except Exception:  # noqa: BLE001 - without a key or a known model, the cost is unknown
        worst.usd = None
        return
    worst.tokens += one.calls * need.tokens
    share = batch_share(caller)
    if worst.usd is not None and (share is not None or worst.batch_usd is not None):
        before = worst.usd if worst.batch_usd is None else worst.batch_usd
        worst.batch_usd = before + one.calls * need.usd * (1.0 if share is None else share)
    if worst.usd is not None:
        worst.usd = worst.usd + one.calls * need.usd if caller.price is not None else None


def _prompt_of(one: PlannedStep) -> tuple[str, int | None, int | None]:
    """The prompt of a step, and its bounds on the reply and on the thinking."""
    step = one.step
    if isinstance(step, Prompt):
        text = "\n".join((*_texts_in(step.messages), step.prompt.text))
        return text, step.max_tokens, step.thinking_tokens
    facts: dict[str, Any] = step.facts if isinstance(step, Sample) else {}
    prompt = facts.get("prompt")
    text = "\n".join((*_texts_in(facts.get("messages")), *_texts_in(prompt)))
    most, thinking = facts.get("max_tokens"), facts.get("thinking_tokens")
    return (
        text,
        most if isinstance(most, int) else None,
        thinking if isinstance(thinking, int) else None,
    )


def _texts_in(value: Value) -> list[str]:
    """The texts of a value of the file, as they are written there."""
    if isinstance(value, (str, ExpressionText)):
        return [value if isinstance(value, str) else value.text]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts_in(part)]


def _model_of(one: PlannedStep, workflow: Workflow) -> str | None:
    step = one.step
    own = (
        step.model
        if isinstance(step, Prompt)
        else step.facts.get("model")
        if isinstance(step, Sample)
        else None
    )
    for value in (own, workflow.model):
        if isinstance(value, str):
            return value
        if isinstance(value, ExpressionText) and value.plain:
            return value.text
    return None


def _as_json(planned: list[PlannedStep], worst: _WorstCase) -> dict[str, Any]:
    steps = [
        {
            "id": one.step.common.id,
            "type": one.step.common.type,
            "line": one.step.common.line,
            "depth": one.depth,
            "times": one.times,
            "per": list(one.per),
            "width": one.width,
        }
        for one in planned
    ]
    return {
        "steps": steps,
        "calls": worst.calls,
        "tokens": worst.tokens,
        "usd": worst.usd,
        "note": f"tokens and cost are {NO_BOUND}",
    }


def rehearsal_of(choice: StoreChoice, wanted: str | None) -> Rehearsal:
    """A rehearsal with made-up outputs, or with those of a run where it has them."""
    if wanted is None:
        return Rehearsal()
    recorded: dict[str, dict[str, Any]] = {}
    with choice.existing() as store:
        for event in each_event(store, find_run(store, wanted).id, {ITEM_SETTLED}):
            value = (
                codec.decode(event.body)
                if event.data.get("state") == "done" and event.body
                else None
            )
            if isinstance(value, dict):
                recorded |= _outputs(event.path.split("/")[1:], value)
    return Rehearsal(recorded)


def _outputs(path: list[str], value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The outputs of steps in a recorded item, by full id."""
    if "steps" in value and "last" in value:
        return {name: plain["output"] for name, plain in value["steps"].items()}
    if len(path) == 1 and isinstance(value.get("output"), dict):
        return {path[0]: value["output"]}
    return {}


def check_tables(workflow: Workflow, config: Config) -> None:
    """Raise `UsageError` if a table of the configuration is wrong, or lacks a lane of a step."""
    config.runners()
    config.workflow()
    known = configured_lanes(config)
    missing = {name: line for name, line in lanes_of(workflow.steps).items() if name not in known}
    if missing:
        raise UsageError(
            "\n".join(
                f"{workflow.file}:{line}: there is no lane {name!r}; "
                f"declare it in abreast.toml as [lanes.{name}] with width = 4"
                for name, line in missing.items()
            )
        )


def check_runners(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any] | None = None
) -> None:
    """Raise `UsageError` if a command, anywhere in the file, has no agent or one without runner."""
    known, agents, here = config.runners(), config.agents(), Path.cwd()
    missing: dict[str, str] = {}
    for file, step, name in agents_of(workflow, inputs):
        is_agent = isinstance(step, Prompt) and step.common.type == AGENT
        if not (is_agent or isinstance(step, Command)) or name is None or name in known:
            continue
        if name and (
            resolve_integration(name, here) in known or find_integration(name, agents, here)
        ):
            continue
        place = f"{file}:{step.common.line}"
        if isinstance(step, Prompt):
            problem = f"there is no agent {name!r}, or it is not installed (abreast doctor)"
        elif not name:
            problem = (
                f"the command {step.command!r} is for an agent, and no integration says which: "
                "set integration: on the step or the workflow, "
                "and its command line under [runners.NAME]"
            )
        else:
            argv = f'argv = ["{"claude" if name == "auto" else name}", "-p", "{{prompt}}"]'
            problem = (
                f"there is no runner {name!r}; "
                f"declare it in abreast.toml as [runners.{name}] with {argv}"
            )
        missing.setdefault(name, f"{place}: {problem}")
    if missing:
        raise UsageError("\n".join(missing.values()))


def check_programs(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any], *, cwd: str
) -> None:
    """Raise `UsageError` for a step whose runner is a program that isn't installed."""
    runners = config.runners()
    for file, step, name in agents_of(workflow, inputs):
        if name in runners and not _is_program(program := runners[name].argv[0], cwd):
            raise UsageError(
                f"{file}:{step.common.line}: the runner {name!r} can't be started: "
                f"there is no command {program!r} here"
            )


def check_sight(workflow: Workflow, lanes: Mapping[str, LaneSettings], default: str | None) -> None:
    """Raise `UsageError` for a step with images whose model is known to see none."""
    for step in every(workflow.steps):
        if not isinstance(step, (Prompt, Sample)) or not has_images(step):
            continue
        own = step.model if isinstance(step, Prompt) else step.facts.get("model")
        model = own or workflow.model or default
        name = model.text if isinstance(model, ExpressionText) else model
        lane = lanes.get(str(name).partition("/")[0])
        if lane is not None and (why := refuses_files(lane)):
            raise UsageError(f"{workflow.file}:{step.common.line}: {why}")


def _is_program(program: str, cwd: str) -> bool:
    """Whether the program is on the PATH, or exists relative to `cwd`.

    True if its name contains a placeholder, whose value is not known yet.
    """
    path = str(Path(cwd, program)) if os.sep in program else program
    return "{" in program or shutil.which(path) is not None


def check_arguments(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any] | None = None
) -> None:
    """Raise `UsageError` for `integration_args` or `integration_options` without a place in argv.

    The runner of such a step would not pass them on. An agent named by an expression is checked if
    `inputs` are given, or else when the step runs.
    """
    asking = [
        one
        for one in agents_of(workflow, inputs)
        if isinstance(one.step, Command)
        and (one.step.integration_args or one.step.integration_options)
    ]
    if asking and (wrong := list(_refusals(asking, config.runners()))):
        raise UsageError("\n".join(wrong))


def _refusals(agents: list[Agent], runners: Mapping[str, Runner]) -> Iterator[str]:
    for file, step, name in agents:
        runner = runners.get(name) if name else None
        if runner is None or not isinstance(step, Command):
            continue
        options = step.integration_options if isinstance(step.integration_options, dict) else {}
        refused = runner.refuses(args=bool(step.integration_args), options=options)
        if refused:
            place = f"{file}:{step.common.line}: the step {step.common.id!r}"
            yield f"{place}: the runner {name!r} {refused}"
