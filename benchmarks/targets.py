"""The targets of the core, as verdicts over the measured results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import works
from benchmarks.rounds import Result, ratios_by_round

MEGABYTE = 1_000_000
MOST_GROWTH = 50 * MEGABYTE
MOST_IN_FLIGHT = 4_096


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, the number that was reached, and whether it was met (None.

    It couldn't be measured).
    """

    work: str
    target: str
    reached: str = "not measured"
    met: bool | None = None


def judge(work: str, results: Sequence[Result]) -> list[Verdict]:
    """Return the verdicts of one work."""
    rules = {
        "A": _judge_a,
        "B": _judge_b,
        "C": _judge_c,
        "D": _judge_d,
        "D2": _judge_d2,
        "H": _judge_h,
        "W": _judge_w,
        "growth": _judge_growth,
    }
    return list(rules[work](results)) if work in rules else []


def marginal(result: Result, one: Result) -> float:
    """Return the CPU seconds of one item more.

    The cost of a map of one item is taken off, per map.
    """
    n = result.entry.n
    return (result.cpu * n - one.cpu) / (n - 1)


def ladders(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Group the results of growth by contender, in the order of n; the first of each is n = 1."""
    grouped: dict[str, list[Result]] = {}
    for result in results:
        grouped.setdefault(result.entry.label, []).append(result)
    return grouped


def _judge_a(results: Sequence[Result]) -> Iterator[Verdict]:
    yield _at_most("A", results, works.WINDOW, 1.8)
    for label in (works.SEMAPHORE, works.THREADS, works.AIOMETER, works.ANYIO):
        yield _ahead("A", results, (label,), 1.0)


def _judge_b(results: Sequence[Result]) -> Iterator[Verdict]:
    target = "wall <= 1.06 x ideal"
    ours = _find(results, works.OURS)
    if ours is None:
        yield Verdict("B", target)
        return
    ratio = ours.wall / works.ideal_of_b(ours.entry)
    yield Verdict("B", target, f"{ratio:.3f} x", ratio <= 1.06)


def _judge_c(results: Sequence[Result]) -> Iterator[Verdict]:
    yield _at_most("C", results, works.GROUP_COMMIT, 3.0)
    yield _ahead("C", results, works.LANGGRAPH_SAVERS, 8.0)
    yield _ahead("C", results, works.DBOS_FORMS, 8.0)


def _judge_d(results: Sequence[Result], work: str = "D") -> Iterator[Verdict]:
    # The width of a jittered work is refilled call by call, so its calls are committed one by one.
    yield _at_most(work, results, works.AIOHTTP, 1.8 if work == "D" else 2.3)
    for label in works.SDKS:
        yield _ahead(work, results, (label,), 5.0)


def _judge_d2(results: Sequence[Result]) -> Iterator[Verdict]:
    return _judge_d(results, "D2")


def _judge_h(results: Sequence[Result]) -> Iterator[Verdict]:
    yield _at_most("H", results, works.IMPORT_FLOOR, 1.5, ours=works.IMPORT_OURS)
    for play, name, limit in (
        ("memory", "growth_bytes", MOST_GROWTH),
        ("flight", "bytes_in_flight", MOST_IN_FLIGHT),
    ):
        yield _bytes_below(results, play, name, limit)


def _judge_w(results: Sequence[Result]) -> Iterator[Verdict]:
    ladder = ladders(results)[works.OURS]
    target = f"flat within 1.3 x from {ladder[1].entry.n:,} to {ladder[-1].entry.n:,} items"
    if any(not result.samples for result in ladder):
        yield Verdict("W", target)
        return
    spread = _spread([marginal(result, ladder[0]) for result in ladder[1:]])
    yield Verdict("W", target, f"{spread:.2f} x", spread <= 1.3)
    for label in ("whole-state JSON", works.LANGGRAPH_SAVERS[0], "Prefect"):
        them = [result for result in results if result.entry.label == label and result.samples]
        ours = {result.entry.n: result for result in ladder}
        if not them:
            yield Verdict("W", f"ahead of {label}")
            continue
        last = them[-1]
        ratio = last.cpu / ours[last.entry.n].cpu
        yield Verdict(
            "W", f"ahead of {label} at {last.entry.n:,} items", f"{ratio:.1f} x", ratio > 1
        )


def _judge_growth(results: Sequence[Result]) -> Iterator[Verdict]:
    for label, ladder in ladders(results).items():
        if not label.startswith(works.OURS):
            continue
        target = (
            f"{label}: flat within 1.3 x from {ladder[1].entry.n:,} to {ladder[-1].entry.n:,} items"
        )
        if any(not result.samples for result in ladder):
            yield Verdict("growth", target)
            continue
        spread = _spread([marginal(result, ladder[0]) for result in ladder[1:]])
        with_fixed_cost = _spread([result.cpu for result in ladder[1:]])
        yield Verdict(
            "growth",
            target,
            f"{spread:.2f} x (fixed cost of a map kept: {with_fixed_cost:.2f} x)",
            spread <= 1.3,
        )


def _spread(costs: Sequence[float]) -> float:
    return max(costs) / min(costs)


def _find(results: Sequence[Result], label: str) -> Result | None:
    return next(
        (result for result in results if result.entry.label == label and result.samples), None
    )


def _at_most(
    work: str, results: Sequence[Result], reference: str, limit: float, *, ours: str = works.OURS
) -> Verdict:
    target = f"CPU <= {limit:g} x {reference}"
    us, them = _find(results, ours), _find(results, reference)
    if us is None or them is None:
        return Verdict(work, target)
    ratio, by_round = us.cpu / them.cpu, ratios_by_round(us, them)
    # Other work on the machine only adds CPU time: it misses the cache more often.
    least = us.least_cpu / them.least_cpu
    reached = (
        f"{ratio:.2f} x (rounds {min(by_round):.2f} to {max(by_round):.2f}; "
        f"of the least {least:.2f})"
    )
    return Verdict(work, target, reached, ratio <= limit)


def _ahead(work: str, results: Sequence[Result], labels: Sequence[str], times: float) -> Verdict:
    """Judge against the cheapest of a peer's forms."""
    target = f"ahead of {' and '.join(labels)}" + (f" by {times:g} x" if times > 1 else "")
    us, them = (
        _find(results, works.OURS),
        [result for label in labels if (result := _find(results, label))],
    )
    if us is None or not them:
        return Verdict(work, target)
    best = min(them, key=lambda result: result.cpu)
    ratio = best.cpu / us.cpu
    return Verdict(
        work,
        target,
        f"{ratio:.2f} x ({best.entry.label}; wall {best.wall / us.wall:.2f} x)",
        ratio >= times,
    )


def _bytes_below(results: Sequence[Result], play: str, name: str, limit: int) -> Verdict:
    ours = next(
        result
        for result in results
        if result.entry.play == play and result.entry.module == "abreast_map"
    )
    target = f"{ours.entry.label} < {limit:,} bytes"
    if not ours.samples:
        return Verdict("H", target)
    value = ours.extra(name)
    return Verdict("H", target, f"{value:,.0f} bytes", value < limit)
