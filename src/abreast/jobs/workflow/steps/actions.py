"""Actions: the steps that do work themselves (shell, prompt, command, python, sample, gate).

`configure` resolves a step's expressions into plain values; their digest says whether a recorded
result is still valid. `perform` runs the step and returns a Record. A failure is raised as
`StepHalted`, a gate without an answer as `StepPaused`; any other exception is a fault of a custom
kind, and ends the run.
"""

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
from abreast.core.item import escape
from abreast.jobs.files.expressions import ExpressionFailed, ExpressionText
from abreast.jobs.workflow.load.step_words import PROCESSES
from abreast.jobs.workflow.spec import (
    SHELL_TIMEOUT,
    Action,
    Command,
    Common,
    Custom,
    GateStep,
    Prompt,
    Python,
    Sample,
    Shell,
    Step,
    Value,
    Workflow,
)
from abreast.jobs.workflow.steps.records import (
    Record,
    StepFrame,
    StepHalted,
    StepPaused,
    part_name,
    status_of,
)
from abreast.jobs.workflow.steps.values import resolve
from abreast.jobs.workflow.tools import (
    AgentOptions,
    AgentRequest,
    AgentResult,
    CannotDo,
    GateQuestion,
    StepContext,
    TreeStart,
    WorkflowTools,
)
from abreast.models.chat_form import present
from abreast.models.conversation import has_files
from abreast.models.port import THINKING_OPTIONS
from abreast.models.schema import parse
from abreast.run.current import current_item
from abreast.run.retry import Retry

Config = dict[str, Any]

_NOT_RETRYABLE: Final = (KeyRefused, NoSuchModel, NotRecorded, QuotaSpent, RequestRefused, TooLong)
"""Errors that another attempt would only repeat; after others, the next reply may be better."""
GATE_ASKED: Final = "gate-asked"
"""The event that records the question of a gate; the gate's outcome answers it."""
_REJECTIONS: Final = ("reject", "abort")
DIRECTORY_VARIABLE: Final = "SPECKIT_WORKFLOW_DIR"
"""The directory of the workflow's file, in a shell step's environment; unset if it is in none."""
AGENT: Final = "agent"
"""The type of steps that only an agent runs, never a model."""
_CAPTURE_ALL: Final = -1  # as `capture_max_bytes`: keep all that was written


def configure(step: Action, frame: StepFrame, flow: Workflow) -> Config:
    """Resolve the step's settings in this frame, in JSON's types.

    `ExpressionFailed` if an expression can't be evaluated.
    """
    return _CONFIGURE[type(step)](step, frame, flow) | _process_config(step.common, frame)


def holds(condition: ExpressionText | bool, frame: StepFrame) -> bool:  # noqa: FBT001 - a file's value
    """Return whether a condition holds in this frame."""
    return condition if isinstance(condition, bool) else condition.truth(frame.names)


def retry_of(common: Common) -> int | Retry | None:
    """Return the retry option of a step's map."""
    delayed = common.retry and common.retry_delay is not None
    return Retry(common.retry, fixed=common.retry_delay) if delayed else common.retry or None


def _process_config(common: Common, frame: StepFrame) -> Config:
    """Resolve `env` and `cwd` of a step's process.

    Empty where the step has neither, so that recorded digests of such steps stay valid.
    """
    found: Config = {}
    if common.env:
        found["env"] = {
            name: _text(resolve(value, frame.names)) for name, value in common.env.items()
        }
    if common.cwd is not None:
        found["cwd"] = _text(resolve(common.cwd, frame.names))
    tree = frame.tree if common.type in PROCESSES else None
    if tree is not None:
        start = TreeStart(tree.part, tree.base, tree.after)
        found["worktree"] = {word: one for word, one in start._asdict().items() if one is not None}
    elif common.worktree:
        found["worktree"] = {"part": part_name(f"{frame.run.path}/{escape(common.id)}")}
    return found


def _process_options(config: Config) -> Config:
    found = {word: config[word] for word in ("cwd", "env") if word in config}
    return found | ({"tree": TreeStart(**config["worktree"])} if "worktree" in config else {})


def has_images(step: Action) -> bool:
    """Return whether a step sends images or PDF files."""
    if isinstance(step, Sample):
        return step.facts.get("images") is not None
    return isinstance(step, Prompt) and step.images is not None


