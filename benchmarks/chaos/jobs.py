"""The jobs that are disturbed: each writes its files and says what to start."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.chaos.place import Place, Said

WIDTH: Final = 4
ITEMS: Final = 24
BUDGET: Final = 0.0006  # usd, for about two thirds of the prompts
_EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "slow"
_LANE: Final = """\
[lanes.storm]
kind = "openai"
base_url = "%s/v1"
price = {input = 1.0, output = 2.0}
timeout = 3
"""
_WORK: Final = 'echo "$1" >> "$LOG"; sleep 0.04; echo "got $1"'
_FLOW: Final = """\
workflow: {id: flow}
steps:
  - id: names
    type: shell
    run: echo names >> "$LOG"; echo '["a", "b", "c", "d", "e", "f", "g", "h"]'
    output_format: json
  - id: ask
    type: fan-out
    items: "{{ steps.names.output.data }}"
    max_concurrency: 4
    steps:
      - id: say
        type: prompt
        model: storm/m
        max_tokens: 40
        prompt: "Say {{ item }}"
      - id: keep
        type: shell
        run: echo "{{ item }}" >> "$LOG"; echo "kept {{ steps.say.output.text }}"
  - id: all
    type: shell
    run: echo all >> "$LOG"; echo "{{ steps.ask.output.results | length }}"
"""
_STUDY: Final = """\
matrix:
  name: study
  models: [{name: storm/m, max_tokens: 40}]
  strategies:
    plain: {prompt: "Say {{ input.text }}"}
    twice: {prompt: "Say {{ input.text }} twice"}
  inputs: inputs.jsonl
  repeats: 2
  scores: [contains]
  lane_width: 4
"""
_CANDIDATES: Final = """\
candidates:
  target: wordcount.py::top_words
  tests: [test_wordcount.py]
  candidates: ../drafts
  timing: false
  generated: 0
  width: 2
"""
_REWRITE: Final = (
    'echo "${ABREAST_SCOPE%/}" >> "$LOG"; sleep 0.1; for f in {files}; do echo new >> "$f"; done'
)
CORPUS: Final = (_FLOW, _STUDY, _CANDIDATES)
"""Job files."""
# What depends on the time, or on how often a call was made.
_VARYING: Final = re.compile(
    r"run|run_id|.*seconds|seconds|queued|waited|backoff|.*_s|times|in_flight|usage|requests"
    r"|.*tokens|usd|estimate|attempts|started|ended|at|base|result|worktree|slot|pid|host|service|changed_at"
)


@dataclass(frozen=True, slots=True)
class Job:
    """A job: what makes it ready and returns the arguments of abreast."""

    prepare: Callable[[Place], tuple[str, ...]]
    width: int = WIDTH
    calls: bool = False
    """Whether it asks a model."""
    budget: float | None = None
    """In usd."""
    code: int = 0
    """The exit code of a run that is not disturbed."""
    varying: frozenset[str] = frozenset()
    """Fields of its results that differ each time."""
    keeps_failures: bool = False
    """Whether a reply that can't be read is a part of its answer, and is not asked for again."""
    more: Callable[[Place], dict[str, object]] | None = None
    """Further answers, by a command of its own, after all else was looked at."""


def _map(place: Place, *options: str) -> tuple[str, ...]:
    place.write("items", "".join(f"i{number:02}\n" for number in range(ITEMS)))
    return ("map", "--input", "items", "--key", "{}", "-w", str(WIDTH), "--seed", "1", *options)


def _lanes(place: Place) -> None:
    place.write("abreast.toml", _LANE % place.storm)


def prepare_commands(place: Place) -> tuple[str, ...]:
    """A map of commands."""
    return _map(place, "--", "sh", "-c", _WORK, "sh", "{}")


def prepare_prompts(place: Place) -> tuple[str, ...]:
    """A map of prompts."""
    _lanes(place)
    return _map(place, "--prompt", "Say {}", "-m", "storm/m", "--max-tokens", "40")


