"""Run every kind of job against a strict imitation of every provider.

`python -m benchmarks.providers [PROFILE ...] [--job JOB] [--per-command]`.

Each profile has one storm over loopback and one project, whose lane points at it; the jobs run in
it one after the other, as commands. The table has a row for each profile and a column for each job,
beneath it are the failures and what was refused. The exit code is 1 if a job failed, or if a
parameter was refused more than once for a lane and model.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from abreast.testing.storm import start_process
from abreast.testing.storm.log import BilledTokens, LogEntry, billed_of, refusals_of

KEY = "sk-invented-for-the-storm"
_TIMEOUT = 120  # seconds for a command, which normally takes one


@dataclass(frozen=True, slots=True)
class Lane:
    """How a user reaches a provider: the lane of `abreast.toml`, its path, and a model."""

    name: str
    model: str
    path: str = "/v1"
    more: Mapping[str, str] = field(default_factory=dict)  # further settings of the lane

    def table(self, url: str) -> dict[str, str]:
        """The settings of the lane."""
        return {"base_url": url + self.path, "api_key_env": "STORM_KEY", **self.more}

    def toml(self, url: str) -> str:
        """The table of `abreast.toml`."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.table(url).items()]
        return "\n".join([f"[lanes.{self.name}]", *lines, ""])


LANES: Mapping[str, Lane] = {
    "openai-reasoning": Lane("openai", "gpt-5"),
    "openai-responses": Lane("openai", "gpt-5"),
    "anthropic-new": Lane("anthropic", "claude-opus-4-7"),
    "anthropic-classic": Lane("anthropic", "claude-sonnet-4-0"),
    "gemini": Lane("gemini", "gemini-3-pro-preview", "/v1beta"),
    "deepseek": Lane("deepseek", "deepseek-v4-flash"),
    "mistral": Lane("mistral", "mistral-small-latest"),
    "groq": Lane("groq", "llama-3.3-70b-versatile"),
    "xai": Lane("xai", "grok-4"),
    "openrouter": Lane("openrouter", "some/model"),
    "vllm-old": Lane("vllm", "llama"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


# Runs abreast with these arguments and this input.
Runner = Callable[[Sequence[str], str], Said]


@dataclass(frozen=True, slots=True)
class Job:
    """A command, with `MODEL` for the model, and a check of what it printed."""

    name: str
    arguments: tuple[str, ...]
    check: Callable[[Said], str]
    given: str = ""
    in_store: bool = True  # whether what it used is in the store, to be compared with the bill


@dataclass(slots=True)
class Cell:
    """What became of a job. `problem` is empty if all is well."""

    problem: str = ""
    refused: Counter[str] = field(default_factory=Counter)
    billed: BilledTokens = field(default_factory=BilledTokens)


SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"enum": ["good", "bad"]},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "why": {"type": "string", "maxLength": 80},
    },
    "required": ["label", "score"],
}
STUDY = """\
matrix:
  name: judged
  models: [MODEL]
  strategies:
    plain: {prompt: "Say {{ input.text }}", temperature: 0, max_tokens: 300}
  inputs: [{id: a, text: hello}, {id: b, text: good day}]
  scores:
    - {judge: "Is it good?", name: good}
"""
WORKFLOW = """\
schema_version: "1.0"
workflow: {id: greet, name: Greet, version: "1.0.0"}
steps:
  - id: all
    type: fan-out
    items: ["Oslo", "Lima"]
    step: {id: ask, type: prompt, prompt: "Greet {{ item }}", model: MODEL, temperature: 0}
"""


def _lines(count: int) -> Callable[[Said], str]:
    def check(said: Said) -> str:
        found = [line for line in said.out.splitlines() if line.strip()]
        return "" if len(found) == count else f"{len(found)} lines of {count}"

    return check


def _labels(said: Said) -> str:
    rows = [json.loads(line) for line in said.out.splitlines()]
    good = [row for row in rows if row["label"] == "good" and 1 <= row["score"] <= 5]
    return "" if len(good) == 3 else f"not by the schema: {said.out!r}"


def _passed(said: Said) -> str:
    return "" if json.loads(said.out.splitlines()[-1])["ok"] else "the judge did not agree"


def _something(said: Said) -> str:
    return "" if said.out.strip() else "it said nothing"


def _ended(said: Said) -> str:
    """A score that is missing is in the exit code already."""
    return "" if "2 of 2 cells done" in said.err else _first_line(said.err)


_TOWNS = "Oslo\nLima\nRome\n"
JOBS = (
    Job("map", ("map", "--prompt", "Name {}", "-m", "MODEL"), _lines(3), _TOWNS),
    Job(
        "map --schema",
        ("map", "--prompt", "Label {}", "-m", "MODEL", "--schema", "label.json"),
        _labels,
        _TOWNS,
    ),
    Job(
        "map with options",
        (
            *("map", "--prompt", "Name {}", "-m", "MODEL", "--system", "Be brief."),
            *("--temperature", "0.5", "--max-tokens", "400"),
        ),
        _lines(3),
        _TOWNS,
    ),
    Job(
        "sample, judged",
        ("sample", "Say hello", "-m", "MODEL", "--check", "judge: is kind", "--json"),
        _passed,
    ),
    Job("study, judged", ("matrix", "run", "study.yaml", "--no-report"), _ended),
    Job("workflow", ("run", "greet.yaml"), _something),
    Job("ask", ("ask", "Say hello", "-m", "MODEL", "--seed", "7"), _something, in_store=False),
    Job("doctor", ("doctor", "MODEL"), _something, in_store=False),
)