def may_have_files(step: Action) -> bool:
    """Return whether a step may send images or PDF files, on their own or in messages."""
    if has_images(step):
        return True
    given = step.facts if isinstance(step, Sample) else {}
    return (step.messages if isinstance(step, Prompt) else given.get("messages")) is not None


def content_of(tools: WorkflowTools, step: Action, config: Config) -> Config:
    """Return what is recorded of a step's files: their content, wherever they are.

    `CannotDo` for a file that can't be sent.
    """
    found: Config = {}
    if has_images(step):
        found["images"] = tools.marks(config["images"])
    if has_files(config.get("messages")):
        found["message_files"] = tools.message_marks(config["messages"])
    return found


def with_shared_prefix(step: Action, frame: StepFrame, config: Config) -> Config:
    """Return the config of a prompt with the length of what begins those of other items too.

    It is no part of the recorded config: it says how the prompt is sent, not what is asked.
    """
    if not isinstance(step, Prompt) or "messages" in config:
        return config
    beginning = step.prompt.beginning(frame.names, frame.is_constant)
    shared = len(beginning) if config["prompt"].startswith(beginning) else 0
    return {**config, "shared_prefix": shared}


async def perform(
    tools: WorkflowTools, step: Action, config: Config, context: StepContext
) -> dict[str, Any]:
    """Run an action with its config; returns a plain Record."""
    common = step.common
    try:
        record = await _PERFORM[type(step)](tools, step, config, context)
    except CannotDo as error:
        raise StepHalted(
            failed(common, str(error), {"exit_code": 1, "dispatched": False}), retryable=False
        ) from error
    except CallFailed as error:
        text = {"text": error.raw} if isinstance(error, ReplyInvalid) else {}
        retryable = False if isinstance(error, _NOT_RETRYABLE) else None
        record = failed(common, str(error), {"exit_code": 1, **text})
        raise StepHalted(record, retryable=retryable) from error
    if record.fate == "failed":
        raise StepHalted(record)
    if record.fate == "paused":
        raise StepPaused(record)
    return record.plain()


def failed(common: Common, error: str, output: Mapping[str, Any] | None = None) -> Record:
    """Return the record of a failed step; `error` is one sentence."""
    return Record(common.type, "failed", dict(output or {}), error, "failed")


def timeout_of(step: Step) -> float | None:
    """Return the seconds that one attempt of the step may take."""
    default = SHELL_TIMEOUT if isinstance(step, Shell) else None
    return default if step.common.timeout is None else step.common.timeout


def record_of(step: Step, error: BaseException) -> Record:
    """Return the record that a step's error carries or stands for."""
    if isinstance(error, (StepHalted, StepPaused)):
        return error.record
    if isinstance(error, TimedOut):
        is_process = isinstance(step, (Shell, Prompt, Command))
        output = {"exit_code": -1, "stdout": "", "stderr": "timeout"} if is_process else {}
        return failed(step.common, f"it took longer than {timeout_of(step):g} seconds", output)
    if isinstance(error, RecordedError):
        return failed(step.common, error.message, _mapping(error.details.get("output")))
    return failed(step.common, str(error))


def composite_record(step: Step, output: dict[str, Any], halted: Record | None) -> Record:
    """Return the record of a step that contains steps: its fate is that of the one that halted."""
    record = Record(step.common.type, "completed", output)
    return (
        record
        if halted is None
        else replace(
            record,
            status=status_of(halted.fate),
            error=halted.error,
            fate=halted.fate,
            halted_at=halted.halted_at,
        )
    )


# --- shell ----------------------------------------------------------------------------------------


async def _shell(tools: WorkflowTools, step: Shell, config: Config, context: StepContext) -> Record:
    options = _process_options(config)
    env = {DIRECTORY_VARIABLE: context.workflow_dir or None, **options.pop("env", {})}
    result = await tools.shell(config["run"], env=env, **options)
    output: dict[str, Any] = {
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        **result.facts,
    }
    if result.exit_code:
        return failed(step.common, _failure_text(result), output)
    if result.cut:
        written = f"it wrote {len(result.stdout) + result.cut} bytes"
        kept = f"{tools.max_output} are kept; let it write to a file"
        return failed(step.common, f"{written} and {kept}", output)
    if step.json:
        try:
            output["data"] = json.loads(result.stdout)
        except (ValueError, RecursionError) as error:
            return failed(
                step.common,
                f"it declares output_format: json, and its stdout is no JSON: {error}",
                output,
            )
    return _check_schema(step.common, output, output.get("data", result.stdout))


