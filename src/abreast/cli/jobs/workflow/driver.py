"""Drives a workflow, new or resumed, from its file to its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from abreast.assembly.names import lane_of, open_run
from abreast.assembly.workflow_tools import RunTools, Tools, find_kinds
from abreast.cli.config import MODEL, Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, tell
from abreast.cli.jobs.early_exit import STOPS, EarlyExit, early_exit_by
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.map.driver import OutputOptions, enter_run
from abreast.cli.jobs.map.process_groups import RUN_VARIABLE, ProcessGroups, end_leftovers
from abreast.cli.jobs.map.prompt import configured_lanes
from abreast.cli.jobs.workflow.check import check_programs, check_runners, check_tables
from abreast.cli.jobs.workflow.runners import check_arguments
from abreast.cli.jobs.workflow.text import result_text
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.live_line import LiveLine, closing_line, wants_progress
from abreast.cli.terminal.printer import STDOUT, write_all
from abreast.cli.terminal.prompts import ask_for_input, can_prompt, decide_on_terminal
from abreast.cli.terminal.tables import say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, Halted, Paused, WorkflowInvalid
from abreast.jobs.workflow.inputs import resolve_inputs
from abreast.jobs.workflow.job import Flow, FlowResult
from abreast.jobs.workflow.load.analysis import affected_by, gates_of
from abreast.jobs.workflow.load.load import load
from abreast.jobs.workflow.rehearsal import Rehearsal
from abreast.jobs.workflow.secret_inputs import Secrets
from abreast.jobs.workflow.spec import Workflow
from abreast.jobs.workflow.view import WorkflowLive
from abreast.run.run import Resume
from abreast.store.codec import codec
from abreast.store.port import JsonValue, RunRow, Store, each_event

KIND: Final = "workflow"
INPUTS_GIVEN: Final = "inputs-given"
"""The event with the inputs and verdicts that a run was given when it was resumed."""


class FlowFailed(AbreastError):
    """A step of a workflow failed; the message is the step's."""


@dataclass(frozen=True, slots=True)
class WorkflowStart:
    """Whether the run is new or resumed, and its name, seed and tags."""

    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    resume: Resume = "never"
    run_id: str | None = None
    more: Mapping[str, JsonValue] = field(default_factory=dict)
    """Inputs and verdicts of this resume, in addition to the recorded ones."""


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

    def workflow(self) -> Workflow:
        """The workflow, checked; raises `UsageError` with all its problems."""
        from abreast.jobs.sample.spec import SampleSpec

        def wrong_sample(facts: Mapping[str, Any]) -> str | None:
            try:
                SampleSpec.of(facts)
            except (ValueError, TypeError) as error:
                return str(error).removeprefix("sample: ").removeprefix("sample.")
            return None

        try:
            kinds = find_kinds()
            return load(
                self.text,
                self.file,
                directory=Path(self.directory),
                kinds=kinds,
                check_sample=wrong_sample,
            )
        except WorkflowInvalid as error:
            raise UsageError(str(error)) from None
        except ValueError as error:
            raise UsageError(one_line(str(error))) from None

    def manifest(self, secrets: Collection[str] = ()) -> dict[str, JsonValue]:
        """What a run stores: without the values of secret inputs, which must be given again."""
        given = {name: value for name, value in self.given.items() if name not in secrets}
        return {
            "workflow": {
                "file": self.file,
                "text": self.text,
                "directory": self.directory,
                "given": given,
                "verdicts": dict(self.verdicts),
                "budget": self.budget,
                "model": self.model,
                "width": self.width,
            }
        }

    @classmethod
    def of_run(cls, store: Store, row: RunRow) -> WorkflowFile:
        """The file of a recorded run, with the inputs that later resumes have given.

        Recorded verdicts are left out: each answered what its gate showed then. A gate that has
        passed is recorded. A gate that is asked again, because it was rejected or reads other
        values now, must not be answered by an old verdict.
        """
        facts: Any = row.manifest.get(KIND)
        if not isinstance(facts, dict) or not isinstance(facts.get("text"), str):
            raise UsageError(
                f"{row.id} was made by another version of abreast, "
                "and this one doesn't know all of it"
            )
        source = cls(**facts)
        for event in each_event(store, row.id, {INPUTS_GIVEN}):
            later: Any = codec.decode(event.body or "{}")
            source = source.with_more(later.get("given", {}), {})
        return source

    def with_more(self, given: Mapping[str, Any], verdicts: Mapping[str, str]) -> WorkflowFile:
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


