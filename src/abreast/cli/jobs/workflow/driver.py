"""Drives a workflow, new or resumed, from its file to its exit code."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from abreast.assembly.names import lane_of
from abreast.assembly.process_groups import RUN_VARIABLE
from abreast.assembly.trees.opened_trees import OpenedTrees
from abreast.assembly.trees.workflow_trees import has_worktrees, open_workflow_trees
from abreast.assembly.workflow_tools import RunTools, Tools, find_kinds, wrong_sample
from abreast.cli.config import BUDGET, MODEL, WIDTH, Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, tell
from abreast.cli.jobs.driver import STOPS, EarlyExit, JobDriver, drive
from abreast.cli.jobs.executors import check_executor
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.model_options import configured_lanes, read_call_mode, with_wait
from abreast.cli.jobs.request import RunRequest, new_request, recorded_facts, unknown_version
from abreast.cli.jobs.workflow.dry_run import (
    check_arguments,
    check_programs,
    check_runners,
    check_sight,
    check_tables,
    print_checked,
    print_dry_run,
    rehearsal_of,
)
from abreast.cli.signals import Interrupts
from abreast.cli.stores import LAST
from abreast.cli.terminal.live_line import LiveLine, runs_in_ci
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.printer import STDOUT, write_all
from abreast.cli.terminal.prompts import ask_for_input, can_prompt, decide_on_terminal
from abreast.cli.terminal.tables import say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, Halted, Paused, WorkflowInvalid
from abreast.core.events import Event, Observer
from abreast.jobs.files.manifests import without_unsaid
from abreast.jobs.plan.review.tree_manifest import TREES
from abreast.jobs.workflow.inputs import Secrets, resolve_inputs
from abreast.jobs.workflow.job import Flow, FlowResult
from abreast.jobs.workflow.load.analysis import affected_by, gates_of, lanes_of
from abreast.jobs.workflow.load.load import load
from abreast.jobs.workflow.rehearsal import Rehearsal
from abreast.jobs.workflow.spec import Workflow
from abreast.jobs.workflow.step_log import StepLog
from abreast.jobs.workflow.steps.records import Record, Records
from abreast.jobs.workflow.view import WorkflowLive
from abreast.limits.pool import Pool
from abreast.run.run import Run
from abreast.store.codec import codec
from abreast.store.port import JsonValue, RunRow, Store, each_event
from abreast.worktrees.results.item_trees import WORKTREES
from abreast.worktrees.slot import Slot

_RUN_ID_VARIABLE: Final = "SPECKIT_WORKFLOW_RUN_ID"
"""The environment variable by which users of spec-kit set the id of a workflow's run."""
KIND: Final = "workflow"
INPUTS_GIVEN: Final = "inputs-given"
"""The event with the inputs and verdicts that a run was given when it was resumed."""


