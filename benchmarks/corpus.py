"""Runs the corpus: small functions with candidates of every kind, and the verdict on each of them.

    python -m benchmarks.corpus                    # all, by `abreast optimize`: half an hour
    python -m benchmarks.corpus --fresh median     # one function, anew
    python -m benchmarks.corpus --behaviour        # without measuring: minutes
    python -m benchmarks.corpus --show             # the table of what is known

What `abreast optimize` said of a function is a line in `build/corpus.jsonl`, written when it has
ended: stopped, it goes on with the next function, and a function whose files have changed since is
tried again.

`corpus/NAME/original.py` has the function (or the class, whose last method is meant),
`test_NAME.py` its tests, and `candidates/KIND.py` or `KIND-2.py` the candidates. It ends with 1 if
a candidate that is wrong, cheats or does not end was accepted, if `abreast optimize` hung or a
candidate changed something outside its slot, or if less than 95% of the correct and really faster
ones were accepted.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from abreast.jobs.candidates.behaviour.traced_run import (
    Behaviour,
    Tests,
    Watched,
    judge_behaviour,
    watch,
)
from abreast.jobs.candidates.inputs.probe import Probe, prepare
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.checks import check_text
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, candidate_text
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.slot import Slot

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
KNOWN = CORPUS.parent / "build" / "corpus.jsonl"
LIMITS = ResourceLimits(seconds=30, memory=1 << 30, processes=64)
# seconds for a candidate of a function whose tests take a fraction of one; the machine may be busy
PATIENCE = 20
BUSY = 6  # of CPU
LONGEST = 1_800  # seconds for all candidates of a function: nothing may hang
GOOD = ("fast-correct", "same-speed", "slower")
KINDS = (*GOOD, "fast-wrong", "cheating", "hanging", "memory-bomb", "writes-outside")
OUTSIDE = ("/etc/candidate", "/var/candidate.txt", "/opt/candidate", "/usr/local/values.txt")
ENOUGH = 0.95
# Plugins that happen to be installed here take longer to load than most tests of the corpus.
QUICK = "[pytest]\naddopts = -p no:hypothesispytest -p no:asyncio -p no:anyio -p no:timeout\n"


@dataclass(frozen=True, slots=True)
class Specimen:
    """One function of the corpus."""

    name: str
    target: Target
    source: str

    @property
    def test(self) -> str:
        return f"{self.name}/test_{self.name}.py"

    @property
    def candidates(self) -> list[Path]:
        return sorted((CORPUS / self.name / "candidates").glob("*.py"))

    @property
    def digest(self) -> str:
        """Of its files: what is known of others says nothing."""
        files = sorted((CORPUS / self.name).rglob("*.py"))
        return hashlib.sha256(
            b"".join(path.name.encode() + path.read_bytes() for path in files)
        ).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one candidate."""

    specimen: str
    candidate: str
    verdict: str
    reason: str

    @property
    def kind(self) -> str:
        return re.sub(r"-\d+$", "", self.candidate)


def specimens(names: Iterable[str] = ()) -> list[Specimen]:
    """Those of these names, or all."""
    wanted = set(names)
    found = []
    for folder in sorted(path for path in CORPUS.iterdir() if (path / "original.py").exists()):
        source = (folder / "original.py").read_text(encoding="utf-8")
        target = Target(f"{folder.name}/original.py", _qualname(source, folder.name))
        if not wanted or folder.name in wanted:
            found.append(Specimen(folder.name, target, source))
    if unknown := wanted - {one.name for one in found}:
        sys.exit(f"not in the corpus: {', '.join(sorted(unknown))}")
    return found


def _qualname(source: str, name: str) -> str:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return name
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            return f"{node.name}.{methods[-1].name}"
    raise ValueError(f"{name} has no function")


