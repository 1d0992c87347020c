"""A plan as one HTML page that works offline: a treemap of subplans by tokens, and a table.

The page has no script and fetches nothing. Names are escaped, whatever is in them.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from abreast.core.version import VERSION
from abreast.jobs.plan.decompose.score import Score
from abreast.jobs.plan.spec import NodeKind, Plan, PlanNode
from abreast.jobs.plan.tree_text import REASON_WORDS, score_lines
from abreast.worktrees.merge.names import printable


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def within(self, sides: float, top: float) -> "Box":
        """The rectangle inside of a frame."""
        width, height = max(0.0, self.width - 2 * sides), max(0.0, self.height - top - sides)
        return Box(self.x + sides, self.y + top, width, height)


# Pixels.
_MAP_SIZE: Final = Box(0, 0, 1200, 720)
_FRAME_WIDTH: Final = 3.0
_HEAD_HEIGHT: Final = 17.0
_LETTER_WIDTH: Final = 6.9  # of the font below, on average
_LINE_HEIGHT: Final = 11.0  # of a line of text
_MAX_FILES: Final = 200  # listed of a subplan
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --line: #c9d1dc; --dim: #5b6675;
  --inner: #eef1f5; --few: #cfe3f7; --whole: #d9ecd2; --deep: #f8e3c2; --fits: #e4dcf5;
  --hub: #f6d3e6; --over: #c62828; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181e; --line: #3a4350;
  --dim: #9aa5b4; --inner: #1e242d; --few: #1f3d5c; --whole: #26472a; --deep: #57431c;
  --fits: #3b3058; --hub: #5a2744; --over: #ff7b72; } }
body { margin: 1.5rem auto; max-width: 80rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px;
  background: var(--paper); }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); pointer-events: none; }
svg rect { stroke: var(--line); stroke-width: 1; }
svg a:hover rect, svg a:focus rect { stroke: var(--ink); stroke-width: 2; }
.inner { fill: var(--inner); } .min_files { fill: var(--few); } .no_progress { fill: var(--whole); }
.max_depth { fill: var(--deep); } .fits, .given { fill: var(--fits); } .hubs { fill: var(--hub); }
.over { stroke: var(--over) !important; stroke-width: 2.5 !important; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; list-style: none;
  color: var(--dim); }
.key svg { width: 12px; height: 12px; border: 0; vertical-align: -1px; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; } tr:target { background: var(--few); }
summary { cursor: pointer; } details ul { margin: .3rem 0; color: var(--dim); }
code { color: var(--dim); }
footer { color: var(--dim); margin-top: 2rem; }
"""


def write_page(plan: Plan, report: Score, title: str, path: str | os.PathLike[str]) -> None:
    """Write the page, replacing an existing file atomically."""
    target = Path(path)
    # In the folder of the target, since a rename needs both files on one file system. The process
    # id keeps it apart from other processes' files.
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text(page(plan, report, title), encoding="utf-8", newline="\n")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def page(plan: Plan, report: Score, title: str) -> str:
    """The page as HTML text."""
    name = _text(title)
    leaves = sorted(plan.leaves, key=lambda leaf: (-leaf.tokens, leaf.scope))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="abreast {escape(VERSION)}">',
            f"<title>Plan of {name}</title><style>{_STYLE}</style></head><body>",
            f"<h1>Plan of {name}</h1>",
            *(f"<p>{_text(line)}</p>" for line in score_lines(plan, report)[:1]),
            _map(plan),
            _legend(plan),
            "<h2>Before anything is spent</h2><ul>",
            *(f"<li>{_text(line)}</li>" for line in score_lines(plan, report)[1:]),
            *(f"<li>{_text(note)}</li>" for note in plan.notes),
            "</ul>",
            f"<h2>Subplans</h2>{_table(leaves)}",
            f"<footer>Made by abreast {escape(VERSION)}: plan show --html</footer></body></html>",
            "",
        ]
    )


def _map(plan: Plan) -> str:
    description = (
        f"Map of {len(plan.leaves)} subplans, each as large as its tokens; "
        "the table below has the same."
    )
    view_box = f"0 0 {_MAP_SIZE.width:g} {_MAP_SIZE.height:g}"
    head = f'<svg viewBox="{view_box}" role="img" aria-label="{escape(description)}">'
    return "\n".join([head, *_boxes(plan, plan.root, _MAP_SIZE), "</svg>"])


def _boxes(plan: Plan, node: PlanNode, box: Box) -> Iterator[str]:
    waiting = [(node, box)]
    while waiting:
        one, place = waiting.pop()
        # The labels of children leave out the directory of their parent.
        parent = "" if one.parent is None else plan.node(one.parent).scope
        yield _box(one, place, f"{parent.rpartition('/')[0]}/")
        children = list(plan.children(one))
        head = _HEAD_HEIGHT if place.height > 3 * _HEAD_HEIGHT else _FRAME_WIDTH
        found = squares(
            [max(1, child.tokens) for child in children], place.within(_FRAME_WIDTH, head)
        )
        waiting += zip(children, found, strict=True)


