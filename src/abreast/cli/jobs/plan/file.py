"""Reads a plan from a job file: `plan:` has the keys that `abreast plan run` has as flags."""

from __future__ import annotations

import os
from typing import Any

from abreast.cli.commands.plan import print_plan, run_job
from abreast.cli.config import BUDGET, Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.plan.job import PlanJob
from abreast.cli.terminal.tables import say_json
from abreast.jobs.files.yaml_nodes import YamlNode

_WORKFLOW_FLAGS = ("inputs", "simulate", "outputs_of")


def run_file(
    file: str,
    node: YamlNode,
    *,
    model: str | None,
    name: str | None,
    check: bool,
    dry_run: bool,
    **given: Any,
) -> int:
    """Run, check or show the plan of a file; return the exit code."""
    for flag in _WORKFLOW_FLAGS:
        if given.pop(flag):
            raise UsageError(
                f"--{flag.removesuffix('s').replace('_', '-')} is for workflows, "
                f"and {file} holds a plan"
            )
    config = Config.load()
    budget = config.get(BUDGET, given.pop("budget"))
    job = read_job(file, node, {"model": model, "budget": budget})
    if dry_run:
        return print_plan(*job.current_plan(), as_json=given["as_json"])
    if check:
        job.current_plan()
        if given["as_json"]:
            say_json({"file": file, "ok": True})
        return 0
    return run_job(job, config, name=name or "plan", **given)


def read_job(file: str, node: YamlNode, flags: dict[str, Any]) -> PlanJob:
    """The job of a file; `flags` override its keys.

    Raises `UsageError` with the line of an error.
    """
    place = f"{file}:{node.line}: "
    if node.kind != "mapping":
        raise UsageError(
            f"{place}plan must be a mapping, "
            "such as {command: 'ruff format {files}', width: 10}"
        )

    def spell(word: str) -> str:
        return f"{file}:{node.line_of(word)}: {word}" if word in node.pairs else word

    facts = {word: value.plain() for word, value in node.items()}
    given = {word: value for word, value in flags.items() if value is not None}
    return PlanJob.of({**facts, **given}, os.getcwd(), spell, place)  # noqa: PTH109 - stored as text