class WorkflowDriver:
    """Drives one run of a workflow."""

    def __init__(
        self,
        source: WorkflowFile,
        choice: StoreChoice,
        view: OutputOptions,
        *,
        cwd: str,
        inputs_needed: bool = True,
    ) -> None:
        """Read the file and the inputs; nothing starts before `run`.

        Without `inputs_needed`, for a dry run, required inputs may be missing. Raises `UsageError`
        if the file or an input is wrong.
        """
        self._source = source
        self._choice = choice
        self._view = view
        self._cwd = cwd
        self._config = Config.load(Path(cwd))
        self.workflow = source.workflow()
        check_tables(self.workflow, self._config)
        ask = ask_for_input if inputs_needed and can_prompt() and not view.json else None
        declared = self.workflow.inputs
        if not inputs_needed:
            declared = tuple(replace(one, required=False) for one in declared)
        try:
            self.inputs = resolve_inputs(declared, source.given, ask)
        except ValueError as error:
            raise UsageError(
                "\n".join(f"--input: {line}" for line in str(error).splitlines())
            ) from None
        check_arguments(self.workflow, self._config, self.inputs)
        self._groups = ProcessGroups()
        self._run_id = ""
        self._started_at = SYSTEM_CLOCK.now()
        self._line = (
            LiveLine(WorkflowLive())
            if wants_progress() and not view.quiet and not view.json
            else None
        )

    def print_warnings(self) -> None:
        """Print the warnings about the file, each with its line."""
        if not self._view.quiet:
            for line, text in self.workflow.warnings:
                tell(f"{self._source.file}:{line}: warning: {text}")

    def run(
        self, store: Store | None, start: WorkflowStart, rehearsal: Rehearsal | None = None
    ) -> int:
        """Run the workflow, or rehearse it; return the exit code."""
        if rehearsal is None:
            check_runners(self.workflow, self._config, self.inputs)
            check_programs(self.workflow, self._config, self.inputs, cwd=self._cwd)
        with asyncio.Runner() as runner:
            return runner.run(self._drive(store, start, rehearsal))

    async def _drive(
        self, store: Store | None, start: WorkflowStart, rehearsal: Rehearsal | None
    ) -> int:
        result: FlowResult | None = None
        with Interrupts(self._groups.kill) as interrupts:
            try:
                with closing_line(self._line, interrupts):
                    result = await self._open_and_run(store, start, interrupts, rehearsal)
            except STOPS as error:
                return early_exit_by(error, interrupts).tell(self._run_id, self._choice)
            except Exception as error:
                if self._view.verbose:
                    raise
                where = " ".join(getattr(error, "__notes__", ())) or "in a step"
                facts = f"{type(error).__name__}: {one_line(str(error))}"
                return EarlyExit(f"{one_line(where)}: {facts}", FAILED).tell(
                    self._run_id, self._choice
                )
        return self._print_result(result)

    async def _open_and_run(
        self,
        store: Store | None,
        start: WorkflowStart,
        interrupts: Interrupts,
        rehearsal: Rehearsal | None,
    ) -> FlowResult:
        found: list[FlowResult] = []
        run = open_run(
            start.name,
            store=store,
            budget=self._source.budget,
            seed=start.seed,
            resume=start.resume,
            run_id=start.run_id,
            tags=start.tags,
            kind=KIND,
            manifest=self._manifest(),
            redact=self._redact(),
            hooks=[self._line] if self._line is not None else (),
            lanes=self._lane_limits(),
        )
        try:
            async with RunTools(self._tools(store)) as kit, enter_run(run, interrupts):
                self._run_id = run.id or ""
                # Commands get the environment as it is when the first of them starts.
                os.environ[RUN_VARIABLE] = self._run_id
                if self._view.verbose and store is not None:
                    tell(f"run {self._run_id} in {store.url}")
                if run.resumed and store is not None:
                    await self._end_leftovers(store)
                if start.more:
                    run.note(INPUTS_GIVEN, value=dict(start.more))
                flow = Flow(
                    self.workflow, kit, self._source.verdicts, rehearsal, width=self._source.width
                )
                result = await flow.run(run, self.inputs)
                found.append(result)
                interrupts.stop_cancelling()
                if not result.ok:
                    raise _HALT_ERRORS[result.status](why_halted(result))
        except (FlowFailed, Halted, Paused):
            if not found:
                raise
        return found[0]

    @property
    def secret_names(self) -> frozenset[str]:
        """The inputs that are never stored."""
        return frozenset(one.name for one in self.workflow.inputs if one.secret)

    def _secrets(self) -> Secrets:
        return Secrets(
            str(self.inputs[name]) for name in self.secret_names if self.inputs.get(name)
        )

    def _redact(self) -> Callable[[str, object], object] | None:
        """A function that removes secrets from recorded prompts and replies; None without any."""
        secrets = self._secrets()
        return (lambda _path, value: secrets.hide(value)) if secrets else None

    def _manifest(self) -> dict[str, JsonValue]:
        found, secrets = self._source.manifest(self.secret_names), self._secrets()
        return found | {"argv": secrets.hide(sys.argv)} if secrets else found

    async def _end_leftovers(self, store: Store) -> None:
        ended = await end_leftovers(store, self._run_id)
        if ended and not self._view.quiet:
            tell(
                f"ended {ended} process group(s) that an earlier driver of {self._run_id} "
                "had left behind"
            )

    def _lane_limits(self) -> dict[str, Any]:
        """The limits of the lanes that steps name.

        They are those of the configured lanes, so that rates and learned limits apply to steps too.
        """
        from abreast.jobs.workflow.load.analysis import lanes_of

        known = configured_lanes(self._config)
        return {name: lane_of(known[name]) for name in lanes_of(self.workflow.steps)}

    def _tools(self, store: Store | None) -> Tools:
        table = self._config.workflow()
        asks = can_prompt() and not self._view.json
        return Tools(
            cwd=None if self._cwd == os.getcwd() else self._cwd,  # noqa: PTH109 - compared as text
            lanes=configured_lanes(self._config),
            store=store,
            default_model=self._source.model or self._config.get(MODEL),
            runners=self._config.runners(),
            kinds=find_kinds(),
            find=lambda call: find_function(call, self._cwd),
            decide=decide_on_terminal(self._line) if asks else None,
            started=self._groups.started,
            ended=self._groups.ended,
            **table,
        )

    def print_changes(self, before: Mapping[str, Any]) -> None:
        """Print which inputs differ from before, and which steps read them."""
        names = {*before, *self.inputs} - self.secret_names
        changed = sorted(name for name in names if before.get(name) != self.inputs.get(name))
        if changed and not self._view.quiet:
            again = affected_by({("inputs", name) for name in changed}, self.workflow.steps)
            steps = ", ".join(again) if again else "no step"
            tell(f"changed: {', '.join(changed)}; runs again where what it reads differs: {steps}")

    def _print_result(self, result: FlowResult) -> int:
        view = self._view
        code = DONE if result.status in ("completed", "paused") else FAILED
        if view.json:
            say_json(result_as_json(result, self._run_id, self.workflow.id))
            return code
        if result.ok and (text := result_text(result)):
            write_all(STDOUT, text.encode("utf-8", "replace"))
        self._print_loops(result)
        if not view.quiet and (not result.ok or sys.stderr.isatty() or view.verbose):
            tell(self._summary(result))
        return code

    def _print_loops(self, result: FlowResult) -> None:
        for name, record in result.steps.items():
            if (
                record.output.get("max_reached") is True
                and record.output.get("loop_type")
                and not self._view.quiet
            ):
                tell(
                    f"{name}: stopped after {record.output['max_iterations']} rounds, "
                    "and its condition still holds"
                )

    def _summary(self, result: FlowResult) -> str:
        flag, run_id = self._choice.flag, self._run_id
        # The newest round of a loop is there by two ids, and is counted once.
        once = {id(record): record for record in result.steps.values()}
        bad = sum(not record.clean for record in once.values())
        seconds = SYSTEM_CLOCK.now() - self._started_at
        counted = f"{len(once)} steps" + (f", {bad} not done" if bad else "")
        if result.status == "paused":
            how = f"abreast resume {run_id} --input {_gate_id(result)}=approve{flag}"
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


def _gate_id(result: FlowResult) -> str:
    """The full id of the gate that the run waits for."""
    return result.at or "GATE"