def _failure_text(result: AgentResult) -> str:
    code = result.exit_code
    text = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    lines = result.stderr.strip().splitlines()
    return f"{text}: {lines[-1].strip()[:200]}" if lines else text


# --- prompt and command ---------------------------------------------------------------------------


def _prompt_config(step: Prompt, frame: StepFrame, flow: Workflow) -> Config:
    prompt = resolve(step.prompt, frame.names)
    system = resolve(step.system, frame.names)
    return {
        "prompt": _text(prompt),
        "integration": _first_name(step.integration, flow.integration, frame),
        "model": _first_name(step.model, flow.model, frame),
        "system": None if system is None else _text(system),
        "temperature": step.temperature,
        "max_tokens": step.max_tokens,
        "schema": None if step.common.output_schema is None else dict(step.common.output_schema),
        **({"allow": list(step.allow)} if step.allow else {}),
        **_images_config(step.images, frame),
        **_capture_config(step),
        **_messages_config(step.messages, frame),
        **present(reasoning=step.reasoning, thinking_tokens=step.thinking_tokens),
    }


def _images_config(images: Value, frame: StepFrame) -> Config:
    """Return the paths of a step's images; empty where it has none, as recorded digests had it."""
    found = resolve(images, frame.names)
    if found is None:
        return {}
    paths: list[str] = []
    for one in found if isinstance(found, list) else [found]:
        for each in one if isinstance(one, list) else [one]:
            path = each.get("image") if isinstance(each, dict) else each
            if not isinstance(path, str) or not path:
                raise ExpressionFailed(f"images must be paths, and one is {each!r:.60}")
            paths.append(path)
    return {"images": paths}


def _messages_config(messages: Value, frame: StepFrame) -> Config:
    """Return a step's messages; empty where it has none, as recorded digests had it."""
    found = resolve(messages, frame.names)
    if found is None:
        return {}
    if not isinstance(found, list):
        raise ExpressionFailed(f"messages must be a list of messages, not {found!r:.60}")
    return {"messages": [_with_text(one) for one in found]}


def _with_text(message: object) -> object:
    """Return a message whose content is a text also where an expression gave a number."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), (int, float)):
        return message
    return {**message, "content": _text(message["content"])}


async def _prompt(
    tools: WorkflowTools, step: Prompt, config: Config, _context: StepContext
) -> Record:
    common, prompt, integration = step.common, config["prompt"], config["integration"]
    output = {"prompt": prompt, "integration": integration, "model": config["model"]}
    messages = config.get("messages")
    if not prompt.strip() and messages is None:
        return failed(common, "the prompt is empty", output)
    options = _process_options(config)
    result, images = None, tuple(config.get("images", ()))
    if integration and images:
        raise CannotDo("images are for a model: take out integration, or name them in the prompt")
    if integration and messages is not None:
        raise CannotDo("messages are for a model: take out integration, or write them as a prompt")
    if integration:
        allowed = {"allow": list(step.allow)} if step.allow else {}
        more = AgentOptions(options=allowed, keep=_keep_bytes(step))
        result = await tools.agent(integration, prompt, config["model"], more, **options)
    if result is not None:
        return _agent_record(step, result, output)
    if fault := _refuse_for_model(common, integration, options):
        return failed(common, fault, output)
    words = ("model", "system", "schema", "temperature", "max_tokens", *THINKING_OPTIONS)
    asked = {word: config.get(word) for word in (*words, "shared_prefix")}
    reply = await tools.ask(AgentRequest(prompt, **asked, images=images, messages=messages))
    text = reply.text
    if (keep := _keep_bytes(step)) is not None:
        text = text.encode("utf-8", "surrogatepass")[:keep].decode("utf-8", "ignore")
    output |= {
        "model": config["model"] or tools.default_model,
        "text": text,
        "stdout": text,
        "stderr": "",
        "exit_code": 0,
        "dispatched": True,
        **_truncation(step, stdout=text != reply.text),
    }
    if config["schema"] is not None:
        output["data"] = reply.value
    return Record(common.type, "completed", output)


def _refuse_for_model(common: Common, integration: str | None, options: Config) -> str | None:
    """Return which of a step's options a model can't keep; `CannotDo` for an agent's own step."""
    if common.type == AGENT:
        raise CannotDo(f"there is no agent {integration!r} here, or it is not installed")
    # In the worktree of its item a model changes no files.
    own = [word for word in options if word != "tree"] + ["worktree"] * common.worktree
    if not own:
        return None
    return f"{' and '.join(own)} are for an agent's command line, and a model is asked here"


