"""Shows a plan as a tree in the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from abreast.jobs.plan.decompose.score import Score
from abreast.jobs.plan.spec import LEAF_REASONS, NodeKind, Plan, PlanNode, Reason
from abreast.worktrees.merge.names import printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

REASON_WORDS: Final[Mapping[Reason, str]] = {
    Reason.MAX_DEPTH: "greatest depth",
    Reason.MIN_FILES: "few files",
    Reason.NO_PROGRESS: "nothing divides it",
    Reason.FITS: "within the budget",
    Reason.GIVEN: "as given",
    Reason.DIRECTORIES: "by directories",
    Reason.IMPORTS: "by imports",
    Reason.COMMUNITIES: "by communities of imports",
    Reason.NAMES: "by names",
}
"""Reasons as they are shown."""
_MAX_LISTED: Final = 5  # hubs and pairs that are listed; the others are counted
_SHOWN_WIDTHS: Final = (2, 5, 10, 20, 50)


def to_json(plan: Plan, report: Score | None = None) -> dict[str, Any]:
    """The plan as `plan show --json` prints it: parents before children, `root` the first id."""
    return {
        "root": plan.root.id,
        "nodes": [
            {
                "id": node.id,
                "parent": node.parent,
                "children": list(node.children),
                "depth": node.depth,
                "files": list(node.files),
                "tokens": node.tokens,
                "reason": str(node.reason),
                "over_budget": node.over_budget,
            }
            for node in plan.nodes
        ],
        "max_depth_reached": plan.max_depth_reached,
        "score": None if report is None else {**asdict(report), "balance": balance(report)},
    }


def show(
    plan: Plan,
    report: Score | None = None,
    *,
    ids: bool = False,
    needs: Mapping[str, Sequence[str]] | None = None,
) -> Group:
    """The plan for rich to print: the tree with its reasons, the notes, and the score.

    `needs` has the parts that each part is to wait for.
    """
    from rich.console import Group
    from rich.text import Text
    from rich.tree import Tree

    trees = {plan.root.id: Tree(_label(plan.root, ids=ids))}
    for node in [*plan.walk()][1:]:
        label = _label(node, ids=ids)
        if after := [plan.node(need).scope for need in (needs or {}).get(node.id, ())]:
            label.append(f"  after {printable(', '.join(after))}", style="cyan")
        trees[node.id] = trees[node.parent or ""].add(label)
    lines = [Text(f"note: {printable(note)}", style="yellow") for note in plan.notes]
    if report is not None:
        lines += [Text(printable(line)) for line in score_lines(plan, report)]
    return Group(trees[plan.root.id], *lines)


def _label(node: PlanNode, *, ids: bool) -> Text:
    from rich.text import Text

    label = Text(printable(node.scope), style="bold" if node.children else "")
    if node.kind is NodeKind.HUBS:
        label.append("  hubs", style="magenta")
    label.append(f"  {_many(len(node.files), 'file')}, {_many(node.tokens, 'token')}", style="dim")
    label.append(
        f"  {REASON_WORDS[node.reason]}", style="green" if node.reason in LEAF_REASONS else "blue"
    )
    if node.over_budget:
        label.append("  over budget", style="bold red")
    if node.instructions:
        label.append("  with instructions", style="cyan")
    if ids:
        label.append(f"  {node.id}", style="dim")
    return label


def score_lines(plan: Plan, report: Score) -> list[str]:
    """The score as sentences."""
    sizes = sorted(report.tokens.values())
    spread = f"{sizes[0]:,} to {sizes[-1]:,}, half of them at most {sizes[(len(sizes) - 1) // 2]:,}"
    lines = [
        (
            f"{_many(report.leaves, 'subplan')}, depth {plan.max_depth_reached}; "
            f"tokens of a subplan: {spread}"
        ),
        f"imports that lead from one subplan to another: {report.cut_ratio:.0%}",
        f"balance: the largest subplan is {balance(report):.1f} times the mean",
        (
            f"critical path: {_many(len(report.critical_path), 'subplan')}, "
            f"{_many(report.critical_tokens, 'token')}"
        ),
    ]
    bounds = [bound for bound in report.speedup if bound.max_parallel in _SHOWN_WIDTHS]
    if bounds:
        speedups = ", ".join(
            f"{bound.parallel:.1f} ({bound.ordered:.1f}) at {bound.max_parallel}"
            for bound in bounds
        )
        lines.append(f"at most so many times faster (by dependency): {speedups}")
    hubs = _listed(
        [
            f"hub: {hub.path}, imported by {hub.importers} files of {hub.leaves} other subplans"
            for hub in report.hubs
        ]
    )
    pairs = _listed(
        [
            f"may conflict: {plan.node(pair.first).scope} and {plan.node(pair.second).scope}, "
            f"{_many(pair.imports, 'import')} between them"
            for pair in report.conflict_pairs
        ]
    )
    circles = [
        f"circle of {len(circle)} subplans, by dependency one group" for circle in report.cycles
    ]
    return [*lines, *hubs, *pairs, *_listed(circles)]


def balance(report: Score) -> float:
    """The tokens of the largest subplan, in multiples of the mean; 1 is best."""
    sizes = report.tokens.values()
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0


def _listed(lines: list[str]) -> list[str]:
    more = len(lines) - _MAX_LISTED
    return lines if more <= 0 else [*lines[:_MAX_LISTED], f"  and {more} more"]


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
