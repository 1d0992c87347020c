"""Steps that do something themselves: what each is asked for, and what comes of it.

`configure` resolves a step's expressions into plain values, whose digest says whether a recorded result is still the
step's; `perform` does it, and gives a Record. A failure is raised as `StepHalted`, a gate nobody answers as
`StepPaused`; anything else that is raised is a fault of a kind's own, and ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from abreast.core.errors import (
    CallFailed,
    KeyRefused,
    NoSuchModel,
    NotRecorded,
    QuotaSpent,
    RecordedError,
    ReplyInvalid,
    RequestRefused,
    Stopped,
    TimedOut,
    TooLong,
)
from abreast.jobs.files.expressions import ExpressionFailed
from abreast.jobs.workflow.spec import (
    SHELL_TIMEOUT,
    Command,
    Common,
    Custom,
    GateStep,
    Leaf,
    Prompt,
    Python,
    Sample,
    Shell,
    Step,
    Value,
    Workflow,
)
from abreast.jobs.workflow.steps.records import Record, StepFrame, StepHalted, StepPaused
from abreast.jobs.workflow.steps.values import resolve
from abreast.jobs.workflow.tools import (
    AgentOptions,
    AgentRequest,
    AgentResult,
    CannotDo,
    GateQuestion,
    StepContext,
    WorkflowTools,
)
from abreast.models.schema import parse
from abreast.run.current import current_item
from abreast.run.retry import Retry
from abreast.store.codec import codec

Config = dict[str, Any]

_HOPELESS: Final = (KeyRefused, NoSuchModel, NotRecorded, QuotaSpent, RequestRefused, TooLong)
"""Asked again, the answer would be the same; other replies may be better the next time."""
GATE_ASKED: Final = "gate-asked"
"""The event that keeps what a gate asks, until the gate's own outcome answers it."""
_REJECTIONS: Final = ("reject", "abort")
DIRECTORY_VARIABLE: Final = "SPECKIT_WORKFLOW_DIR"
"""Tells a shell step the directory of its workflow's file; unset if it is in none."""
_ALL: Final = -1  # as `capture_max_bytes`: all that was written


def configure(step: Leaf, frame: StepFrame, flow: Workflow) -> Config:
    """What the step is asked to do here, in JSON's types.

    `ExpressionFailed` if an expression can't be evaluated.
    """
    return _CONFIGURE[type(step)](step, frame, flow) | _process(step.common, frame)


def runs(step: Step, frame: StepFrame) -> bool:
    """What the step's `if` says here."""
    when = step.common.when
    return when if isinstance(when, bool) else when.truth(frame.names)


def skipped(common: Common) -> Record:
    """Of a step whose `if` does not hold."""
    return Record(common.type, "skipped", {})


def retry_of(common: Common) -> int | Retry | None:
    """How a step is tried again."""
    if not common.retry or common.retry_delay is None:
        return common.retry or None
    return Retry(common.retry, fixed=common.retry_delay)


def _process(common: Common, frame: StepFrame) -> Config:
    """What a step says of its process.

    Nothing for all others, whose recorded digests stay as they are.
    """
    found: Config = {}
    if common.env:
        found["env"] = {
            name: _text(resolve(value, frame.names)) for name, value in common.env.items()
        }
    if common.cwd is not None:
        found["cwd"] = _text(resolve(common.cwd, frame.names))
    return found


def _place(config: Config) -> Config:
    return {word: config[word] for word in ("cwd", "env") if word in config}


async def perform(
    kit: WorkflowTools, step: Leaf, config: Config, context: StepContext
) -> dict[str, Any]:
    """Do it; a plain Record."""
    common = step.common
    try:
        record = await _PERFORM[type(step)](kit, step, config, context)
    except CannotDo as error:
        output: Config = {"exit_code": 1, "dispatched": False}
        raise StepHalted(failed(common, str(error), output), retryable=False) from error
    except CallFailed as error:
        output = (
            {"exit_code": 1, "text": error.raw}
            if isinstance(error, ReplyInvalid)
            else {"exit_code": 1}
        )
        hopeless = isinstance(error, _HOPELESS)
        raise StepHalted(
            failed(common, str(error), output), retryable=False if hopeless else None
        ) from error
    if record.fate == "failed":
        raise StepHalted(record)
    if record.fate == "paused":
        raise StepPaused(record)
    return record.plain()


def failed(common: Common, error: str, output: Mapping[str, Any] | None = None) -> Record:
    """A failure in one sentence."""
    return Record(common.type, "failed", dict(output or {}), error, "failed")


def timeout_of(step: Step) -> float | None:
    """Seconds that one attempt may take."""
    own = step.common.timeout
    return SHELL_TIMEOUT if own is None and isinstance(step, Shell) else own