@contextmanager
def repository() -> Iterator[Path]:
    """A repository with a copy of the corpus; nothing in it may change."""
    with tempfile.TemporaryDirectory(prefix="abreast-corpus-") as place:
        top = Path(place) / "corpus"
        shutil.copytree(CORPUS, top, ignore=shutil.ignore_patterns("__pycache__"))
        who = ["-c", "user.name=corpus", "-c", "user.email=corpus@example.com"]
        (top / "pytest.ini").write_text(QUICK, "utf-8")
        for words in (
            ["init", "-q", "."],
            ["add", "--all"],
            [*who, "commit", "-q", "-m", "corpus"],
        ):
            subprocess.run(["git", *words], cwd=top, check=True, timeout=60)
        before = fingerprint(top)
        yield top
        if fingerprint(top) != before:
            sys.exit("the main tree was changed")


def fingerprint(top: Path) -> str:
    """A digest of every file but git's own, and of what must not be there."""
    held = hashlib.sha256()
    for path in sorted(top.rglob("*")):
        inside = path.relative_to(top)
        if (
            path.is_file()
            and inside.parts[0] not in {".git", ".abreast"}
            and "__pycache__" not in inside.parts
        ):
            held.update(f"{inside}\0".encode() + path.read_bytes())
    held.update(json.dumps([path for path in OUTSIDE if Path(path).exists()]).encode())
    return held.hexdigest()


# --- behaviour alone


class Subject:
    """A function in its slot, with what the original does."""

    def __init__(self, slot: Slot, specimen: Specimen, *, text_check: bool = True) -> None:
        self._slot, self._specimen, self._text_check = slot, specimen, text_check
        self._tests = Tests((specimen.test,), python=sys.executable)
        self._original: Watched | None = None
        self._probe: Probe | None = None

    async def _watched(
        self, text: str, *, inputs: bytes | None = None, limits: ResourceLimits = LIMITS
    ) -> Watched:
        await self._slot.reset()
        self._slot.write_candidate(self._specimen.target.file, text)
        tests = self._tests if inputs is None else Tests((), python=sys.executable)
        return await watch(self._slot, self._specimen.target, tests, limits=limits, inputs=inputs)

    async def begin(self) -> None:
        """See what the original does."""
        source = self._specimen.source
        self._original = await self._watched(source)
        if self._original.failure:
            raise RuntimeError(f"{self._specimen.name}: {self._original.reason}")

        async def original(inputs: bytes) -> Watched:
            return await self._watched(source, inputs=inputs)

        self._probe = await prepare(
            original, self._original.invocations, source, self._specimen.target
        )

    async def judge(self, text: str) -> Behaviour:
        """The verdict on the text of a candidate."""
        specimen, source = self._specimen, self._specimen.source
        if self._original is None or self._probe is None:
            await self.begin()
        assert self._original is not None
        assert self._probe is not None
        try:
            whole = candidate_text(source, specimen.target, text)
        except CandidateInvalid as error:
            return Behaviour("error", str(error))
        refused = check_text(source, whole, specimen.target) if self._text_check else None
        if refused:
            return refused
        impatient = replace(LIMITS, seconds=PATIENCE, cpu=BUSY)
        behaviour = judge_behaviour(
            self._original, await self._watched(whole, limits=impatient), STRICT
        )
        if behaviour.verdict != "same":
            return behaviour

        async def candidate(inputs: bytes) -> Watched:
            return await self._watched(whole, inputs=inputs, limits=impatient)

        async def original(inputs: bytes) -> Watched:
            return await self._watched(source, inputs=inputs)

        return await self._probe.check(candidate, original, STRICT)


