"""The jobs that are disturbed: each in a folder of its own, with a log of what was executed.

A map of commands and a study whose strategy is a workflow run their commands in a directory that
the nodes see at the same path. A plan and `optimize` are in a directory that the nodes don't see.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED
from abreast.store.postgres.store import PostgresStore

_WAIT: Final = 600.0  # seconds for one command
_EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "slow"
_WORK: Final = 'echo "$1" >> "$LOG"; sleep 0.2; echo "done $1"'
_REWRITE: Final = (
    'echo "${ABREAST_SCOPE%/}" >> "$LOG"; sleep 0.4; for f in {files}; do echo new >> "$f"; done'
)
_FLOW: Final = """\
workflow: {id: flow}
inputs: {text: {type: string}}
steps:
  - id: one
    type: shell
    run: echo "{{ inputs.text }}" >> "$LOG"; sleep 0.2; echo "got {{ inputs.text }}"
"""
_STUDY: Final = """\
matrix:
  name: study
  models: [scripted/replies.jsonl]
  strategies:
    steps: {workflow: flow.yaml}
  inputs: inputs.jsonl
  scores: [contains]
  lane_width: %d
"""
_CANDIDATES: Final = """\
candidates:
  target: wordcount.py::top_words
  tests: [test_wordcount.py]
  candidates: ../drafts
  timing: false
  generated: 3
  width: %d
"""


class Prepared(NamedTuple):
    """A job that is ready to be started."""

    arguments: tuple[str, ...]
    given: str
    """What it reads from stdin."""
    items: frozenset[str]
    """What is executed, as the log or the journal names it."""
    result: Callable[[Job, str], object]
    """Its result, from its stdout or its files."""


class Job:
    """One run of a job."""

    def __init__(self, folder: Path, log: Path, store: str) -> None:
        """`folder` is for its files; `log` is seen by all nodes."""
        self.folder, self.project, self.log = folder, folder / "project", log
        self.project.mkdir(parents=True)
        log.touch()
        self.store = store
        self._environment = {
            **os.environ,
            "LOG": str(log),
            "ABREAST_CACHE": str(folder / "cache"),
            "ABREAST_LOCKS": str(folder),  # nothing is measured here
            "ABREAST_STORE": store,
        }

    def start(self, *arguments: str, given: str = "") -> subprocess.Popen[str]:
        """Start abreast, with its items on stdin."""
        with tempfile.TemporaryFile("w+") as items, (self.folder / "stderr").open("a") as errors:
            items.write(given)
            items.seek(0)
            return subprocess.Popen(
                [sys.executable, "-m", "abreast", *arguments],
                cwd=self.project,
                env=self._environment,
                stdin=items,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, *arguments: str, given: str = "") -> str:
        """Run abreast to its end; return its stdout."""
        out, _ = self.start(*arguments, given=given).communicate(timeout=_WAIT)
        return out

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        """Make the project a repository with one commit."""
        own = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
        for git in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
            subprocess.run(["git", *own, *git], cwd=self.project, check=True)

    def executed(self, items: frozenset[str]) -> list[str]:
        """The items whose execution began, in that order.

        What a sandbox runs can write no log: such items are read from the journal.
        """
        logged = [line for line in self.log.read_text().splitlines() if line in items]
        return logged or [one for one in self._paths(ITEM_STARTED) if one in items]

    def recorded(self, items: frozenset[str]) -> set[str]:
        """The items that are on the disk of the database."""
        return {one for one in self._paths(ITEM_SETTLED) if one in items}

    def _paths(self, kind: str) -> list[str]:
        if not self.store.startswith("postgresql:"):
            return []
        store = PostgresStore(self.store)
        try:
            found = store.runs(limit=1)
            events = store.events(found[0].id, kinds={kind}, limit=100_000) if found else []
            return [_item_of(event.path) for event in events]
        finally:
            store.close()


def _item_of(path: str) -> str:
    """The name of an item, by its path; of a candidate, only its check counts.

    >>> _item_of("optimize/tries/candidate/counter/behaviour"), _item_of("plan/parts/part00-d408")
    ('counter', 'part00')
    >>> _item_of("study/scripted/scripted~steps~i0~0/reply/one"), _item_of("map/items/7")
    ('i0', '7')
    """
    *above, last = path.split("/")
    if last == "behaviour":
        return above[-1]
    if last == "one" and "~" in above[-2]:
        return above[-2].split("~")[-2]
    return "" if above[-1:] == ["candidate"] else last.partition("-")[0]


def prepare_map(_job: Job, items: int, width: int, executor: str) -> Prepared:
    """A map of commands."""
    names = [str(number) for number in range(items)]
    command = ("--", "sh", "-c", _WORK, "sh", "{}")
    options = ("--executor", executor, "-P", str(width), "--key", "{}")
    return Prepared(
        ("map", *options, *command), "\n".join(names), frozenset(names), lambda _, out: out
    )


def prepare_study(job: Job, items: int, width: int, executor: str) -> Prepared:
    """A study of one strategy, which is a workflow of one command."""
    names = [f"i{number}" for number in range(items // 2)]
    job.write("flow.yaml", _FLOW)
    job.write("replies.jsonl", "")
    job.write("study.yaml", _STUDY % width)
    rows = [{"id": name, "text": name, "truth": name} for name in names]
    job.write("inputs.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))

    def result(job: Job, _out: str) -> object:
        table = io.StringIO(job.run("matrix", "export", "study", "--format", "csv"))
        kept = ("input", "output", "contains", "state", "strategy")
        return [[row[name] for name in kept if name in row] for row in csv.DictReader(table)]

    arguments = ("matrix", "run", "study.yaml", "--no-report", "--executor", executor)
    return Prepared(arguments, "", frozenset(names), result)


def prepare_optimize(job: Job, _items: int, width: int, executor: str) -> Prepared:
    """The candidates of an example."""
    for name in ("wordcount.py", "test_wordcount.py"):
        job.write(name, (_EXAMPLES / name).read_text())
    shutil.copytree(_EXAMPLES / "candidates", job.folder / "drafts")
    (job.folder / "job.yaml").write_text(_CANDIDATES % width)
    job.commit()
    names = {path.stem for path in (job.folder / "drafts").glob("*.py")} - {"renamed"}

    def result(_job: Job, out: str) -> object:
        found = json.loads(out)["candidates"]
        return [(one["name"], one["verdict"], one["reason"]) for one in found]

    arguments = ("run", "../job.yaml", "--json", "--executor", executor)
    return Prepared(arguments, "", frozenset(names), result)


def prepare_plan(job: Job, items: int, width: int, executor: str) -> Prepared:
    """A plan whose parts are directories, worked on by a command."""
    names = [f"part{number:02}" for number in range(max(4, items // 4))]
    for name in names:
        job.write(f"{name}/text.txt", "old\n")
    job.commit()

    def result(job: Job, _out: str) -> object:
        job.run("plan", "apply", "last")
        return {path.parent.name: path.read_text() for path in job.project.glob("part*/text.txt")}

    options = ("--min-files", "1", "--max-files", "1", "--width", str(width))
    arguments = ("plan", "run", "--command", _REWRITE, *options, "--executor", executor)
    return Prepared(arguments, "", frozenset(names), result)


PREPARE: Final[Mapping[str, Callable[[Job, int, int, str], Prepared]]] = {
    "map": prepare_map,
    "study": prepare_study,
    "optimize": prepare_optimize,
    "plan": prepare_plan,
}
HIDDEN: Final = ("optimize", "plan")
"""Those whose directories the nodes need not see."""
