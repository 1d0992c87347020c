"""Drives a plan from its directory to its exit code, and merges what its subplans did."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from abreast.cli.children import Groups
from abreast.cli.errors import DONE, FAILED, SPENT, Sorry, explain, one_line, tell
from abreast.cli.plan import make_plan
from abreast.cli.signals import Interrupts
from abreast.cli.stores import FOLDER, StoreChoice, find_run
from abreast.cli.tables import say, say_json, say_table
from abreast.cli.work import View, entered
from abreast.core.errors import AbreastError, BudgetSpent
from abreast.core.events import ITEM_SETTLED
from abreast.executors.commands import Commands
from abreast.jobs.plan.apply import apply, recover
from abreast.jobs.plan.errors import MergeBlocked
from abreast.jobs.plan.execute import SUBPLANS, How, PlanResult, run_plan
from abreast.jobs.plan.merge import Change, Merged, Outside, Strategy, merge
from abreast.jobs.plan.nodes import Node, Plan
from abreast.jobs.plan.ownership import Ownership
from abreast.jobs.plan.score import dependencies
from abreast.jobs.plan.snapshots import Snapshots
from abreast.limits.pool import Pool
from abreast.run.current import current_item
from abreast.run.scope import Resume
from abreast.store import codec
from abreast.store.port import JsonValue, RunRow, Store, each_event
from abreast.wiring import open_run
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.slot import Slot

KIND: Final = "plan"
_WORKTREES: Final = "worktrees"
_KEEP: Final = 1 << 20
_ARGUMENT: Final = 100_000  # bytes; a longer list of files is in $ABREAST_FILE_LIST alone


class SubplanFailed(AbreastError):
    """The command of a subplan failed; what it wrote is in `details`."""

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        """Keep what it wrote."""
        super().__init__(message)
        self.details = details or {}


class PlanFailed(AbreastError):
    """Some subplans are not done."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What is asked of a plan: what a run's manifest keeps."""

    path: str
    command: str
    width: int
    order: str = "parallel"
    fail_fast: bool = False
    retries: int = 0
    timeout: float | None = None
    budget: str | None = None
    dividing: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_run(cls, row: RunRow) -> PlanJob:
        """Of a recorded run."""
        facts: Any = row.manifest.get(KIND)
        if not isinstance(facts, dict):
            raise Sorry(f"{row.id} was made by another version of abreast, and this one doesn't know all of it")
        return cls(**facts)

    def plan(self) -> Plan:
        """The plan of its directory as it is now."""
        return make_plan(self.path, dict(self.dividing))[0]


@dataclass(frozen=True, slots=True)
class PlanStart:
    """Which run it is to be: a new one, or one that goes on."""

    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    resume: Resume = "never"
    run_id: str | None = None


def snapshots_of(path: str) -> Snapshots:
    """Where the trees of a directory's plans are kept: beside its runs."""
    return Snapshots(Path(path) / FOLDER / "plan.git")