def prepare_budget(place: Place) -> tuple[str, ...]:
    """The same with less money than it needs."""
    return (*prepare_prompts(place), "--budget", f"{BUDGET}usd")


def prepare_sample(place: Place) -> tuple[str, ...]:
    """A sample of which no draw passes, so that all are drawn."""
    _lanes(place)
    shape = ("--breadth", "4", "--depth", "5", "--strategy", "repair", "--on-error", "collect")
    check = ("--check", "contains no-such-word")
    return (
        "sample",
        "Say it.",
        "-m",
        "storm/m",
        "--max-tokens",
        "40",
        "--seed",
        "1",
        *shape,
        *check,
    )


def prepare_workflow(place: Place) -> tuple[str, ...]:
    """A fan-out of a prompt and a command."""
    _lanes(place)
    place.write("flow.yaml", _FLOW)
    return ("run", "flow.yaml", "--seed", "1")


def prepare_matrix(place: Place) -> tuple[str, ...]:
    """A study of two prompts."""
    _lanes(place)
    place.write("study.yaml", _STUDY)
    rows = [{"id": f"i{number}", "text": f"word {number}", "truth": "a"} for number in range(6)]
    place.write("inputs.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    return ("matrix", "run", "study.yaml", "--no-report", "--seed", "1")


def prepare_optimize(place: Place) -> tuple[str, ...]:
    """The candidates of an example, without timing."""
    for name in ("wordcount.py", "test_wordcount.py"):
        place.write(name, (_EXAMPLES / name).read_text())
    (place.folder / "drafts").mkdir()
    for name in ("counter.py", "most_common.py"):
        shutil.copy(_EXAMPLES / "candidates" / name, place.folder / "drafts")
    (place.folder / "job.yaml").write_text(_CANDIDATES)
    place.commit()
    return ("run", "../job.yaml", "--json")


def prepare_plan(place: Place) -> tuple[str, ...]:
    """A plan whose parts are directories, worked on by a command."""
    for number in range(8):
        place.write(f"part{number:02}/text.txt", "old\n")
    place.commit()
    shape = ("--min-files", "1", "--max-files", "1", "-w", str(WIDTH))
    return ("plan", "run", "--command", _REWRITE, *shape)


def apply_plan(place: Place) -> dict[str, object]:
    """The tree after the plan was applied."""
    said = place.run("plan", "apply", "last")
    texts = {str(path.parent.name): path.read_text() for path in place.project.glob("part*/*")}
    return {"apply": said.code, "tree": texts}


def export_study(place: Place) -> dict[str, object]:
    """The replies and their scores, in the order of the study."""
    said = place.run("matrix", "export", "study", "--format", "jsonl")
    return {"cells": [_lasting(json.loads(line)) for line in said.out.splitlines()]}


JOBS: Final[Mapping[str, Job]] = {
    "commands": Job(prepare_commands),
    "prompts": Job(prepare_prompts, calls=True),
    "budget": Job(prepare_budget, calls=True, budget=BUDGET, code=3),
    "sample": Job(prepare_sample, calls=True, code=1, keeps_failures=True),
    "workflow": Job(prepare_workflow, calls=True),
    "matrix": Job(prepare_matrix, calls=True, more=export_study),
    "optimize": Job(prepare_optimize, width=2, varying=frozenset({"stdout", "cpu"})),
    "plan": Job(prepare_plan, more=apply_plan),
}


def answers_of(place: Place, said: Said, job: Job) -> dict[str, object]:
    """The results of the newest run, by path, without what depends on the time."""
    exported = place.run("export", "last")
    rows = [json.loads(line) for line in exported.out.splitlines()]
    results = {row["path"]: _lasting(row, job.varying) for row in rows}
    return results | {"exit code": said.code, "export": exported.code}


def _lasting(value: object, varying: frozenset[str] = frozenset()) -> object:
    if isinstance(value, dict):
        return {
            name: _lasting(one, varying)
            for name, one in value.items()
            if name not in varying and not _VARYING.fullmatch(name)
        }
    return [_lasting(one, varying) for one in value] if isinstance(value, list) else value