def prepare(folder: Path, profile: str, url: str) -> None:
    """Write the project of a profile: its lane, and the files of the jobs."""
    lane = LANES[profile]
    model = f"{lane.name}/{lane.model}"
    (folder / ".git").mkdir(exist_ok=True)  # so that no store above it is used
    (folder / "abreast.toml").write_text(lane.toml(url), "utf-8")
    (folder / "label.json").write_text(json.dumps(SCHEMA), "utf-8")
    (folder / "study.yaml").write_text(STUDY.replace("MODEL", model), "utf-8")
    (folder / "greet.yaml").write_text(WORKFLOW.replace("MODEL", model), "utf-8")


def play(job: Job, profile: str, run: Runner, log: Callable[[], Sequence[LogEntry]]) -> Cell:
    """Run one job, and compare what it used with what the provider bills."""
    lane = LANES[profile]
    before = len(log())
    said = run(
        [word.replace("MODEL", f"{lane.name}/{lane.model}") for word in job.arguments], job.given
    )
    entries = log()[before:]
    cell = Cell(
        refused=Counter(
            {parameter: times for (_, _, parameter), times in refusals_of(entries).items()}
        ),
        billed=billed_of(entries).get(lane.model, BilledTokens()),
    )
    if said.code:
        cell.problem = _first_line(said.err) or _first_line(said.out) or f"exit code {said.code}"
    else:
        cell.problem = job.check(said) or (_bill_problem(run, cell.billed) if job.in_store else "")
    return cell


def _bill_problem(run: Runner, billed: BilledTokens) -> str:
    """Whether the newest run has the tokens that the provider bills."""
    (used,) = json.loads(run(["show", "last", "--json"], "").out)["usage"].values()
    if (used["input_tokens"], used["output_tokens"]) == (billed.input, billed.output):
        return ""
    recorded = f"{used['input_tokens']} + {used['output_tokens']}"
    return f"recorded {recorded} tokens, but billed are {billed.input} + {billed.output}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def refused_again(cells: Mapping[str, Cell], *, per_command: bool = False) -> list[str]:
    """The parameters that were refused more than once, by any command or by one of them."""
    counts = [cell.refused for cell in cells.values()]
    if not per_command:
        counts = [sum(counts, Counter())]
    return sorted({name for count in counts for name, times in count.items() if times > 1})


# --- the table


def play_profile(profile: str, jobs: Sequence[Job]) -> dict[str, Cell]:
    """Run the jobs against a storm of its own."""
    with TemporaryDirectory() as name, start_process(strict=profile) as storm:
        folder = Path(name)
        prepare(folder, profile, storm.url)
        return {job.name: play(job, profile, _runner(folder), storm.log) for job in jobs}


def _runner(folder: Path) -> Runner:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ABREAST_")}

    def run(arguments: Sequence[str], given: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "abreast", *arguments],
            cwd=folder,
            env={**kept, "STORM_KEY": KEY},
            input=given,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


def main() -> int:
    """Play all profiles, print the table; 1 if something failed or was refused again."""
    args = _arguments()
    jobs = [job for job in JOBS if not args.job or job.name in args.job]
    played: dict[str, dict[str, Cell]] = {}
    _print_row("profile", [job.name for job in jobs])
    for profile in args.profiles or LANES:
        cells = played[profile] = play_profile(profile, jobs)
        _print_row(profile, ["FAILED" if cell.problem else "ok" for cell in cells.values()])
    print()
    bad = False
    for profile, cells in played.items():
        again = refused_again(cells, per_command=args.per_command)
        bad |= bool(again) or any(cell.problem for cell in cells.values())
        for name, cell in cells.items():
            if cell.problem:
                print(f"{profile}, {name}: {cell.problem}")
        for name, times in sorted(
            sum((cell.refused for cell in cells.values()), Counter()).items()
        ):
            print(f"{profile}: {name} refused {times} x{' (too often)' if name in again else ''}")
        billed = [cell.billed for cell in cells.values()]
        print(
            f"{profile}: {sum(each.requests for each in billed)} requests billed, "
            f"{sum(each.input for each in billed)} + {sum(each.output for each in billed)} tokens, "
            f"{sum(each.reasoning for each in billed)} of them reasoning"
        )
    return int(bad)


def _print_row(name: str, words: Sequence[str]) -> None:
    print(f"{name:<18}", *(f"{word:<17}" for word in words), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.providers", description=__doc__)
    parser.add_argument(
        "profiles", nargs="*", metavar="PROFILE", help=f"which of {' '.join(LANES)}; all if none"
    )
    parser.add_argument(
        "--job", action="append", metavar="JOB", help="one of the columns; may be repeated"
    )
    parser.add_argument(
        "--per-command",
        action="store_true",
        help="count refusals in each command, not over all commands of a profile",
    )
    args = parser.parse_args()
    if unknown := [name for name in args.profiles if name not in LANES]:
        parser.error(f"no such profile: {', '.join(unknown)} (there are {', '.join(LANES)})")
    names = [job.name for job in JOBS]
    if unknown := [name for name in args.job or () if name not in names]:
        parser.error(f"no such job: {', '.join(unknown)} (there are {', '.join(names)})")
    return args


if __name__ == "__main__":
    sys.exit(main())
