"""Chaos: every job under every fault on both durable stores, resumed and checked.

    python -m benchmarks.chaos [--rounds 100] [--seed N] [--job J] [--fault F] [--store S] [--json]

A round is one job with one fault at a moment drawn from the seed. The job is then resumed without
the fault, and its history is compared with that of the same job undisturbed. It ends with 1 unless
all counts are 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from random import Random

from abreast.testing.storm import start_process
from benchmarks.chaos.faults import FAULTS, Fault
from benchmarks.chaos.history import Counts
from benchmarks.chaos.jobs import JOBS, Job
from benchmarks.chaos.mutants import MUTANTS
from benchmarks.chaos.rounds import LATENCY, Arena, Report, build_shim
from scripts.postgres import find_server, open_server

STORES = ("sqlite", "postgres")
ENDLESS = 1_000_000  # rounds
AIMS = (1.0, 0.5, 0.2)  # of a job's work, until a fault meets it
MUTANT_ROUNDS = 10
MUTANT_PATIENCE = 20.0  # seconds until a mutant is taken to hang


def combinations(
    jobs: Sequence[str],
    faults: Sequence[str],
    stores: Sequence[str],
    draw: Random,
    *,
    has_shim: bool = True,
) -> Iterator[tuple[str, str, str]]:
    """All that go together, in a random order, again and again."""
    fitting = [
        (job, fault, store)
        for job in jobs
        for fault in faults
        for store in stores
        if _fits(JOBS[job], FAULTS[fault], store, has_shim=has_shim)
    ]
    if not fitting:
        raise SystemExit("this fault is not for this job and store, or needs a C compiler")
    draw.shuffle(fitting)
    return cycle(fitting)


def _fits(job: Job, fault: Fault, store: str, *, has_shim: bool) -> bool:
    return (
        fault.store in ("", store)
        and (job.calls or not fault.requests)
        and not (job.keeps_failures and fault.unreadable)
        and (has_shim or not fault.environment)
    )


def play(
    rounds: int, seed: int, jobs: Sequence[str], faults: Sequence[str], stores: Sequence[str]
) -> Iterator[Report]:
    """Play rounds, one after another. A fault that came too late is aimed again, earlier.

    That is a round too, and a report says whether its fault met the job.
    """
    draw = Random(seed)
    with open_arena(stores) as arena:
        drawn = combinations(jobs, faults, stores, draw, has_shim=arena.shim is not None)
        for job, fault, store in islice(drawn, rounds):
            for aim in AIMS:
                report = arena.play(job, fault, store, draw.getrandbits(32), aim=aim)
                yield report
                if report.hit or not report.is_timed:
                    break


def play_for(seconds: float, seed: int) -> Iterator[Report]:
    """Play rounds of every job and fault on the stores that are here, for so long."""
    deadline = time.monotonic() + seconds
    stores = STORES if find_server() else STORES[:1]
    faults = [name for name in FAULTS if name != "none"]
    for report in play(ENDLESS, seed, list(JOBS), faults, stores):
        yield report
        if time.monotonic() > deadline:
            return


def sweep(call: str, jobs: Sequence[str], stride: int, seed: int) -> Iterator[Report]:
    """Kill the driver of each job at its first write or fsync, at the next one, and so on."""
    draw = Random(seed)
    with open_arena() as arena:
        for job in jobs:
            for at in range(1, arena.calm(job).calls[call] + 1, stride):
                fault = "kill at write" if call == "write" else "kill at fsync"
                yield arena.play(job, fault, "sqlite", draw.getrandbits(32), at=at)


@contextmanager
def open_arena(stores: Sequence[str] = STORES[:1]) -> Iterator[Arena]:
    """A directory, a model's server and, if it is among the stores, a PostgreSQL."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abreast-chaos-")))
        storm = stack.enter_context(start_process(seed=1, latency=LATENCY, markers=False))
        database = stack.enter_context(open_server()) if "postgres" in stores else None
        yield Arena(home, storm, database, build_shim(home))


def play_mutant(name: str, rounds: int, seed: int) -> Iterator[Report]:
    """Play rounds with a broken promise, until the checker has noticed."""
    mutant, draw = MUTANTS[name], Random(seed)
    with open_arena() as arena:
        arena.calm(mutant.job)
        arena.mutant, arena.patience = mutant, MUTANT_PATIENCE
        for _ in range(rounds):
            report = arena.play(mutant.job, mutant.fault, "sqlite", draw.getrandbits(32))
            yield report
            if getattr(report.counts, mutant.count):
                return


