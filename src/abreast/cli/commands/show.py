"""`abreast show`: shows a run, or one of its items."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, one_line
from abreast.cli.jobs.map.job import ITEMS, KIND, MANIFEST
from abreast.cli.jobs.map.recorded import each_result, row_of_recorded, tally
from abreast.cli.stores import StoreChoice, find_run, state_of
from abreast.cli.terminal.outcome_text import Row
from abreast.cli.terminal.tables import iso_time, local_time, say, say_facts, say_json
from abreast.cli.terminal.visible import visible
from abreast.core.events import MAP_ENDED
from abreast.core.item import escape
from abreast.core.outcome import tokens_in_words
from abreast.core.run_end import is_over
from abreast.jobs.plan.review.rejection import rejection_of
from abreast.jobs.plan.review.tree_manifest import merge_folder
from abreast.models.conversation import asked_text
from abreast.run.call_totals import CALL_KINDS, CallTotals, call_totals, describe_cut_off
from abreast.run.outcome_record import usage_facts
from abreast.store.codec import codec
from abreast.store.port import Recorded, RunRow, Store, each_event, each_outcome
from abreast.store.totals import without_totals
from abreast.views import served

if TYPE_CHECKING:
    from abreast.jobs.workflow.steps.step_paths import StepPaths

WORKFLOW: Final = "workflow"
_MAX_FAILED: Final = 10  # items that are listed


@click.command("show")
@options.run
@click.argument("key", metavar="[KEY]", required=False)
@click.option(
    "--limits", is_flag=True, help="Draw calls in flight over time, how many were allowed, and why."
)
@click.option(
    "--raw",
    is_flag=True,
    help="Print what an item wrote as it is: a terminal obeys its control characters.",
)
@options.common
def command(
    *, run: str, key: str | None, limits: bool, raw: bool, store: str | None, as_json: bool
) -> None:
    r"""Show the run RUN, or its item KEY: what it wrote, what became of it and how long it took.

    RUN is an id such as map-3, a name (then the newest run of that name), or `last`. KEY is an
    item's key, the full id of a workflow's step such as fan:check:3, or a path. Control characters
    that an item wrote are shown as \x1b, so that they can't drive your terminal.
    """
    choice = StoreChoice(Config.load(), store)
    with choice.existing(reads=True) as opened:
        row = find_run(opened, run)
        if limits:
            _show_limits(opened, row, key, as_json=as_json)
        elif key is not None:
            found = row_of_recorded(find_item(opened, row, key))
            say_json({"run": row.id, **found}) if as_json else _show_item(found, raw=raw)
        elif as_json:
            totals = totals_of(opened, row)
            say_json(
                {
                    **facts_of_run(opened, row),
                    "items": _counts(opened, row),
                    "timing_dependent": timing_dependent(opened, row),
                    "usage": {
                        model: usage_facts(used) for model, used in sorted(totals.by_model.items())
                    },
                    "cut_off": totals.cut_off if totals.cut_off["requests"] else None,
                    **_served_totals(opened, row),
                    **_rejected(opened, row),
                    "manifest": dict(row.manifest),
                }
            )
        else:
            _show_run(opened, row, choice)


def _show_limits(store: Store, row: RunRow, key: str | None, *, as_json: bool) -> None:
    from abreast.cli.commands.watch import WatchView, draw_once

    if key is not None:
        raise UsageError("--limits is about a whole run; leave the key out")
    if not as_json:
        draw_once(store, row.id, limits=True)
        return
    view = WatchView(store, row, None, limits=True)
    view.look()
    say_json(view.drawing.snapshot(view.chart, view.id, view.state, view.now))


def facts_of_run(store: Store, row: RunRow) -> Row:
    """A run as JSON values, without its items."""
    return {
        "run": row.id,
        "name": row.name,
        "kind": row.kind,
        "state": state_of(store, row),
        "reason": row.reason,
        "created": iso_time(row.created),
        "ended": iso_time(row.ended),
        "seed": row.seed,
        "tags": list(row.tags),
        "drivers": row.epoch,
        "driver": str(row.driver) if row.driver else None,
        "spent": without_totals(row.spent),
    }


def find_item(store: Store, row: RunRow, key: str) -> Recorded:
    """The recorded item of a key, a step's full id, the end of a path, or a whole path.

    Raises `UsageError` if there is none, or more than one.
    """
    found = store.recorded(row.id, [f"{escape(row.name)}/{ITEMS}/{escape(key)}", key])
    if found:
        return next(iter(found.values()))
    if (steps := step_paths_of(store, row)) is not None:
        rounds = [
            recorded for recorded in each_outcome(store, row.id) if key in steps.ids(recorded.path)
        ]
        if rounds:  # the newest round of a loop
            return max(rounds, key=lambda recorded: recorded.path)
    ends = (f"/{escape(key)}", f"/{key}")
    several = [recorded for recorded in each_outcome(store, row.id) if recorded.path.endswith(ends)]
    if len(several) == 1:
        return several[0]
    if several:
        paths = ", ".join(recorded.path for recorded in several[:3])
        raise UsageError(
            f"{row.id} has {len(several)} items {key!r}; name one by its path: {paths}"
        )
    raise UsageError(
        f"nothing is recorded of an item {key!r} in {row.id}; "
        f"`abreast export {row.id}` shows what is"
    )


def step_paths_of(store: Store, row: RunRow) -> StepPaths | None:
    """The steps that the paths of a workflow's run belong to; None for another job."""
    from abreast.jobs.workflow.job import WORKFLOW_OUTLINED
    from abreast.jobs.workflow.steps.step_paths import StepPaths

    outlines = [
        event for event in each_event(store, row.id, {WORKFLOW_OUTLINED}) if "/" not in event.path
    ]
    if row.kind != WORKFLOW or not outlines:
        return None
    indexes = {
        one.path: at
        for one in each_outcome(store, row.id)
        if isinstance(at := one.data.get("index"), int)
    }
    outline: Any = codec.decode(outlines[-1].body or "[]")
    return StepPaths(outline, indexes)