async def by_behaviour(
    chosen: list[Specimen], width: int, *, text_check: bool, told: Callable[[Result], None]
) -> list[Result]:
    """Judge every candidate, `width` functions side by side."""
    results: list[Result] = []
    waiting = list(reversed(chosen))
    with repository() as top:
        async with open_worktrees(top, width) as trees:

            async def work(slot: Slot) -> None:
                while waiting:
                    specimen = waiting.pop()
                    subject = Subject(slot, specimen, text_check=text_check)
                    for path in specimen.candidates:
                        behaviour = await subject.judge(path.read_text(encoding="utf-8"))
                        results.append(
                            Result(specimen.name, path.stem, behaviour.verdict, behaviour.reason)
                        )
                        told(results[-1])

            async with asyncio.TaskGroup() as group:
                for slot in trees.slots:
                    group.create_task(work(slot))
    return results


# --- all of it


@dataclass(frozen=True, slots=True)
class Told:
    """What `abreast optimize` said of a function's candidates, and how long it took."""

    specimen: str
    digest: str
    results: tuple[Result, ...]
    seconds: float = 0.0
    escapes: int = 0
    """Whether something outside of the slots was changed or left behind."""
    hangs: int = 0

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of(cls, line: str) -> Told:
        facts = json.loads(line)
        return cls(**facts | {"results": tuple(Result(**one) for one in facts["results"])})


def known(path: Path, chosen: list[Specimen]) -> dict[str, Told]:
    """What is known of the chosen functions as they are now; a line that was cut off is nothing."""
    found: dict[str, Told] = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            one = Told.of(line)
        except (ValueError, TypeError, KeyError):
            continue
        found[one.specimen] = one
    return {
        one.name: found[one.name]
        for one in chosen
        if one.name in found and found[one.name].digest == one.digest
    }