def record_of(step: Step, error: BaseException) -> Record:
    """What a failed step's error says of it."""
    if isinstance(error, (StepHalted, StepPaused)):
        return error.record
    if isinstance(error, TimedOut):
        return _timed_out(step)
    if isinstance(error, RecordedError):
        output = error.details.get("output")
        return failed(step.common, error.message, output if isinstance(output, dict) else None)
    return failed(step.common, str(error))


def _timed_out(step: Step) -> Record:
    output = (
        {"exit_code": -1, "stdout": "", "stderr": "timeout"}
        if isinstance(step, (Shell, Prompt, Command))
        else {}
    )
    return failed(step.common, f"it took longer than {timeout_of(step):g} seconds", output)


# --- shell ------------------------------------------------------------------------------------------------------------


def _shell_config(step: Shell, frame: StepFrame, _flow: Workflow) -> Config:
    return {"run": step.run.render(frame.names)}


async def _shell(kit: WorkflowTools, step: Shell, config: Config, context: StepContext) -> Record:
    place = _place(config)
    env = {DIRECTORY_VARIABLE: context.workflow_dir or None, **place.pop("env", {})}
    ran = await kit.shell(config["run"], env=env, **place)
    output: dict[str, Any] = {
        "exit_code": ran.exit_code,
        "stdout": ran.stdout,
        "stderr": ran.stderr,
    }
    if ran.exit_code:
        return failed(step.common, _how(ran), output)
    if ran.cut:
        said = f"it wrote {len(ran.stdout) + ran.cut} bytes and {kit.max_output} are kept; let it write to a file"
        return failed(step.common, said, output)
    if step.json:
        try:
            output["data"] = json.loads(ran.stdout)
        except (ValueError, RecursionError) as error:
            return failed(
                step.common,
                f"it declares output_format: json, and its stdout is no JSON: {error}",
                output,
            )
    return _obeying(step.common, output, output.get("data", ran.stdout))


def _how(ran: AgentResult) -> str:
    code = ran.exit_code
    said = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    lines = ran.stderr.strip().splitlines()
    return f"{said}: {lines[-1].strip()[:200]}" if lines else said


# --- prompt and command -----------------------------------------------------------------------------------------------


def _prompt_config(step: Prompt, frame: StepFrame, flow: Workflow) -> Config:
    prompt = resolve(step.prompt, frame.names)
    system = resolve(step.system, frame.names)
    return {
        "prompt": _text(prompt),
        "integration": _named(step.integration, flow.integration, frame),
        "model": _named(step.model, flow.model, frame),
        "system": None if system is None else _text(system),
        "temperature": step.temperature,
        "max_tokens": step.max_tokens,
        "schema": None if step.common.output_schema is None else dict(step.common.output_schema),
        **_kept(step),
    }


async def _prompt(
    kit: WorkflowTools, step: Prompt, config: Config, _context: StepContext
) -> Record:
    common, prompt, integration = step.common, config["prompt"], config["integration"]
    output = {"prompt": prompt, "integration": integration, "model": config["model"]}
    if not prompt.strip():
        return failed(common, "the prompt is empty", output)
    more = AgentOptions(keep=_keep(step))
    ran = (
        await kit.agent(integration, prompt, config["model"], more, **_place(config))
        if integration
        else None
    )
    if ran is not None:
        return _from_agent(step, ran, output)
    if place := _place(config):
        return failed(
            common,
            f"{' and '.join(place)} are for an agent's command line, and a model is asked here",
            output,
        )
    asked = AgentRequest(
        prompt,
        config["model"],
        config["system"],
        config["schema"],
        config["temperature"],
        config["max_tokens"],
    )
    reply = await kit.ask(asked)
    whole = reply.text.encode("utf-8", "surrogatepass")
    text = reply.text if (keep := _keep(step)) is None else whole[:keep].decode("utf-8", "ignore")
    output |= {
        "model": config["model"] or kit.default_model,
        "text": text,
        "stdout": text,
        "stderr": "",
        "exit_code": 0,
        "dispatched": True,
        **_captured(step, stdout=text != reply.text),
    }
    if config["schema"] is not None:
        output["data"] = reply.value
    return Record(common.type, "completed", output)


def _kept(step: Prompt | Command) -> Config:
    """How much is kept, where the step says that: what it does not say is no part of what was asked."""
    return {} if step.capture_max_bytes is None else {"capture_max_bytes": step.capture_max_bytes}


def _keep(step: Prompt | Command) -> int | None:
    return None if step.capture_max_bytes == _ALL else step.capture_max_bytes


