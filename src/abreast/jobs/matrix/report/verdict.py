"""Whether a study's means reach what is asked of them; for CI: a verdict, JUnit XML, a summary."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from abreast.jobs.matrix.report.wording import number
from abreast.jobs.matrix.result import arm_means
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.arms import Arm, by_arm, score_names

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_NOT_XML: Final = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Threshold:
    """The least mean of a score; of every score, or of every strategy, where it names none."""

    least: float
    score: str = ""
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The mean of one score of one arm, and what it must be at least."""

    arm: Arm
    score: str
    mean: float | None
    least: float
    why: str = ""
    """Why there is no mean, if there is none."""

    @property
    def passes(self) -> bool:
        """Whether the mean is there, and reaches it."""
        return self.mean is not None and self.mean >= self.least

    def __str__(self) -> str:
        said = f"{self.arm}: the mean of {self.score} is {number(self.mean)}"
        if self.mean is None:
            said = f"{self.arm}: there is no mean of {self.score}" + (
                f" ({self.why})" if self.why else ""
            )
        return f"{said}, {'at least' if self.passes else 'less than'} {self.least:g}"


def read_threshold(text: str, scores: Sequence[str], strategies: Sequence[str]) -> Threshold:
    """Read `0.8`, `contains=0.8` or `told:contains=0.8`.

    Raises ValueError, with the names that there are, if it is none of these.

        >>> read_threshold("told:exact=0.8", ["exact"], ["asked", "told"])
        Threshold(least=0.8, score='exact', strategy='told')
    """
    names, _, digits = text.rpartition("=")
    try:
        least = float(digits)
    except ValueError:
        raise ValueError(f"{digits!r} is no number; write 0.8, or SCORE=0.8") from None
    if not least >= 0:  # NaN too
        raise ValueError(f"{digits} is no mean that a score can have")
    if not names or names in scores:
        return Threshold(least, names)
    for strategy in strategies:
        score = names.removeprefix(f"{strategy}:")
        if score != names and score in scores:
            return Threshold(least, score, strategy)
    raise ValueError(
        f"there is no score {names!r}; there are {', '.join(scores) or 'none'}, "
        f"and of one strategy STRATEGY:SCORE, with {', '.join(strategies)}"
    )


def verdicts(
    rows: Sequence[Row],
    thresholds: Iterable[Threshold],
    unavailable: Mapping[tuple[str, str], str],
) -> list[Verdict]:
    """Compare means, as the report has them, with what is asked; of arms that can't run, too."""
    means, names = arm_means(rows), score_names(rows)
    found = []
    for threshold in thresholds:
        for name in [threshold.score] if threshold.score else names:
            for arm in sorted({*means, *(Arm(*pair) for pair in unavailable)}):
                if threshold.strategy in ("", arm.strategy):
                    value = means.get(arm, {}).get(name)
                    why = "" if arm in means else unavailable[arm]
                    found.append(Verdict(arm, name, value, threshold.least, why))
    return found


def summary(title: str, rows: Sequence[Row], found: Sequence[Verdict]) -> str:
    """A table of the arms and their means as Markdown, and what misses its threshold above it."""
    from abreast.jobs.matrix.report.markdown import safe, table

    means, names = arm_means(rows), score_names(rows)
    arms = by_arm(rows)
    lines = [
        [
            arm,
            len(cells),
            sum(row.state == "failed" for row in cells),
            *(number(means[arm][name]) for name in names),
        ]
        for arm, cells in arms.items()
    ]
    missed = [one for one in found if not one.passes]
    parts = [f"## {safe(title)}", *(f"> **Under:** {safe(one)}" for one in missed)]
    if found and not missed:
        count = f"All {len(found)} means are" if len(found) > 1 else "The mean is"
        parts.append(f"{count} large enough.")
    return "\n\n".join([*parts, table(["arm", "cells", "failed", *names], lines)]) + "\n"


def junit(title: str, rows: Sequence[Row], found: Sequence[Verdict]) -> str:
    """JUnit XML: a suite for each arm with a case for each cell, and one with each threshold.

    A cell that failed, or lacks a score, is an error; a mean that is too small is a failure.
    """
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    suites = Element("testsuites", name=_xml(title))
    for arm, cells in by_arm(rows).items():
        suite = SubElement(suites, "testsuite", name=_xml(arm))
        for row in cells:
            case = SubElement(
                suite,
                "testcase",
                classname=_xml(arm),
                name=_xml(f"{row.input} #{row.repeat}"),
                time=f"{row.wall_s:.3f}",
            )
            for kind, why in _errors(row):
                SubElement(case, "error", type=_xml(kind), message=_xml(why))
            if row.output is not None:
                SubElement(case, "system-out").text = _xml(row.output)
    if found:
        suite = SubElement(suites, "testsuite", name="thresholds")
        for one in found:
            name = _xml(f"{one.score} >= {one.least:g}")
            case = SubElement(suite, "testcase", classname=_xml(one.arm), name=name)
            if not one.passes:
                SubElement(case, "failure", type="threshold", message=_xml(one))
    for suite in suites:
        _count(suite)
    indent(suites)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{tostring(suites, encoding='unicode')}\n"


def _errors(row: Row) -> Iterator[tuple[str, str]]:
    if row.state == "failed":
        yield row.error_type or "error", row.error or ""
    for name, why in sorted(row.score_errors.items()):
        yield f"score {name}", why


def _count(suite: "Element") -> None:
    suite.set("tests", str(len(suite)))
    for plural, tag in (("errors", "error"), ("failures", "failure")):
        suite.set(plural, str(sum(case.find(tag) is not None for case in suite)))


def _xml(value: object) -> str:
    """The text without what XML 1.0 can't hold, such as most control characters."""
    return _NOT_XML.sub("\ufffd", str(value))