def timing_dependent(store: Store, row: RunRow) -> list[str]:
    """Why outcomes of the run depend on timing; empty if they are the same at any width."""
    return sorted(
        {
            why
            for event in each_event(store, row.id, {MAP_ENDED})
            for why in str(event.data.get("timing_dependent") or "").split(",")
            if why
        }
    )


def totals_of(store: Store, row: RunRow) -> CallTotals:
    """The usage of the run's calls to models; the cost is None if a price is unknown."""
    return call_totals(
        each_event(store, row.id, CALL_KINDS), driven=state_of(store, row) == "running"
    )


def _usage_text(totals: CallTotals) -> str:
    return "; ".join(
        f"{model}: {used.requests:,} requests, "
        + tokens_in_words(used)
        + (", unknown cost" if used.usd is None else f", {used.usd:.4g} usd" if used.usd else "")
        for model, used in sorted(totals.by_model.items())
    )


def _counts(store: Store, row: RunRow) -> dict[str, int]:
    count = tally(store, row.id)
    return {state: count[state] for state in ("done", "failed", "cancelled", "speculative")}


def _show_run(store: Store, row: RunRow, choice: StoreChoice) -> None:
    state, why = state_of(store, row), timing_dependent(store, row)
    counts, totals = _counts(store, row), totals_of(store, row)
    counts_text = ", ".join(
        f"{number} {name}" for name, number in counts.items() if number or name == "done"
    )
    say_facts(
        {
            "run": row.id,
            "state": state,
            "reason": row.reason,
            "merge": _merge_text(store, row, choice),
            "items": counts_text,
            "timing": f"outcomes depend on it: {', '.join(why)}" if why else "",
            "command": _command_text(row),
            "directory": row.manifest.get("cwd"),
            "started": local_time(row.created),
            "ended": local_time(row.ended),
            "used": _usage_text(totals),
            **_served_facts(store, row),
            "cut off": describe_cut_off(totals),
            "drivers": row.epoch if row.epoch > 1 else None,
            "driver": row.driver if state == "running" else None,
            "seed": row.seed,
            "tags": " ".join(row.tags),
            "commit": row.manifest.get("commit"),
        }
    )
    failed = list(each_result(store, row.id, ("failed",))) if counts["failed"] else []
    steps = step_paths_of(store, row) if failed else None
    for found in failed[:_MAX_FAILED]:
        error = row_of_recorded(found)["error"]
        name = next(iter(steps.ids(found.path)), "") if steps is not None else ""
        name = name or found.path.rpartition("/")[2]
        say(f"  {one_line(name)}: {one_line(error['message']) or error['type']}")
    if len(failed) > _MAX_FAILED:
        say(f"  and {len(failed) - _MAX_FAILED} more")
    if hint := _next_step(row, state, counts["failed"]):
        say(f"\n{hint}{choice.flag}")