def _captured(step: Prompt | Command, *, stdout: bool, stderr: bool = False) -> Config:
    """Which streams were cut: all that spec-kit tells of a captured output.

    Without `capture` only a cut.
    """
    if step.capture:
        return {
            "stdout_truncated": stdout,
            "stderr_truncated": stderr,
            "timed_out": False,
            "interrupted": False,
        }
    return {
        f"{name}_truncated": True for name, cut in (("stdout", stdout), ("stderr", stderr)) if cut
    }


def _command_config(step: Command, frame: StepFrame, flow: Workflow) -> Config:
    given = resolve(step.common.input, frame.names)
    options = {
        **_mapping(resolve(flow.options, frame.names)),
        **_mapping(resolve(step.options, frame.names)),
    }
    args = [resolve(one, frame.names) for one in step.integration_args]
    if args and not all(isinstance(one, str) for one in args):
        wrong = next(one for one in args if not isinstance(one, str))
        raise ExpressionFailed(f"integration_args must be texts, and one is {wrong!r}")
    own = _mapping(resolve(step.integration_options, frame.names))
    return {
        "command": step.command,
        "input": given if isinstance(given, dict) else {},
        "options": options,
        "integration": _named(step.integration, flow.integration, frame),
        "model": _named(step.model, flow.model, frame),
        **({"integration_args": args} if args else {}),
        **({"integration_options": own} if own else {}),
        **_kept(step),
    }


async def _command(
    kit: WorkflowTools, step: Command, config: Config, _context: StepContext
) -> Record:
    name, integration = config["command"], config["integration"]
    arguments = _text(config["input"].get("args", ""))
    slash = name if name.startswith("/") else f"/{name}"
    if not integration:
        raise CannotDo(
            f"{slash} is a command for an agent, and no integration says which: set integration: on the "
            "step or the workflow, and its command line under [runners.NAME] in abreast.toml"
        )
    args, options = config.get("integration_args", []), config.get("integration_options", {})
    more = AgentOptions(tuple(args), options, _keep(step))
    ran = await kit.agent(
        integration, f"{slash} {arguments}".strip(), config["model"], more, **_place(config)
    )
    if ran is None:
        program = "claude" if integration == "auto" else integration
        raise CannotDo(
            f"{slash} is for the agent {integration!r}, which has no runner here: write its command line "
            f'into abreast.toml, as in [runners.{integration}] argv = ["{program}", "-p", "{{prompt}}"]'
        )
    told = {word: value for word, value in config.items() if word not in ("cwd", "env")}
    return _from_agent(
        step, ran, {**told, "integration_args": args, "integration_options": options}
    )


def _from_agent(step: Prompt | Command, ran: AgentResult, output: dict[str, Any]) -> Record:
    common = step.common
    output |= {
        "text": ran.stdout,
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        "exit_code": ran.exit_code,
        "dispatched": True,
        **_captured(step, stdout=ran.cut > 0, stderr=ran.stderr_cut > 0),
    }
    output.pop("capture_max_bytes", None)
    if ran.exit_code:
        return failed(common, _how(ran), output)
    if step.capture_max_bytes == _ALL and ran.cut + ran.stderr_cut:
        left = f"{ran.cut + ran.stderr_cut} bytes of what it wrote are not kept, and capture_max_bytes: -1 asks for all"
        return failed(common, f"{left}; raise max_output under [workflow] in abreast.toml", output)
    return _obeying(common, output, ran.stdout)


# --- python, sample, kinds of others ----------------------------------------------------------------------------------


def _python_config(step: Python, frame: StepFrame, _flow: Workflow) -> Config:
    return {"call": step.call, "with": _mapping(resolve(step.given, frame.names))}


async def _python(
    kit: WorkflowTools, step: Python, config: Config, _context: StepContext
) -> Record:
    try:
        value = await kit.call(
            config["call"], deepcopy(config["with"])
        )  # it may change what it is given
    except (CannotDo, Stopped):  # the run's end is no failure of the function
        raise
    except Exception as error:  # noqa: BLE001 - the function's own
        return failed(step.common, f"{type(error).__name__}: {error}")
    return _given(step.common, value, config["call"])


def _sample_config(step: Sample, frame: StepFrame, flow: Workflow) -> Config:
    facts = {word: resolve(value, frame.names) for word, value in step.facts.items()}
    model = _named(None, flow.model, frame)
    return {**({"model": model} if model else {}), **facts}


async def _sample(
    kit: WorkflowTools, step: Sample, config: Config, _context: StepContext
) -> Record:
    item = current_item()
    if item is None:
        raise RuntimeError("a sample step runs inside an item of a run")
    output = await kit.sample(item.run, config)
    if output.get("ok"):
        return Record(step.common.type, "completed", output)
    return failed(step.common, "no draw passed its checks", output)