def by_optimizing(
    chosen: list[Specimen], width: int, path: Path, told: Callable[[Result], None]
) -> list[Told]:
    """Run `abreast optimize`, with measuring, for each function that has no stored result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = known(path, chosen)
    waiting = [one for one in chosen if one.name not in found]
    if waiting:
        with repository() as top:
            for number, specimen in enumerate(waiting, len(found) + 1):
                one = found[specimen.name] = optimized(specimen, top, width)
                for result in one.results:
                    told(result)
                print(
                    f"{number} of {len(chosen)}: {specimen.name}, {one.seconds:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
                with path.open("a", encoding="utf-8") as file:
                    file.write(one.line())
    return [found[one.name] for one in chosen]


def optimized(specimen: Specimen, top: Path, width: int) -> Told:
    """One function: all of its candidates, in a command of its own, and what it left behind."""
    command = [
        *(
            sys.executable,
            "-m",
            "abreast",
            "optimize",
            str(specimen.target),
            "--tests",
            specimen.test,
        ),
        *(
            "--candidates",
            f"{specimen.name}/candidates",
            "--width",
            str(width),
            "--json",
            "--quiet",
        ),
        *("--timeout", f"{PATIENCE}s"),
    ]
    before, began = fingerprint(top), time.perf_counter()
    facts: list[dict[str, str]] = []
    hangs = 0
    try:
        done = subprocess.run(
            command, cwd=top, capture_output=True, text=True, check=False, timeout=LONGEST
        )
        facts = json.loads(done.stdout)["candidates"]
    except subprocess.TimeoutExpired:
        hangs = 1
    except (ValueError, KeyError):
        sys.exit(f"{specimen.name}: {' '.join(done.stderr.split())[-500:]}")
    trees = subprocess.run(
        ["git", "worktree", "list"], cwd=top, capture_output=True, text=True, check=True, timeout=60
    )
    escapes = int(fingerprint(top) != before) + len(trees.stdout.splitlines()) - 1
    results = tuple(
        Result(specimen.name, Path(one["name"]).stem, one["verdict"], one["reason"])
        for one in facts
    )
    return Told(
        specimen.name, specimen.digest, results, time.perf_counter() - began, escapes, hangs
    )


# --- the table


def table(results: list[Result]) -> str:
    """Kinds by verdicts."""
    verdicts = sorted({one.verdict for one in results})
    counts = Counter((one.kind, one.verdict) for one in results)
    lines = [f"{'':16}" + "".join(f"{word:>11}" for word in verdicts)]
    for kind in KINDS:
        row = "".join(f"{counts[kind, word] or '':>11}" for word in verdicts)
        lines.append(f"{kind:16}{row}".rstrip())
    return "\n".join(lines)


def faults(results: list[Result], accepted: str) -> list[str]:
    """What should not have happened, given the verdict that means `accepted`."""
    bad = [
        one
        for one in results
        if one.kind not in GOOD and one.verdict in {"faster", "same", "slower", "undecided"}
    ]
    bad = [
        one
        for one in bad
        if one.verdict == accepted or one.kind in {"fast-wrong", "cheating", "writes-outside"}
    ]
    found = [f"{one.specimen}/{one.candidate} was {one.verdict}" for one in bad]
    slow = [
        one for one in results if one.kind in {"same-speed", "slower"} and one.verdict == "faster"
    ]
    found += [f"{one.specimen}/{one.candidate} was {one.verdict}" for one in slow]
    fast = [one for one in results if one.kind == "fast-correct"]
    missed = [one for one in fast if one.verdict != accepted]
    if len(missed) > (1 - ENOUGH) * len(fast):
        found += [
            f"{one.specimen}/{one.candidate} was {one.verdict}: {one.reason}" for one in missed
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="functions of the corpus; all if none is named")
    parser.add_argument(
        "--behaviour", action="store_true", help="compare behaviour, measure nothing"
    )
    parser.add_argument(
        "--blind",
        action="store_true",
        help="with --behaviour: do not look at texts, only at what they do",
    )
    parser.add_argument("--width", type=int, default=2, help="slots")
    parser.add_argument(
        "--fresh", action="store_true", help="forget what is known of these functions"
    )
    parser.add_argument("--show", action="store_true", help="try nothing, show what is known")
    parser.add_argument("--known", type=Path, default=KNOWN, help="where what is known is kept")
    given = parser.parse_args()
    chosen = specimens(given.names)
    if given.fresh and given.known.exists():
        rest = [
            one
            for one in known(given.known, specimens()).values()
            if one.specimen not in {c.name for c in chosen}
        ]
        given.known.write_text("".join(one.line() for one in rest), "utf-8")

    def told(one: Result) -> None:
        print(
            f"{one.specimen}/{one.candidate}: {one.verdict} {one.reason}"[:200],
            file=sys.stderr,
            flush=True,
        )

    if given.behaviour:
        results = asyncio.run(
            by_behaviour(chosen, given.width, text_check=not given.blind, told=told)
        )
        sys.exit(1 if say(results, len(chosen), "same") else 0)
    all_ = list(known(given.known, chosen).values()) if given.show else []
    all_ = all_ if given.show else by_optimizing(chosen, given.width, given.known, told)
    wrong = say([result for one in all_ for result in one.results], len(all_), "faster")
    hangs, escapes = sum(one.hangs for one in all_), sum(one.escapes for one in all_)
    print(f"{hangs} hangs, {escapes} escapes; {sum(one.seconds for one in all_) / 60:.0f} min")
    sys.exit(1 if wrong or hangs or escapes else 0)


def say(results: list[Result], functions: int, accepted: str) -> list[str]:
    """Print the table and what follows from it; what should not have happened."""
    print(table(results))
    wrong = faults(results, accepted)
    fast = [one for one in results if one.kind == "fast-correct"]
    taken = sum(one.verdict == accepted for one in fast)
    bad = sum(one.kind not in GOOD and one.verdict == accepted for one in results)
    print(
        f"{len(results)} candidates of {functions} functions; "
        f"{taken} of {len(fast)} fast and correct ones accepted, "
        f"{bad} wrong or cheating ones"
    )
    print("\n".join(wrong) or "nothing was taken for what it is not")
    return wrong


if __name__ == "__main__":
    main()