def _rejected(store: Store, row: RunRow) -> Row:
    """Of a run with results in worktrees: when they were rejected and why, or None."""
    if row.kind != "plan" and merge_folder(row) is None:
        return {}
    found = rejection_of(store, row)
    return {"rejected": None if found is None else found.plain()}


def _merge_text(store: Store, row: RunRow, choice: StoreChoice) -> str:
    found = rejection_of(store, row)
    if found is None:
        return ""
    return f"{one_line(str(found))}; anyway: abreast plan apply {row.id} --anyway{choice.flag}"


def _served_totals(store: Store, row: RunRow) -> Row:
    """Of a server: its calls and their usage by client, model and tag, as JSON values."""
    if row.kind != served.KIND:
        return {}
    return {"served": served.ServedSums(each_outcome(store, row.id)).plain()}


def _served_facts(store: Store, row: RunRow) -> dict[str, str]:
    """Of a server: its calls by client and by tag; their sum by model is that of every run."""
    if row.kind != served.KIND:
        return {}
    texts = served.ServedSums(each_outcome(store, row.id)).texts()
    return {f"{part}s": texts[part] for part in ("client", "tag")}


def _next_step(row: RunRow, state: str, failed: int) -> str:
    if (
        state in ("crashed", "interrupted", "spent", "failed", "cancelled")
        and row.kind == KIND
        and not is_over(row.state, row.reason)
    ):
        return f"go on with: abreast resume {row.id}"
    if state == "running":
        return f"watch it with: abreast watch {row.id}"
    again = {KIND: f"retry {row.id}", "matrix": f"resume {row.id} --only-failed"}.get(row.kind)
    return f"run the failed again with: abreast {again}" if failed and again else ""


def _command_text(row: RunRow) -> str:
    sample_facts = row.manifest.get("sample")
    if isinstance(sample_facts, dict):
        prompt = shlex.quote(asked_text(sample_facts))
        return f"sample {prompt} --model {sample_facts.get('model')}"
    facts = row.manifest.get(MANIFEST)
    if isinstance(facts, dict):
        words = facts.get("command")
        if facts.get("prompt"):
            who = (
                f"--agent {facts['agent']}"
                if facts.get("agent")
                else f"--model {facts.get('model')}"
            )
            return f"--prompt {shlex.quote(str(facts['prompt']))} {who}"
        if facts.get("messages"):
            return f"--messages {facts['messages']} --model {facts.get('model')}"
        return (
            shlex.join(map(str, words))
            if isinstance(words, list) and words
            else f"--call {facts.get('call')}"
        )
    argv = row.manifest.get("argv")
    return shlex.join(map(str, argv)) if isinstance(argv, list) else ""


def _show_item(row: Row, *, raw: bool) -> None:
    error: Any = row.get("error") or {}
    say_facts(
        {
            "item": row["key"],
            "path": row["path"],
            "state": row["state"],
            "exit code": row.get("exit_code"),
            "error": error.get("message") or error.get("type"),
            "reason": row.get("reason"),
            "attempts": row["attempts"],
            "took": f"{row['seconds']:.3f} s",
            "waited": f"{row['waited'] + row['queued']:.3f} s",
            "backoff": f"{row['backoff']:.3f} s" if row["backoff"] else None,
            "lane": row.get("lane"),
        }
    )
    if "value" in row:
        say_json({"value": row["value"]})
    if error.get("raw"):
        say("--- what came instead of a reply")
        for line in error["raw"].splitlines():
            say(one_line(line))
    for name in ("stdout", "stderr"):
        if row.get(name):
            say(f"--- {name}")
            wrote = row[name] if raw else visible(row[name])
            sys.stdout.write(wrote if wrote.endswith("\n") else f"{wrote}\n")
