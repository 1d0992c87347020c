"""Lay the results out: one table per work, then the targets."""

from collections.abc import Iterable, Sequence

from benchmarks import works
from benchmarks.rounds import Result
from benchmarks.targets import MEGABYTE, Verdict, ladders, marginal
from benchmarks.works import Work

MICRO = 1e6
MILLI = 1e3
Row = tuple[str, ...]


def table(work: Work, results: Sequence[Result]) -> str:
    """Return the one table of a work, with its title, and who is not in it."""
    makers = {"H": _rows_of_h, "growth": _rows_of_growth}
    rows = makers.get(work.name, _rows_of_map)(
        work, [result for result in results if result.samples]
    )
    missing = {result.entry.label: result.missing for result in results if result.missing}
    skipped = [f"  {label}: skipped, {reason}" for label, reason in missing.items()]
    return "\n".join([f"{work.name}. {work.title}", *aligned(rows), *skipped])


def verdicts(judged: Sequence[Verdict]) -> str:
    """Return the targets, met or missed."""
    words = {True: "met", False: "MISSED", None: "-"}
    rows = [("", "target", "", "reached")]
    rows += [
        (verdict.work, verdict.target, words[verdict.met], verdict.reached) for verdict in judged
    ]
    return "\n".join(["Targets", *aligned(rows, left=4)])


def _rows_of_map(work: Work, results: Sequence[Result]) -> list[Row]:
    reference = next((result for result in results if result.entry.label == work.reference), None)
    cpu = reference.cpu if reference else None
    # B has an ideal to be divided by. Walls are compared per item, as not everyone is given the
    # same number.
    wall = reference.wall / reference.entry.n if reference else None
    if work.name == "B":
        wall = works.ideal_of_b(results[0].entry) / results[0].entry.n if results else None
    x_wall = "x ideal" if work.name == "B" else "x wall"
    heading = (
        "contender",
        "n",
        "cpu us/item",
        "x cpu",
        "wall s",
        x_wall,
        "open+close ms",
        "version",
    )
    return [heading, *(_row_of_map(result, cpu, wall) for result in results)]


def _row_of_map(result: Result, cpu: float | None, wall: float | None) -> Row:
    n = result.entry.n
    return (
        result.entry.label,
        f"{n:,}",
        f"{result.cpu * MICRO:,.1f}",
        _times(result.cpu, cpu),
        f"{result.wall:.3f}",
        _times(result.wall / n, wall),
        f"{result.around * MILLI:.1f}",
        result.version or "",
    )


def _rows_of_h(work: Work, results: Sequence[Result]) -> list[Row]:
    floor = next((result.cpu for result in results if result.entry.label == work.reference), None)
    rows: list[Row] = [("what", "cpu ms", "x floor", "memory")]
    for result in results:
        if result.entry.statement:
            rows.append(
                (result.entry.label, f"{result.cpu * MILLI:.1f}", _times(result.cpu, floor), "")
            )
        elif result.entry.play == "memory":
            rows.append(
                (
                    result.entry.label,
                    "",
                    "",
                    (
                        f"{result.extra('growth_bytes') / MEGABYTE:.1f} MB "
                        f"({result.cpu * MICRO:.1f} us/item)"
                    ),
                )
            )
        else:
            rows.append(
                (result.entry.label, "", "", f"{result.extra('bytes_in_flight'):,.0f} bytes")
            )
    return rows


def _rows_of_growth(_work: Work, results: Sequence[Result]) -> list[Row]:
    rows: list[Row] = [("contender", "n", "cpu us/item", "one item more, us", "x at n = 100")]
    for label, (one, *rest) in ladders(results).items():
        rows.append((label, "1", f"{one.cpu * MICRO:,.1f}", "", ""))
        for result in rest:
            more = marginal(result, one)
            times = _times(more, marginal(rest[0], one))
            rows.append(
                (
                    "",
                    f"{result.entry.n:,}",
                    f"{result.cpu * MICRO:,.1f}",
                    f"{more * MICRO:,.1f}",
                    times,
                )
            )
    return rows


def _times(value: float, reference: float | None) -> str:
    return f"{value / reference:,.2f}" if reference else ""


def aligned(rows: Sequence[Row], *, left: int = 1) -> Iterable[str]:
    """Pad the columns: the first `left` ones to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
