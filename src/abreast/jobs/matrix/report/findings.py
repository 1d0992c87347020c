"""Everything a report says, computed once from the rows; page and Markdown only format it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from abreast.jobs.matrix.report import accounts
from abreast.jobs.matrix.report.accounts import ArmCost, Balance, Failure, Latency, Load, Totals
from abreast.jobs.matrix.report.wording import interval, listed, number, share, usd
from abreast.jobs.matrix.report.wording import plain as as_text
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring import statistics
from abreast.jobs.matrix.scoring.arms import Arm, arms, plain, score_names
from abreast.jobs.matrix.scoring.statistics import ArmComparison, Control, Offer, Summary

_SHOWN_ELSEWHERE: Final = ("study", "warnings")  # facts that are not in the table of facts

_METHODS: Final = """
Intention-to-treat counts every scheduled cell: one that failed, or whose score could not be given,
counts as 0. Valid-only leaves such cells out. An arm to none of whose finished cells a score could
be given has no mean in it. Scores are taken to be better the higher they are.

The input is the block. Repeats are averaged per input first; means, intervals and tests are over
inputs. n is the number of cells.

Intervals are at 95%: Wilson's where all is 0 or 1 without repeats (or every input is alike),
otherwise Student's t over the inputs, cut at 0 and 1.

Arms are compared input by input: McNemar's exact test where all is 0 or 1, otherwise Wilcoxon's
signed ranks (Pratt). The effect is the matched-pairs rank-biserial correlation, from -1 to 1. p is
corrected by Holm for all pairs of a score, and a difference is called clear if it is then below
0.05. Below 6 common inputs nothing is tested. Controls are never compared.

Latencies are service times of cells that were done: no waiting for a place, no holds after a 429,
no backoff. Their intervals are distribution-free, from the ranks; a dash is a bound that so few
cells can't give. Whether the load slowed a lane is tested by Spearman's rank correlation, corrected
by Holm for all lanes.
"""
METHODS: Final = tuple(" ".join(paragraph.split()) for paragraph in _METHODS.split("\n\n"))


@dataclass(frozen=True, slots=True)
class Scored:
    """The findings for one score."""

    name: str
    summaries: tuple[Summary, ...]
    """The best first, by intention-to-treat mean."""
    comparisons: tuple[ArmComparison, ...]
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a report says."""

    title: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    arms: tuple[Arm, ...]
    totals: Totals
    balance: Balance
    scores: tuple[Scored, ...]
    failures: tuple[Failure, ...]
    score_failures: tuple[tuple[Arm, str, int], ...]
    latencies: tuple[Latency, ...]
    loads: tuple[Load, ...]
    costs: tuple[ArmCost, ...]
    controls: tuple[Control, ...]
    short: tuple[str, ...]
    """The report in a few sentences."""


def findings(rows: Sequence[Row], facts: Mapping[str, Any]) -> Findings:
    """Compute everything; needs the extra `report`."""
    cells = plain(rows)
    found = statistics.summaries(rows)
    compared = statistics.comparisons(rows)
    scores = tuple(
        Scored(
            name,
            tuple(
                sorted(
                    (one for one in found if one.score == name),
                    key=lambda one: (one.intended.mean is None, -(one.intended.mean or 0), one.arm),
                )
            ),
            tuple(one for one in compared if one.score == name),
            tuple(statistics.pareto(rows, found, name)),
        )
        for name in score_names(cells)
    )
    totals, balance = accounts.totals(rows), accounts.balance(rows)
    failures, loads = accounts.failures(rows), accounts.loads(rows)
    return Findings(
        title=as_text(facts.get("study") or "Matrix"),
        facts=tuple(
            (name, as_text(value)) for name, value in facts.items() if name not in _SHOWN_ELSEWHERE
        ),
        warnings=(
            *(as_text(warning) for warning in facts.get("warnings") or ()),
            *_unscored_sentences(rows),
        ),
        arms=tuple(arms(rows)),
        totals=totals,
        balance=balance,
        scores=scores,
        failures=tuple(failures),
        score_failures=tuple(accounts.score_failures(rows)),
        latencies=tuple(accounts.latencies(rows)),
        loads=tuple(loads),
        costs=tuple(accounts.costs(rows)),
        controls=tuple(statistics.controls(rows)),
        short=(
            *_count_sentences(totals, failures),
            *_judge_sentences(totals),
            *(sentence for scored in scores for sentence in _leader_sentences(scored)),
            *_balance_sentences(balance),
            *(load.sentence for load in loads if load.queued),
        ),
    )