def _capture_config(step: Prompt | Command) -> Config:
    """Return `capture_max_bytes` where the step sets it; a default is no part of the digest."""
    return {} if step.capture_max_bytes is None else {"capture_max_bytes": step.capture_max_bytes}


def _keep_bytes(step: Prompt | Command) -> int | None:
    return None if step.capture_max_bytes == _CAPTURE_ALL else step.capture_max_bytes


def _truncation(step: Prompt | Command, *, stdout: bool, stderr: bool = False) -> Config:
    """Return which streams were cut, with `capture` in all the fields that spec-kit has.

    Without `capture`, only the streams that were cut.
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
    if wrong := [one for one in args if not isinstance(one, str)]:
        raise ExpressionFailed(f"integration_args must be texts, and one is {wrong[0]!r}")
    own = _mapping(resolve(step.integration_options, frame.names))
    return {
        "command": step.command,
        "input": given if isinstance(given, dict) else {},
        "options": options,
        "integration": _first_name(step.integration, flow.integration, frame),
        "model": _first_name(step.model, flow.model, frame),
        **({"integration_args": args} if args else {}),
        **({"integration_options": own} if own else {}),
        **_capture_config(step),
    }


async def _command(
    tools: WorkflowTools, step: Command, config: Config, _context: StepContext
) -> Record:
    name, integration = config["command"], config["integration"]
    arguments = _text(config["input"].get("args", ""))
    slash = name if name.startswith("/") else f"/{name}"
    if not integration:
        raise CannotDo(
            f"{slash} is a command for an agent, and no integration says which: set integration: "
            "on the step or the workflow, and its command line under [runners.NAME] in abreast.toml"
        )
    args, options = config.get("integration_args", []), config.get("integration_options", {})
    more = AgentOptions(tuple(args), options, _keep_bytes(step))
    prompt = f"{slash} {arguments}".strip()
    result = await tools.agent(
        integration, prompt, config["model"], more, **_process_options(config)
    )
    if result is None:
        program = "claude" if integration == "auto" else integration
        raise CannotDo(
            f"{slash} is for the agent {integration!r}, which has no runner here: write its "
            f"command line into abreast.toml, as in [runners.{integration}] "
            f'argv = ["{program}", "-p", "{{prompt}}"]'
        )
    settings = {
        word: value for word, value in config.items() if word not in ("cwd", "env", "worktree")
    }
    output = {**settings, "integration_args": args, "integration_options": options}
    return _agent_record(step, result, output)


def _agent_record(step: Prompt | Command, result: AgentResult, output: dict[str, Any]) -> Record:
    common, lost = step.common, result.cut + result.stderr_cut
    output |= {
        "text": result.stdout,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exit_code": result.exit_code,
        "dispatched": True,
        **result.facts,
        **_truncation(step, stdout=result.cut > 0, stderr=result.stderr_cut > 0),
    }
    output.pop("capture_max_bytes", None)
    if result.exit_code:
        return failed(common, _failure_text(result), output)
    if step.capture_max_bytes == _CAPTURE_ALL and lost:
        error = (
            f"{lost} bytes of what it wrote are not kept, and capture_max_bytes: -1 asks for all; "
            "raise max_output under [workflow] in abreast.toml"
        )
        return failed(common, error, output)
    return _check_schema(common, output, result.stdout)


# --- python, sample, custom kinds -----------------------------------------------------------------


async def _python(
    tools: WorkflowTools, step: Python, config: Config, _context: StepContext
) -> Record:
    keywords = deepcopy(config["with"])  # the function may change them
    try:
        value = await tools.call(config["call"], keywords)
    except (CannotDo, Stopped):  # the run's end is no failure of the function
        raise
    except Exception as error:  # noqa: BLE001 - a function may raise anything
        return failed(step.common, f"{type(error).__name__}: {error}")
    return _value_record(step.common, value, config["call"])


def _sample_config(step: Sample, frame: StepFrame, flow: Workflow) -> Config:
    facts = {word: resolve(value, frame.names) for word, value in step.facts.items()}
    model = _first_name(None, flow.model, frame)
    images = _images_config(step.facts.get("images"), frame)
    messages = _messages_config(step.facts.get("messages"), frame)
    return {**({"model": model} if model else {}), **facts, **images, **messages}


async def _sample(
    tools: WorkflowTools, step: Sample, config: Config, _context: StepContext
) -> Record:
    item = current_item()
    if item is None:
        raise RuntimeError("a sample step runs inside an item of a run")
    output = await tools.sample(item.run, config)
    return (
        Record(step.common.type, "completed", output)
        if output.get("ok")
        else failed(step.common, "no draw passed its checks", output)
    )


async def _custom(
    tools: WorkflowTools, step: Custom, config: Config, context: StepContext
) -> Record:
    # Copies, because the kind may change them.
    copied = replace(context, inputs=deepcopy(context.inputs), item=deepcopy(context.item))
    kind = step.common.type
    try:
        value = await tools.custom(kind, deepcopy(config), copied)
    except Exception as error:
        error.add_note(f"in the step {context.step!r} of type {kind!r}")
        raise
    return _value_record(step.common, value, kind)


def _value_record(common: Common, value: object, function: str) -> Record:
    """Return the record of a step whose function returned a value."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return failed(common, f"{function} gave what has no form in JSON: {error}")
    output = plain if isinstance(plain, dict) else {"value": plain}
    return _check_schema(common, output, plain)