class FlowFailed(AbreastError):
    """A step of a workflow failed; the message is the step's."""


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow's file as it was read, and its options, as a run's manifest stores them."""

    file: str
    text: str
    directory: str
    given: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    budget: str | None = None
    model: str | None = None
    width: int | None = None
    """The most steps of the whole run at once; None if `--width` is not given."""
    executor: str = "local"
    """Where commands work."""
    calls: dict[str, Any] = field(default_factory=dict)
    """How calls are made: the facts of a `CallMode`."""
    warm: bool = False
    """Whether all prompts are sent as those with `warm: true`."""

    def workflow(self) -> Workflow:
        """The workflow, checked; raises `UsageError` with all its problems."""
        try:
            return load(
                self.text,
                self.file,
                directory=Path(self.directory),
                kinds=find_kinds(),
                check_sample=wrong_sample,
            )
        except WorkflowInvalid as error:
            raise UsageError(str(error)) from None
        except ValueError as error:
            raise UsageError(one_line(str(error))) from None

    def manifest(self, secrets: Collection[str] = ()) -> dict[str, JsonValue]:
        """What a run stores: without the values of secret inputs, which must be given again."""
        given = {name: value for name, value in self.given.items() if name not in secrets}
        return {KIND: without_unsaid(asdict(replace(self, given=given)), ("calls", "warm"))}

    @classmethod
    def of_run(cls, store: Store, row: RunRow) -> Self:
        """The file of a recorded run, with the inputs that later resumes have given.

        Recorded verdicts are left out: each answered what its gate showed then. A gate that has
        passed is recorded. A gate that is asked again, because it was rejected or reads other
        values now, must not be answered by an old verdict.
        """
        facts = recorded_facts(row, KIND)
        if not isinstance(facts.get("text"), str):
            raise unknown_version(row)
        source = cls(**facts)
        for event in each_event(store, row.id, {INPUTS_GIVEN}):
            later: Any = codec.decode(event.body or "{}")
            source = source.with_more(later.get("given", {}), {})
        return source

    def with_more(self, given: Mapping[str, Any], verdicts: Mapping[str, str]) -> Self:
        """A copy with further inputs and verdicts."""
        return replace(self, given={**self.given, **given}, verdicts={**self.verdicts, **verdicts})


def split_inputs(words: Sequence[str], workflow: Workflow) -> tuple[dict[str, str], dict[str, str]]:
    """Split `--input NAME=VALUE` into inputs and verdicts, whose names are ids of gates."""
    given: dict[str, str] = {}
    verdicts: dict[str, str] = {}
    known, gates = {one.name for one in workflow.inputs}, gates_of(workflow.steps)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--input: {word!r} should be NAME=VALUE")
        is_gate = name not in known and (
            name in gates or name.rpartition(":")[0].rpartition(":")[2] in gates
        )
        (verdicts if is_gate else given)[name] = value
    return given, verdicts


class WorkflowDriver(JobDriver):
    """Drives one run of a workflow."""

    kind = KIND
    takes_inputs = True
    takes_wait = True
    failures = (Exception,)
    _store: Store | None
    _line: LiveLine | None = None
    _result: FlowResult

    def __init__(
        self,
        source: WorkflowFile,
        request: RunRequest,
        *,
        cwd: str,
        more: Mapping[str, JsonValue] | None = None,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        """Read the file and the inputs.

        For a dry run, required inputs may be missing. `more` are inputs and verdicts of this
        resume, in addition to the recorded ones. Raises `UsageError` if the file or an input is
        wrong.
        """
        super().__init__(request)
        self._source = source
        self._cwd = cwd
        self._resumed_run = None if more is None else request.run_id
        self._opened: OpenedTrees | None = None
        self._more = more
        self._rehearsal = rehearsal
        self.config = Config.load(Path(cwd))
        self.workflow = source.workflow()
        check_tables(self.workflow, self.config)
        declared, asks = self.workflow.inputs, can_prompt() and not self.view.json
        if request.dry_run:
            declared, asks = tuple(replace(one, required=False) for one in declared), False
        try:
            self.inputs = resolve_inputs(declared, source.given, ask_for_input if asks else None)
        except ValueError as error:
            raise UsageError(
                "\n".join(f"--input: {line}" for line in str(error).splitlines())
            ) from None
        check_arguments(self.workflow, self.config, self.inputs)

    @classmethod
    def of_file(cls, given: JobFile) -> int:
        """Drive, check or rehearse the workflow of a file; return the exit code."""
        flags, config = given.flags, Config.load()
        source = WorkflowFile(
            given.file,
            given.text,
            str(Path(given.file).resolve().parent),
            budget=config.get(BUDGET, flags["budget"]),
            model=flags["model"],
            width=None if flags["width"] is None else config.get(WIDTH, flags["width"]),
            executor=flags["executor"] or "local",
            calls=read_call_mode(flags),
            warm=flags["warm"],
        )
        workflow = source.workflow()
        if flags["check_only"]:
            check_tables(workflow, config)
            check_arguments(workflow, config)
            check_runners(workflow, config)
            return print_checked(workflow, as_json=flags["as_json"])
        source = source.with_more(*split_inputs(flags["inputs"], workflow))
        run_id = None if flags["name"] else run_id_from_environment()
        request = replace(
            new_request(config, flags["name"] or run_id or workflow.id, flags), run_id=run_id
        )
        rehearsal = None
        if (flags["simulate"] or flags["outputs_of"]) and not request.dry_run:
            rehearsal = rehearsal_of(request.choice, flags["outputs_of"])
        driver = cls(source, request, cwd=os.getcwd(), rehearsal=rehearsal)  # noqa: PTH109 - text
        return drive(driver, request)

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], inputs: Sequence[str]
    ) -> Self:
        """The driver of a recorded run, with new inputs if some are given."""
        source = WorkflowFile.of_run(request.opened, row)
        cwd = str(row.manifest.get("cwd") or ".")
        if not os.path.isdir(cwd):  # noqa: PTH112 - a recorded text, not a Path
            raise UsageError(
                f"{row.id} ran in {cwd}, which is gone; put it back, for its commands run there"
            )
        workflow = source.workflow()
        given, verdicts = split_inputs(inputs, workflow)
        changed = replace(
            source.with_more(given, verdicts),
            budget=changes["budget"] or source.budget,
            width=changes["width"] or source.width,
            calls=with_wait(source.calls, changes.get("batch_wait")),
        )
        secrets = {one.name for one in workflow.inputs if one.secret}
        kept = {name: value for name, value in given.items() if name not in secrets}
        more: dict[str, Any] = {"given": kept, "verdicts": verdicts} if kept or verdicts else {}
        driver = cls(changed, request, cwd=cwd, more=more)
        with suppress(ValueError):
            before = [
                replace(one, required=one.required and not one.secret) for one in workflow.inputs
            ]
            driver.print_changes(resolve_inputs(before, source.given))
        return driver

    def print_dry_run(self) -> int:
        """Print the steps, and what the calls cost at worst."""
        lanes = configured_lanes(self.config, calls=self._source.calls)
        return print_dry_run(self.workflow, self.inputs, self.config, lanes, as_json=self.view.json)

    def check(self) -> None:
        """Print the warnings about the file; raise `UsageError` for a runner that can't start."""
        if not self.view.quiet and self._more is None:
            for line, text in self.workflow.warnings:
                tell(f"{self._source.file}:{line}: warning: {text}")
        if self._rehearsal is None:
            check_executor(self._source.executor)
            if self._source.executor != "local" and has_worktrees(self.workflow):
                raise UsageError("worktree: true is for commands on this machine: no --executor")
            check_runners(self.workflow, self.config, self.inputs)
            if self._source.executor == "local":  # nodes may have other programs
                check_programs(self.workflow, self.config, self.inputs, cwd=self._cwd)
            default = self._source.model or self.config.get(MODEL)
            check_sight(self.workflow, configured_lanes(self.config), default)

    def open_store(self) -> AbstractContextManager[Store | None]:
        """A rehearsal is not recorded."""
        return self.choice.open() if self._rehearsal is None else nullcontext()

    def live_line(self, _store: Store | None) -> LiveLine | None:
        """The steps that are done and running; none beside JSON."""
        self._line = None if self.view.json else LiveLine(WorkflowLive())
        return self._line

    def log(self) -> Observer | None:
        """A line for each step, where that is wanted: with -v, and in CI."""
        if self.view.json or not (self.view.verbose or runs_in_ci()):
            return None
        steps = StepLog(verbose=self.view.verbose)

        def write(event: Event) -> None:
            for line in steps.lines(event):
                tell(one_line(line))

        return write

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Open the tools of steps."""
        self._kit = await stack.enter_async_context(RunTools(self._tools(store)))
        known, manifest = configured_lanes(self.config), self._source.manifest(self.secret_names)
        held = await self._open_trees(stack, store)
        if held:
            manifest[TREES] = {"path": self._cwd, "task": self.workflow.id}
        secrets = Secrets(
            str(self.inputs[name]) for name in self.secret_names if self.inputs.get(name)
        )
        return {
            "budget": self._source.budget,
            "manifest": manifest | {"argv": secrets.hide(sys.argv)} if secrets else manifest,
            # What removes secrets from recorded prompts and replies.
            "redact": (lambda _path, value: secrets.hide(value)) if secrets else None,
            # Those of the configured lanes, so that rates and learned limits apply to steps too.
            "lanes": {
                **{name: lane_of(known[name]) for name in lanes_of(self.workflow.steps)},
                **held,
            },
        }

    async def _open_trees(
        self, stack: AsyncExitStack, store: Store | None
    ) -> dict[str, Pool[Slot]]:
        """Make the worktrees of steps that ask for one; return their lane."""
        if self._rehearsal is not None:
            return {}
        self._opened = await open_workflow_trees(
            stack,
            self.workflow,
            self.inputs,
            self._cwd,
            (lambda _text: None) if self.view.quiet else lambda text: tell(one_line(text)),
            width=self._source.width,
            store=store,
            resumed_run=self._resumed_run,
        )
        return {} if self._opened is None else {WORKTREES: Pool(self._opened.pool.slots)}

    async def work(self, run: Run, _stack: AsyncExitStack) -> None:
        """Run the steps."""
        # Commands get the environment as it is when the first of them starts.
        os.environ[RUN_VARIABLE] = self.run_id
        if self._more:
            run.note(INPUTS_GIVEN, value=dict(self._more))
        source = self._source
        if self._opened is not None:
            self._kit.use_trees(self._opened.of_run(self.run_id))
        flow = Flow(
            self.workflow,
            self._kit,
            source.verdicts,
            self._rehearsal,
            width=source.width,
            warm=source.warm,
        )
        self._result = await flow.run(run, self.inputs)

    def unfinished(self) -> AbreastError | None:
        """A workflow that did not complete leaves a run that is not done."""
        result = self._result
        return None if result.ok else _HALT_ERRORS[result.status](why_halted(result))

    def early_exit(self, error: BaseException, interrupts: Interrupts) -> EarlyExit:
        """An error that is none of abreast's is told with its step."""
        if isinstance(error, STOPS):
            return super().early_exit(error, interrupts)
        if self.view.verbose:
            raise error
        where = " ".join(getattr(error, "__notes__", ())) or "in a step"
        facts = f"{type(error).__name__}: {one_line(str(error))}"
        return EarlyExit(f"{one_line(where)}: {facts}", FAILED)

    @property
    def secret_names(self) -> frozenset[str]:
        """The inputs that are never stored."""
        return frozenset(one.name for one in self.workflow.inputs if one.secret)

    def _tools(self, store: Store | None) -> Tools:
        asks = can_prompt() and not self.view.json
        return Tools(
            cwd=None if self._cwd == os.getcwd() else self._cwd,  # noqa: PTH109 - compared as text
            lanes=configured_lanes(self.config, calls=self._source.calls),
            store=store,
            default_model=self._source.model or self.config.get(MODEL),
            runners=self.config.runners(),
            agents=self.config.agents(),
            kinds=find_kinds(),
            find=lambda call: find_function(call, self._cwd),
            decide=decide_on_terminal(self._line) if asks else None,
            started=self.groups.started,
            ended=self.groups.ended,
            executor=self._source.executor,
            prepare_agent=self.wait_for_limits,
            **self.config.workflow(),
        )

    def print_changes(self, before: Mapping[str, Any]) -> None:
        """Print which inputs differ from before, and which steps read them."""
        changed = sorted(
            name
            for name in {*before, *self.inputs} - self.secret_names
            if before.get(name) != self.inputs.get(name)
        )
        if changed and not self.view.quiet:
            again = affected_by({("inputs", name) for name in changed}, self.workflow.steps)
            steps = ", ".join(again) if again else "no step"
            tell(f"changed: {', '.join(changed)}; runs again where what it reads differs: {steps}")

    def print_result(self) -> int:
        """Print the outputs, and on stderr how it went; return the exit code."""
        result, view = self._result, self.view
        code = DONE if result.status in ("completed", "paused") else FAILED
        if view.json:
            say_json(result_as_json(result, self.run_id, self.workflow.id))
            return code
        if result.ok and (text := result_text(result)):
            write_all(STDOUT, text.encode("utf-8", "replace"))
        self._print_loops(result)
        wanted = sys.stderr.isatty() or view.verbose or runs_in_ci()
        if not view.quiet and (not result.ok or wanted):
            tell(self._summary(result))
        return code

    def _print_loops(self, result: FlowResult) -> None:
        for name, record in result.steps.items():
            if (
                record.output.get("max_reached") is True
                and record.output.get("loop_type")
                and not self.view.quiet
            ):
                tell(
                    f"{name}: stopped after {record.output['max_iterations']} rounds, "
                    "and its condition still holds"
                )

    def _summary(self, result: FlowResult) -> str:
        flag, run_id = self.choice.flag, self.run_id
        # The newest round of a loop is there by two ids, and is counted once.
        once = {id(record): record for record in result.steps.values()}
        bad = sum(not record.clean for record in once.values())
        seconds = SYSTEM_CLOCK.now() - self.started_at
        counted = f"{len(once)} steps" + (f", {bad} not done" if bad else "")
        if result.status == "paused":
            how = f"abreast resume {run_id} --input {result.at or 'GATE'}=approve{flag}"
            return f"paused: {result.error}; decide with: {how}"
        if result.status == "aborted":
            return f"aborted: {result.error} ({run_id})"
        if result.status == "failed":
            why = one_line(why_halted(result))
            return f"failed: {why} ({counted}); go on with: abreast resume {run_id}{flag}"
        hint = f"; once more those: abreast resume {run_id} --only-failed{flag}" if bad else ""
        return f"completed: {counted} in {seconds:.1f} s ({run_id}){hint}"