def try_mutants(names: Sequence[str], rounds: int, seed: int) -> int:
    """Say of each whether it was noticed; 1 if one was not."""
    missed = 0
    for name in names:
        *_, last = play_mutant(name, rounds, seed)
        noticed = getattr(last.counts, MUTANTS[name].count) > 0
        missed += not noticed
        print(f"{'noticed' if noticed else 'MISSED'}: {name}: {last.counts}", flush=True)
    return 1 if missed else 0


def table(reports: Sequence[Report]) -> str:
    """A row for each fault, and one for all: how many rounds of which jobs, and the counts."""
    names = list(asdict(Counts()))
    by_fault: dict[str, list[Report]] = defaultdict(list)
    for report in reports:
        by_fault[report.fault].append(report)
    width = max(len("kill database"), *map(len, by_fault))
    head = f"{'fault':{width}} rounds   hit  " + "  ".join(name.replace("_", " ") for name in names)
    rows = [head]
    for fault, found in [*by_fault.items(), ("all", list(reports))]:
        counts = asdict(sum((one.counts for one in found), Counts()))
        cells = "  ".join(f"{counts[name]:>{len(name)}}" for name in names)
        hit = sum(one.hit for one in found)
        rows.append(f"{fault:{width}} {len(found):>6} {hit:>5}  {cells}")
    return "\n".join(rows)


def by_job(reports: Sequence[Report]) -> str:
    """How many rounds each job met, and how many were not well."""
    found = {name: [one for one in reports if one.job == name] for name in JOBS}
    return ", ".join(
        f"{name} {len(rounds)} ({sum(bool(one.counts) for one in rounds)} bad)"
        for name, rounds in found.items()
        if rounds
    )


def describe(report: Report) -> str:
    """A round in one line."""
    return (
        f"{report.job:9} {report.fault:15} {report.store:8} {report.seed:>10} "
        f"{report.first.code:>4} {report.last.code:>4} {report.seconds:5.1f} s  "
        f"{'' if report.hit else 'no effect, '}{report.counts}"
    )


def explain(report: Report) -> str:
    """What a bad round printed, to find out why."""
    history = report.history
    other = {
        path: (history.expected.get(path), history.answers.get(path))
        for path in history.expected.keys() | history.answers.keys()
        if history.expected.get(path) != history.answers.get(path)
    }
    parts = [f"first ({report.first.code}): {report.first.err[-1500:]}"]
    parts.append(f"last ({report.last.code}): {report.last.err[-1500:]}")
    parts += [f"other {path}: {str(pair)[:600]}" for path, pair in list(other.items())[:3]]
    return "\n".join([*parts, *(f"left: {one}" for one in history.left[:5])])


def main() -> int:
    """Play, print the table, and say whether all was well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--job", action="append", choices=list(JOBS))
    parser.add_argument("--fault", action="append", choices=list(FAULTS))
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--json", action="store_true", help="a line for each round")
    parser.add_argument("--explain", action="store_true", help="what bad rounds printed")
    parser.add_argument(
        "--sweep", choices=("write", "sync"), help="kill at every write or fsync of the store"
    )
    parser.add_argument("--stride", type=int, default=1, help="of a sweep: at every n-th one")
    parser.add_argument("--mutant", action="append", choices=["all", *MUTANTS])
    given = parser.parse_args()
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    if given.mutant:
        names = list(MUTANTS) if "all" in given.mutant else given.mutant
        return try_mutants(names, min(given.rounds, MUTANT_ROUNDS), seed)
    stores = given.store or (STORES if find_server() else STORES[:1])
    faults = given.fault or [name for name in FAULTS if name != "none"]
    reports, jobs = [], given.job or list(JOBS)
    for report in (
        sweep(given.sweep, jobs, given.stride, seed)
        if given.sweep
        else play(given.rounds, seed, jobs, faults, stores)
    ):
        reports.append(report)
        if given.json:
            facts = {"job": report.job, "fault": report.fault, "store": report.store}
            played = {"seed": report.seed, "hit": report.hit}
            line = json.dumps({**facts, **played, **asdict(report.counts)})
        else:
            line = describe(report)
        print(line, flush=True)
        if given.explain and report.counts:
            print(explain(report), flush=True)
    if not given.json:
        print(f"\nseed {seed}: {by_job(reports)}\n{table(reports)}")
    return 1 if any(report.counts for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