def _check_schema(common: Common, output: dict[str, Any], value: object) -> Record:
    """Return a completed record if the value obeys the step's schema; a text is parsed first."""
    if common.output_schema is not None:
        text = value if isinstance(value, str) else json.dumps(value)
        try:
            output["data"] = parse(text, common.output_schema, who="the output")
        except ReplyInvalid as error:
            return failed(common, str(error), output)
    return Record(common.type, "completed", output)


# --- gate -----------------------------------------------------------------------------------------


def _gate_config(step: GateStep, frame: StepFrame, _flow: Workflow) -> Config:
    message, shown = resolve(step.message, frame.names), resolve(step.show_file, frame.names)
    return {
        "message": _text(message),
        "options": list(step.options),
        "on_reject": step.on_reject,
        "show_file": None if shown is None else _text(shown),
        "verdict": frame.names["inputs"].get(step.verdict_input),
    }


async def _gate(
    tools: WorkflowTools, step: GateStep, config: Config, context: StepContext
) -> Record:
    common = step.common
    output = {word: config[word] for word in ("message", "options", "on_reject", "show_file")} | {
        "choice": None
    }
    verdict = config["verdict"] if context.verdict is None else context.verdict
    if verdict not in (None, ""):
        choice = next((one for one in step.options if one.lower() == str(verdict).lower()), None)
        if choice is None:
            return failed(
                common, f"the verdict {verdict!r} is none of {', '.join(step.options)}", output
            )
    else:
        _record_question(context.step, output)
        choice = await tools.decide(
            GateQuestion(context.step, config["message"], step.options, config["show_file"])
        )
        if choice is None:
            why = f"the gate {context.step!r} waits for a decision"
            return Record(common.type, "paused", output, why, "paused")
    output["choice"] = choice
    if choice.lower() in _REJECTIONS:
        if step.on_reject == "abort":
            why = f"the gate {context.step!r} was rejected"
            return Record(common.type, "failed", {**output, "aborted": True}, why, "aborted")
        if step.on_reject == "retry":
            _record_question(context.step, output)
            why = f"the gate {context.step!r} was rejected, and is asked again when the run goes on"
            return Record(common.type, "paused", output, why, "paused")
    return Record(common.type, "completed", output)


def _record_question(gate: str, output: Mapping[str, Any]) -> None:
    """Journal the question of a gate.

    A pause records no outcome, and a user who decides elsewhere must see the question.
    """
    item = current_item()
    if item is not None:
        item.run.note(GATE_ASKED, {"gate": gate}, value=dict(output))


# --- values ---------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _first_name(own: Value, default: Value, frame: StepFrame) -> str | None:
    """Return the step's own name, else the workflow's default, else None."""
    found = (resolve(value, frame.names) for value in (own, default))
    return next((_text(one) for one in found if one not in (None, "")), None)


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


_CONFIGURE: Final[dict[type, Callable[[Any, StepFrame, Workflow], Config]]] = {
    Shell: lambda step, frame, _: {"run": step.run.render(frame.names)},
    Prompt: _prompt_config,
    Command: _command_config,
    Python: lambda step, frame, _: {
        "call": step.call,
        "with": _mapping(resolve(step.given, frame.names)),
    },
    Sample: _sample_config,
    Custom: lambda step, frame, _: _mapping(resolve(step.config, frame.names)),
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