_HALT_ERRORS: Final[dict[str, type[AbreastError]]] = {
    "failed": FlowFailed,
    "aborted": Halted,
    "paused": Paused,
}


def why_halted(result: FlowResult) -> str:
    """Why the workflow did not complete, in a sentence; for a failure with the failed step."""
    if result.status != "failed" or result.at is None:
        return result.error or result.status
    return f"the step {result.at!r}: {result.error or 'it failed'}"


def result_as_json(result: FlowResult, run_id: str, workflow_id: str) -> dict[str, Any]:
    """A result as JSON values: every step by its full id, and the fields of spec-kit's `--json`."""
    at = result.at or next(reversed(result.steps), None)
    record = result.steps.get(at) if at is not None else None
    facts: dict[str, Any] = {
        "run": run_id,
        "run_id": run_id,
        "workflow_id": workflow_id,
        "status": result.status,
        "current_step_id": at,
        "current_step_index": result.index,
        "error": result.error,
    }
    if record is not None and record.type == "gate" and result.status in ("paused", "aborted"):
        facts["gate"] = {
            "step_id": at,
            **{word: record.output.get(word) for word in ("message", "options", "choice")},
        }
    steps = {
        name: {
            "type": record.type,
            "status": record.status,
            "output": record.output,
            "error": record.error,
        }
        for name, record in result.steps.items()
    }
    return {**facts, "outputs": result.outputs, "steps": steps}