class Planning:
    """One driving of a plan."""

    def __init__(self, job: PlanJob, choice: StoreChoice, view: View) -> None:
        """`Sorry` if it can't be divided; nothing starts before `run`."""
        if shutil.which("git") is None:
            raise Sorry("a plan needs git, which is not on the PATH")
        self._job = job
        self._choice = choice
        self._view = view
        self._plan, self._imports = make_plan(job.path, dict(job.dividing))
        self._groups = Groups()
        self._run_id = ""
        self._base = ""

    def run(self, store: Store, start: PlanStart) -> int:
        """Do it; the exit code."""
        with asyncio.Runner() as runner:
            return runner.run(self._drive(store, start))

    async def _drive(self, store: Store, start: PlanStart) -> int:
        found: list[PlanResult] = []
        with Interrupts(self._groups.kill) as interrupts:
            try:
                await self._work(store, start, interrupts, found)
            except (KeyboardInterrupt, asyncio.CancelledError):
                return self._stopped(interrupts.word, interrupts.code)
            except BudgetSpent as error:
                return self._stopped(str(error), SPENT, " --budget MORE")
            except PlanFailed:
                pass
            except AbreastError as error:
                return self._stopped(*explain(error))
        return self._tell(found[0])

    async def _work(self, store: Store, start: PlanStart, interrupts: Interrupts, found: list[PlanResult]) -> None:
        job, root = self._job, Path(self._job.path)
        count = min(job.width, len(self._plan.leaves))
        async with AsyncExitStack() as stack:
            trees = await stack.enter_async_context(open_worktrees(root, count))
            for failure in trees.failures:
                tell(f"worktree {failure.index} could not be made: {one_line(failure.reason)}")
            commands = await stack.enter_async_context(Commands())
            snapshots = snapshots_of(job.path)
            self._base = snapshots.take(trees.slots[0].path)
            run = open_run(
                start.name, store=store, budget=job.budget, seed=start.seed, tags=start.tags, kind=KIND,
                resume=start.resume, run_id=start.run_id, manifest={KIND: _plain(job)},
                lanes={_WORKTREES: Pool(trees.slots)},
            )  # fmt: skip
            async with entered(run, interrupts):
                self._run_id = run.id or ""
                needs = dependencies(self._plan, self._imports) if job.order == "dependencies" else None
                width = 1 if job.order == "sequential" else len(trees.slots)
                how = How(width, job.fail_fast, job.retries, job.timeout, _WORKTREES, needs)
                around = hashlib.blake2b(job.command.encode(), digest_size=8).hexdigest()
                found.append(await run_plan(run, self._plan, self._agent(commands, snapshots), how, around))
                interrupts.let_be()
                if not found[0].ok:
                    raise PlanFailed(f"{sum(one.state != 'done' for one in found[0].subplans)} subplans are not done")

    def _agent(self, commands: Commands, snapshots: Snapshots) -> Any:  # noqa: ANN401 - the work of a subplan
        async def work(leaf: Node) -> dict[str, Any]:
            item = current_item()
            if item is None:
                raise RuntimeError("a subplan runs inside an item of a map")
            slot = item.held[_WORKTREES]
            if not isinstance(slot, Slot):
                raise TypeError(f"a subplan works in a worktree, not in {slot!r}")
            await slot.reset()
            group = 0

            def started(pgid: int) -> None:
                nonlocal group
                group = pgid
                self._groups.started(item, pgid)

            files = "\n".join(leaf.files)
            extra = {"ABREAST_SUBPLAN": leaf.id, "ABREAST_SCOPE": leaf.scope}
            if len(files.encode()) < _ARGUMENT:
                extra["ABREAST_FILES"] = files
            with tempfile.NamedTemporaryFile("w", prefix="abreast-files-", encoding="utf-8") as listed:
                listed.write(f"{files}\n")
                listed.flush()
                environment = {**os.environ, **extra, "ABREAST_FILE_LIST": listed.name}
                try:
                    finished = await commands.run(
                        self._argv(leaf), cwd=str(slot.path), env=environment, keep=_KEEP, started=started
                    )
                finally:
                    self._groups.ended(group)
            wrote = {"stdout": finished.stdout.decode("utf-8", "replace"), "exit_code": finished.exit_code,
                     "stderr": finished.stderr.decode("utf-8", "replace")}  # fmt: skip
            if finished.exit_code:
                raise SubplanFailed(f"exit code {finished.exit_code}", wrote)
            tree = await asyncio.to_thread(snapshots.take, slot.path)
            return {"base": self._base, "result": tree, **wrote}

        return work

    def _argv(self, leaf: Node) -> list[str]:
        """The command for a leaf: `{files}` becomes its files, each one word."""
        command = self._job.command
        if "{files}" not in command:
            return ["sh", "-c", command]
        return ["sh", "-c", command.replace("{files}", '"$@"'), "sh", *leaf.files]

    def _stopped(self, why: str, code: int, more: str = "") -> int:
        tell(f"{why}; go on with: abreast resume {self._run_id}{more}{self._choice.flag}" if self._run_id else why)
        return code

    def _tell(self, result: PlanResult) -> int:
        if self._view.json:
            say_json({"run": self._run_id, "peak": result.peak, "subplans": [_plain(one) for one in result.subplans]})
        elif not self._view.quiet:
            rows = [(one.leaf, one.state, one.attempts, one.error or "") for one in result.subplans]
            say_table(("subplan", "state", "attempts", "error"), rows)
            done = sum(one.state == "done" for one in result.subplans)
            more = "" if result.ok else f"; the others again: abreast resume {self._run_id}{self._choice.flag}"
            tell(f"{done} of {len(result.subplans)} subplans done, {result.peak} at once ({self._run_id}){more}")
            tell(f"merge them with: abreast plan apply {self._run_id}{self._choice.flag}")
        return DONE if result.ok else FAILED


def _plain(one: Any) -> dict[str, JsonValue]:  # noqa: ANN401 - a frozen record
    return asdict(one)


def changes_of(store: Store, row: RunRow) -> list[Change]:
    """What the subplans of a run have done, in the order of their names."""
    found: dict[str, Change] = {}
    for event in each_event(store, row.id, {ITEM_SETTLED}):
        parts = event.path.split("/")
        if len(parts) == 3 and parts[1] == SUBPLANS and event.data.get("state") == "done" and event.body:  # noqa: PLR2004
            value: Any = codec.decode(event.body)
            found[parts[2]] = Change(parts[2], value["base"], value["result"])
    return [found[leaf] for leaf in sorted(found)]


def apply_run(wanted: str, choice: StoreChoice, *, strategy: str, outside: str, dry_run: bool, as_json: bool) -> int:
    """Merge what a run's subplans did into its directory; the exit code."""
    with choice.existing() as store:
        row = find_run(store, wanted)
        if row.kind != KIND:
            raise Sorry(f"{row.id} is no plan, but a {row.kind}")
        job = PlanJob.of_run(row)
        changed = changes_of(store, row)
    root = Path(job.path)
    if recovered := recover(root):
        tell(f"took back {recovered} merge(s) that had been cut off")
    snapshots = snapshots_of(job.path)
    merged = merge(
        snapshots, snapshots.take(root), changed, ownership=Ownership(job.plan()), strategy=Strategy(strategy),
        outside=Outside(outside),
    )  # fmt: skip
    blocked = list(merged.blocked)
    paths: tuple[str, ...] = ()
    if not blocked and not dry_run:
        try:
            paths = apply(merged, snapshots, root)
        except MergeBlocked as error:
            blocked = str(error).splitlines()
    return _say_merge(merged, blocked, paths, dry_run=dry_run, as_json=as_json)


def _say_merge(merged: Merged, blocked: list[str], paths: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    if as_json:
        say_json({"merged": list(merged.merged), "blocked": blocked, "written": list(paths)})
        return FAILED if blocked else DONE
    for line in blocked:
        say(line)
    if blocked:
        tell(f"nothing was written: {len(blocked)} thing(s) stand in the way; another --strategy may do")
        return FAILED
    tell(f"{len(merged.merged)} subplans can be merged" if dry_run else f"{len(paths)} files written, from "
         f"{len(merged.merged)} subplans")  # fmt: skip
    return DONE