def _count_sentences(totals: Totals, failures: Sequence[Failure]) -> Iterator[str]:
    if not totals.cells:
        yield "No cell has ended yet."
    elif failures:
        kinds: Counter[str] = Counter()
        for failure in failures:
            kinds[failure.error_type] += failure.count
        most = max(sorted(kinds), key=kinds.__getitem__)
        rate = share(totals.failed, totals.cells)
        yield (
            f"{totals.failed:,} of {totals.cells:,} cells failed ({rate}), most often with {most}."
        )
    else:
        yield (
            f"All {totals.cells:,} cells were done."
            if totals.cells > 1
            else "The one cell was done."
        )


def _unscored_sentences(rows: Sequence[Row]) -> Iterator[str]:
    """Which scores could not be given, how often, and one reason."""
    done = sum(row.state == "done" for row in rows)
    for name in score_names(rows):
        lacking = sorted(
            (row for row in rows if name in row.score_errors), key=lambda row: row.cell
        )
        if lacking:
            yield (
                f"The score {name} could not be given in {len(lacking):,} of {done:,} cells; "
                f"of {lacking[0].cell}: {lacking[0].score_errors[name]}"
            )


def _judge_sentences(totals: Totals) -> Iterator[str]:
    if totals.judge_tokens or totals.judge_usd != 0:
        cost = (
            "an unknown amount, as some price is not known,"
            if totals.judge_usd is None
            else usd(totals.judge_usd)
        )
        yield (
            f"Judges cost {cost} for {totals.judge_tokens:,} tokens; that is in no other cost here."
        )


def _leader_sentences(scored: Scored) -> Iterator[str]:
    """The leading arms of a score, from which others they differ clearly, and without failures."""
    if not any(one.valid.n for one in scored.summaries):
        yield f"{scored.name}: there is no value at all, so nothing can be said about it."
        return
    first, *others = [one for one in scored.summaries if one.intended.mean is not None]
    leading = [str(one.arm) for one in scored.summaries if one.intended.mean == first.intended.mean]
    verb = "has" if len(leading) == 1 else "have"
    sentence = f"{scored.name}: {listed(leading)} {verb} the highest mean, "
    sentence += number(first.intended.mean)
    if first.intended.low is not None and len(leading) == 1:
        sentence += f" ({interval(first.intended)})"
    if others:
        second = others[0]
        sentence += (
            f", before {second.arm} with {number(second.intended.mean)}"
            if len(leading) == 1
            else ""
        )
        own = [one for one in scored.comparisons if first.arm in (one.first, one.second)]
        sentence += f"; {'it' if len(leading) == 1 else leading[0]} "
        sentence += _difference_phrase(sum(one.intended.clear for one in own), len(others))
    yield f"{sentence}."
    known = [one for one in scored.summaries if one.valid.mean is not None]
    top = max((one.valid.mean or 0 for one in known), default=0)
    leaders = [str(one.arm) for one in known if one.valid.mean == top]
    if leaders and str(first.arm) not in leaders:
        yield (
            f"{scored.name}: without failed cells {listed(leaders)} would lead, with {number(top)}."
        )


def _difference_phrase(clear: int, others: int) -> str:
    if not clear:
        return "can't be told apart from any other arm"
    many = others > 1
    which = (
        f"{'every' if many else 'the'} other arm"
        if clear == others
        else f"{clear} of the {others} other arms"
    )
    return f"differs clearly from {which}"


def _balance_sentences(balance: Balance) -> Iterator[str]:
    if not balance.even:
        yield (
            f"The design is not balanced: arms and inputs have from {balance.least} "
            f"to {balance.most} cells, and {balance.short:,} have fewer than the most."
        )