def run_id_from_environment() -> str | None:
    """The run's id from the environment; None if it is the id of the run that started this one."""
    given = os.environ.get(_RUN_ID_VARIABLE, "").strip()
    if not given or given == os.environ.get(RUN_VARIABLE):
        return None
    if given == LAST or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", given):
        rule = (
            "letters, digits, _ and -, the first a letter or a digit; "
            f"and {LAST!r} stands for the newest run"
        )
        raise UsageError(
            f"{_RUN_ID_VARIABLE}: {given!r} can't be the id of a run, which has {rule}"
        )
    return given


FAN_OUT: Final = "fan-out"


def result_text(result: FlowResult) -> str:
    """The outputs, or else the last step's output; for a fan-out the output of every item."""
    if result.outputs:
        values = list(result.outputs.values())
        found: Any = values[0] if len(values) == 1 else result.outputs
    else:
        last = _last_record(result.steps)
        if last is not None and last.type == FAN_OUT:
            return _fan_out_text(last.output)
        found = _main_output(last.output) if last is not None else None
    return _as_text(found)


def _last_record(steps: Records) -> Record | None:
    """The last step that ran; if it belongs to an item of a fan-out, the fan-out."""
    if not steps:
        return None
    last = next(reversed(steps))
    around = (
        name
        for name, record in steps.items()
        if record.type == FAN_OUT and last.startswith(f"{name}:")
    )
    return steps[next(around, last)]


def _fan_out_text(output: Mapping[str, Any]) -> str:
    """The output of every item, in item order, including items of nested fan-outs."""
    return "".join(
        _fan_out_text(one)
        if "results" in one and "item_count" in one
        else _as_text(_main_output(one))
        for one in output["results"]
    )


def _main_output(output: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a step's output may be anything
    known = ("text", "stdout", "value", "data")
    rest = {word: value for word, value in output.items() if word != "results"}
    return next((output[word] for word in known if output.get(word) is not None), rest or None)


def _as_text(found: Any) -> str:  # noqa: ANN401 - anything
    if found is None or found == "":
        return ""
    text = found if isinstance(found, str) else json_line({"v": found})[5:-1]
    return text if text.endswith("\n") else f"{text}\n"