def _box(node: PlanNode, place: Box, above: str) -> str:
    kind = "inner" if node.children else "hubs" if node.kind is NodeKind.HUBS else str(node.reason)
    over = " over" if node.over_budget else ""
    where = (
        f'x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}"'
    )
    tooltip = (
        f"{node.scope}: {len(node.files):,} files, {node.tokens:,} tokens, "
        f"{REASON_WORDS[node.reason]}{', over budget' if node.over_budget else ''}"
    )
    drawn = (
        f'<rect class="{kind}{over}" {where}><title>{_text(tooltip)}</title></rect>'
        f"{_label(node, place, above)}"
    )
    return drawn if node.children else f'<a href="#{escape(node.id)}">{drawn}</a>'


def _label(node: PlanNode, place: Box, above: str) -> str:
    letters = int((place.width - 8) / _LETTER_WIDTH)
    scope = printable(node.scope.removeprefix(above) or node.scope)
    if letters < 3 or place.height < _LINE_HEIGHT + 2:  # noqa: PLR2004 - letters
        return ""
    text = scope if len(scope) <= letters else f"{scope[: max(1, letters - 1)]}\u2026"
    return f'<text x="{place.x + 4:.1f}" y="{place.y + _LINE_HEIGHT + 1:.1f}">{escape(text)}</text>'


def _legend(plan: Plan) -> str:
    kinds = {
        str(leaf.reason): REASON_WORDS[leaf.reason]
        for leaf in plan.leaves
        if leaf.kind is not NodeKind.HUBS
    }
    if any(leaf.kind is NodeKind.HUBS for leaf in plan.leaves):
        kinds["hubs"] = "files that many import, with one writer"
    square = (
        '<svg viewBox="0 0 12 12" aria-hidden="true">'
        '<rect class="{}" width="12" height="12"/></svg>'
    )
    items = [
        f"<li>{square.format(kind)} {escape(words)}</li>" for kind, words in sorted(kinds.items())
    ]
    return f'<ul class="key"><li>Why a part is not divided further:</li>{"".join(items)}</ul>'


def _table(leaves: list[PlanNode]) -> str:
    head = (
        '<tr><th>Part</th><th class="number">Files</th><th class="number">Tokens</th>'
        "<th>Why it is whole</th></tr>"
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(map(_row, leaves))}</tbody></table>"


def _row(leaf: PlanNode) -> str:
    listed = "".join(f"<li>{_text(file)}</li>" for file in leaf.files[:_MAX_FILES])
    more = len(leaf.files) - _MAX_FILES
    rest = f"<li>and {more:,} more</li>" if more > 0 else ""
    over = ", over budget" if leaf.over_budget else ""
    return (
        f'<tr id="{escape(leaf.id)}"><td><details>'
        f"<summary>{_text(leaf.scope)} <code>{escape(leaf.id)}</code></summary>"
        f'<ul>{listed}{rest}</ul></details></td><td class="number">{len(leaf.files):,}</td>'
        f'<td class="number">{leaf.tokens:,}</td>'
        f"<td>{escape(REASON_WORDS[leaf.reason])}{over}</td></tr>"
    )


def _text(text: str) -> str:
    return escape(printable(text))


# --- the treemap: a rectangle divided into rectangles that are as square as possible --------------


def squares(areas: Sequence[float], box: Box) -> list[Box]:
    """A box for each area, in their order; together they fill `box`, in proportion to their areas.

    Areas are laid out in rows along the shorter side, the largest first; a row takes another area
    as long as its worst aspect ratio does not get worse. (Squarified treemaps, by Bruls, Huizing
    and van Wijk.)
    """
    total = sum(areas)
    if not areas or total <= 0:
        return [Box(box.x, box.y, 0.0, 0.0)] * len(areas)
    scale = box.width * box.height / total
    order = sorted(range(len(areas)), key=lambda place: (-areas[place], place))
    found: dict[int, Box] = {}
    left, at = box, 0
    while at < len(order):
        side = min(left.width, left.height)
        row = [order[at]]
        while at + len(row) < len(order):
            longer = [*row, order[at + len(row)]]
            if _worst_ratio([areas[one] * scale for one in longer], side) > _worst_ratio(
                [areas[one] * scale for one in row], side
            ):
                break
            row = longer
        left = _place_row([(one, areas[one] * scale) for one in row], left, found)
        at += len(row)
    return [found[place] for place in range(len(areas))]


def _worst_ratio(row: Sequence[float], side: float) -> float:
    thickness = sum(row) / side if side else 0.0
    return max(
        max(thickness * thickness / area, area / (thickness * thickness))
        if thickness and area
        else float("inf")
        for area in row
    )


def _place_row(row: Sequence[tuple[int, float]], box: Box, found: dict[int, Box]) -> Box:
    """Place a row along the shorter side; return the rest of the box."""
    upright, side = box.width >= box.height, min(box.width, box.height)
    thickness = sum(area for _, area in row) / side if side else 0.0
    at = 0.0
    for place, area in row:
        length = area / thickness if thickness else 0.0
        found[place] = (
            Box(box.x, box.y + at, thickness, length)
            if upright
            else Box(box.x + at, box.y, length, thickness)
        )
        at += length
    return (
        Box(box.x + thickness, box.y, max(0.0, box.width - thickness), box.height)
        if upright
        else Box(box.x, box.y + thickness, box.width, max(0.0, box.height - thickness))
    )
