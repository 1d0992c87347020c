"""Writes a report, and a comparison of two runs, as Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from abreast.jobs.matrix.report.changes import RunChanges
from abreast.jobs.matrix.report.findings import METHODS, Findings, Scored
from abreast.jobs.matrix.report.wording import (
    interval,
    number,
    p_value,
    quantile,
    seconds,
    share,
    signed,
    usd,
)

MOST_PAIRS: Final = 100
_SPECIAL: Final = re.compile(r"([\\`*_\[\]|#~!])")


def written(found: Findings) -> str:
    """The whole report as Markdown."""
    return "\n\n".join([f"# {safe(found.title)}", *_parts(found)]) + "\n"


def changes_markdown(changes: RunChanges, before: str = "A", after: str = "B") -> str:
    """The changes between two runs as Markdown."""
    return "\n\n".join([f"# {safe(before)} to {safe(after)}", *_changes(changes)]) + "\n"


def safe(text: object) -> str:
    """Escape text for Markdown, on one line: no tag, link, emphasis or new column."""
    return _SPECIAL.sub(r"\\\1", escape(" ".join(str(text).split()), quote=False))


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table; the first column is text, the others are aligned to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    body = ([safe(cell) for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _parts(found: Findings) -> Iterator[str]:
    yield from (f"> **Warning:** {safe(warning)}" for warning in found.warnings)
    yield "\n".join(f"- {safe(sentence)}" for sentence in found.short)
    totals = found.totals
    yield table(
        [
            "cells",
            "done",
            "failed",
            "controls",
            "tokens in",
            "tokens out",
            "cost",
            "judges",
            "no price",
            "estimated usage",
        ],
        [
            [
                f"{totals.cells:,}",
                f"{totals.done:,}",
                f"{totals.failed:,}",
                f"{totals.controls:,}",
                f"{totals.input_tokens:,}",
                f"{totals.output_tokens:,}",
                usd(totals.usd),
                usd(totals.judge_usd),
                f"{totals.unpriced:,}",
                f"{totals.estimated:.1%}",
            ]
        ],
    )
    for scored in found.scores:
        yield from _score(scored)
    yield from _failure_tables(found)
    yield from _times_and_costs(found)
    if found.controls:
        yield "## Controls"
        lines = [[one.strategy, one.score, one.n, number(one.mean)] for one in found.controls]
        yield table(["control", "score", "n", "mean"], lines)
    yield "## Provenance"
    yield table(["fact", "value"], found.facts)
    yield "## Methods"
    yield "\n".join(f"- {safe(method)}" for method in METHODS)


def _score(scored: Scored) -> Iterator[str]:
    yield f"## Score: {safe(scored.name)}"
    head = [
        "arm",
        "n",
        "inputs",
        "mean (intention-to-treat)",
        "95% interval",
        "n valid",
        "mean (valid-only)",
    ]
    lines = [
        [
            one.arm,
            one.intended.n,
            one.intended.inputs,
            number(one.intended.mean),
            interval(one.intended),
            one.valid.n,
            number(one.valid.mean),
            interval(one.valid),
        ]
        for one in scored.summaries
    ]
    yield table([*head, "95% interval"], lines)
    if scored.comparisons:
        shown = scored.comparisons[:MOST_PAIRS]
        yield f"### Differences in {safe(scored.name)}"
        if len(shown) < len(scored.comparisons):
            yield f"The largest {len(shown)} of {len(scored.comparisons):,}."
        head = [
            "difference",
            "inputs",
            "mean",
            "95% interval",
            "effect",
            "test",
            "p",
            "p (Holm)",
            "valid-only mean",
        ]
        lines = [
            [
                f"{one.second} less {one.first}",
                one.intended.pairs,
                signed(one.intended.mean),
                interval(one.intended),
                signed(one.intended.effect),
                one.intended.test,
                p_value(one.intended.p),
                p_value(one.intended.adjusted),
                signed(one.valid.mean),
            ]
            for one in shown
        ]
        yield table(head, lines)
    if scored.offers:
        yield f"### Cost and {safe(scored.name)}"
        lines = [
            [
                offer.arm,
                usd(offer.price) if offer.unit == "USD" else f"{offer.price:,.0f}",
                number(offer.mean),
                "yes" if offer.front else "no",
            ]
            for offer in scored.offers
        ]
        yield table(
            ["arm", f"{scored.offers[0].unit} per cell", "mean", "best for the price"], lines
        )


def _failure_tables(found: Findings) -> Iterator[str]:
    if found.failures:
        yield "## Failures"
        yield table(
            ["arm", "error", "cells", "share", "for example"],
            [
                [one.arm, one.error_type, one.count, share(one.count, one.cells), one.example]
                for one in found.failures
            ],
        )
    if found.score_failures:
        yield "## Scores that could not be given"
        yield table(["arm", "score", "cells"], found.score_failures)


def _times_and_costs(found: Findings) -> Iterator[str]:
    if found.latencies:
        yield "## Latency"
        lines = [[one.model, one.n, *map(quantile, one.quantiles)] for one in found.latencies]
        yield table(["model", "n", "median", "90%", "99%"], lines)
        yield "\n".join(f"- {safe(load.sentence)}" for load in found.loads)
    if found.costs:
        yield "## Cost"
        lines = [
            [one.arm, one.cells, f"{one.tokens:,.0f}", one.priced, usd(one.usd), usd(one.per_cell)]
            for one in found.costs
        ]
        yield table(["arm", "cells", "tokens per cell", "with a price", "total", "per cell"], lines)


def _changes(changes: RunChanges) -> Iterator[str]:
    yield (
        f"{changes.both:,} cells are in both runs, {changes.only_before:,} only in the first, "
        f"{changes.only_after:,} only in the second. "
        f"{len(changes.clear)} of {len(changes.scores)} scores changed clearly."
    )
    if changes.scores:
        yield "## Scores"
        yield table(
            [
                "arm",
                "score",
                "before",
                "after",
                "change",
                "95% interval",
                "effect",
                "test",
                "p (Holm)",
            ],
            [
                [
                    one.arm,
                    one.score,
                    number(one.before),
                    number(one.after),
                    signed(one.change.mean),
                    interval(one.change),
                    signed(one.change.effect),
                    one.change.test,
                    p_value(one.change.adjusted),
                ]
                for one in changes.scores
            ],
        )
    if changes.arms:
        yield "## Cells"
        yield table(
            [
                "arm",
                "cells",
                "mended",
                "broken",
                "other output",
                "cost",
                "service time",
                "p (Holm)",
            ],
            [
                [
                    one.arm,
                    one.cells,
                    one.mended,
                    one.broken,
                    one.outputs,
                    usd(one.usd),
                    _signed_seconds(one.service.mean),
                    p_value(one.service.adjusted),
                ]
                for one in changes.arms
            ],
        )


def _signed_seconds(change: float | None) -> str:
    return seconds(change) if change is None or change < 0 else f"+{seconds(change)}"