def _custom_config(step: Custom, frame: StepFrame, _flow: Workflow) -> Config:
    return {word: resolve(value, frame.names) for word, value in step.config.items()}


async def _custom(kit: WorkflowTools, step: Custom, config: Config, context: StepContext) -> Record:
    own = replace(
        context, inputs=deepcopy(context.inputs), item=deepcopy(context.item)
    )  # it may change them
    kind = step.common.type
    try:
        found = await kit.custom(kind, deepcopy(config), own)
    except Exception as error:
        error.add_note(f"in the step {context.step!r} of type {kind!r}")
        raise
    return _given(step.common, found, kind)


def _given(common: Common, value: object, who: str) -> Record:
    """What a function gave, as an output."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return failed(common, f"{who} gave what has no form in JSON: {error}")
    output = plain if isinstance(plain, dict) else {"value": plain}
    return _obeying(common, output, plain)


def _obeying(common: Common, output: dict[str, Any], value: object) -> Record:
    """A success, if the value obeys the step's schema; a text is read as JSON first."""
    if common.output_schema is not None:
        text = value if isinstance(value, str) else json.dumps(value)
        try:
            output["data"] = parse(text, common.output_schema, who="the output")
        except ReplyInvalid as error:
            return failed(common, str(error), output)
    return Record(common.type, "completed", output)


# --- gate -------------------------------------------------------------------------------------------------------------


def _gate_config(step: GateStep, frame: StepFrame, _flow: Workflow) -> Config:
    message, shown = resolve(step.message, frame.names), resolve(step.show_file, frame.names)
    return {
        "message": _text(message),
        "options": list(step.options),
        "on_reject": step.on_reject,
        "show_file": None if shown is None else _text(shown),
        "verdict": None if step.verdict_input is None else frame.inputs.get(step.verdict_input),
    }


async def _gate(kit: WorkflowTools, step: GateStep, config: Config, context: StepContext) -> Record:
    common = step.common
    output = {word: config[word] for word in ("message", "options", "on_reject", "show_file")} | {
        "choice": None
    }
    verdict = config["verdict"] if context.verdict is None else context.verdict
    choice: str | None = None
    if verdict not in (None, ""):
        choice = next((one for one in step.options if one.lower() == str(verdict).lower()), None)
        if choice is None:
            return failed(
                common, f"the verdict {verdict!r} is none of {', '.join(step.options)}", output
            )
    if choice is None:
        _say_asked(context.step, output)
        choice = await kit.decide(
            GateQuestion(context.step, config["message"], step.options, config["show_file"])
        )
    if choice is None:
        return Record(
            common.type,
            "paused",
            output,
            f"the gate {context.step!r} waits for a decision",
            "paused",
        )
    output["choice"] = choice
    if choice.lower() in _REJECTIONS:
        if step.on_reject == "abort":
            output["aborted"] = True
            return Record(
                common.type, "failed", output, f"the gate {context.step!r} was rejected", "aborted"
            )
        if step.on_reject == "retry":
            _say_asked(context.step, output)
            why = f"the gate {context.step!r} was rejected, and is asked again when the run goes on"
            return Record(common.type, "paused", output, why, "paused")
    return Record(common.type, "completed", output)


def _say_asked(gate: str, output: Mapping[str, Any]) -> None:
    """Journal what a gate asks: a pause records no outcome, and whoever decides elsewhere must see the question."""
    item = current_item()
    if item is not None and (journal := item.drive.setting.journal) is not None:
        journal.emit(
            GATE_ASKED, item.path, data={"gate": gate}, body=codec.encode(dict(output), item.path)
        )


# --- texts ------------------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _named(own: Value, default: Value, frame: StepFrame) -> str | None:
    """The first of the two that names something."""
    for value in (own, default):
        found = resolve(value, frame.names)
        if found not in (None, ""):
            return _text(found)
    return None


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


_CONFIGURE: Final[dict[type, Callable[[Any, StepFrame, Workflow], Config]]] = {
    Shell: _shell_config,
    Prompt: _prompt_config,
    Command: _command_config,
    Python: _python_config,
    Sample: _sample_config,
    Custom: _custom_config,
    GateStep: _gate_config,
}
_PERFORM: Final[
    dict[type, Callable[[WorkflowTools, Any, Config, StepContext], Awaitable[Record]]]
] = {
    Shell: _shell,
    Prompt: _prompt,
    Command: _command,
    Python: _python,
    Sample: _sample,
    Custom: _custom,
    GateStep: _gate,
}
