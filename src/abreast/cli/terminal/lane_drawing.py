"""Draws the lanes of a run: in a terminal with rich, in plain text, in words, and as an SVG."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, Final, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from abreast.cli.errors import one_line
from abreast.cli.terminal.drawing import (
    Canvas,
    DrawingFrame,
    axis,
    elapsed,
    highest,
    svg_file,
    svg_text,
)
from abreast.views.lane_rows import (
    CANCELLED,
    CRASHED,
    DONE,
    FAILED,
    RETRIED,
    RUNNING,
    LaneBar,
)
from abreast.views.lanes import ChartLane, LaneChart

WAITING: Final = "waiting"

_COLOURS: Final = {  # two shades each, so that neighbours differ
    DONE: ("#2f9e4f", "#4fc06f"),
    FAILED: ("#e5484d", "#f2676b"),
    RETRIED: ("#c98a1b", "#e3b341"),
    CANCELLED: ("#6b7380", "#8a929e"),
    CRASHED: ("#b457c2", "#c975d6"),
    RUNNING: ("#2f76e8", "#5b9bff"),
    WAITING: ("#8a929e", "#8a929e"),
}
_MARKS: Final = {
    DONE: "█▓",
    FAILED: "xx",
    RETRIED: "~~",
    CANCELLED: "--",
    CRASHED: "!!",
    RUNNING: "▒░",
    WAITING: "··",
}
_ASCII_MARKS: Final = {**_MARKS, DONE: "#=", RUNNING: ">>", WAITING: ".."}
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS: Final = " .:-=+*#%"
_BLOCKS: Final = " ▏▎▍▌▋▊▉"
_PARTS_PER_CELL: Final = len(_BLOCKS)
_MAX_AGENTS: Final = 16  # whose last steps are shown
_MAX_HEADER: Final = 3  # lines about the run, above its lanes
_NAME_WIDTH: Final = 20  # characters of a lane's name
_MAX_SUMMED: Final = 4  # clients, models or tags of a server in a line

VisibleLane: TypeAlias = tuple[ChartLane, list[list[LaneBar]]]
Shade: TypeAlias = "tuple[str, int] | None"
"""The colour of a part of a cell: a state in one of its two shades, or nothing."""


# --- in words ------------------------------------------------------------------------------------


def summary_parts(chart: LaneChart, now: float) -> list[tuple[str, str]]:
    """The parts of the summary, each with the state that gives its colour."""
    counts = chart.counts
    of = (
        f" of {chart.read}{'+' if chart.total is None else ''}"
        if chart.read > chart.settled
        else ""
    )
    parts = [(f"{counts.done}{of} done", DONE)]
    others = (
        (name, getattr(counts, name)) for name in (FAILED, RUNNING, WAITING, RETRIED, CANCELLED)
    )
    parts += [(f"{count} {name}", name) for name, count in others if count]
    if counts.speculative:
        parts.append((f"{counts.speculative} past the stop", CANCELLED))
    rate = chart.rate(now) if chart.state == RUNNING else chart.settled / now if now else 0.0
    parts += [(f"{rate:.1f}/s", ""), (f"peak {chart.peak}", "")]
    if chart.costs.usage.requests:
        tokens = chart.costs.usage.input_tokens + chart.costs.usage.output_tokens
        dollars = f", {chart.costs.usage.usd:.4f} usd" if chart.costs.usage.usd is not None else ""
        parts.append((f"{chart.costs.usage.requests} req, {tokens} tok{dollars}", ""))
    if text := chart.batches.text():
        parts.append((text, ""))
    return parts


def summary_line(chart: LaneChart, run: str, state: str, now: float) -> str:
    """The run in one line of plain text."""
    parts = ", ".join(part for part, _ in summary_parts(chart, now))
    return " | ".join([f"{one_line(run)} {state} {elapsed(chart, now)}: {parts}", *_sums(chart)])


def _sums(chart: LaneChart) -> list[str]:
    """The calls of a server by client, by model and by tag, a line each."""
    if chart.served is None:
        return []
    texts = chart.served.texts(_MAX_SUMMED)
    return [one_line(f"by {part}  {text}") for part, text in texts.items() if text]


def snapshot(chart: LaneChart, run: str, state: str, now: float) -> dict[str, Any]:
    """The run as JSON values."""
    lanes = [
        {"lane": strip.name, **asdict(strip.counts), "peak": strip.peak}
        for strip in chart.lanes.values()
    ]
    agents = chart.agents.items()
    return {
        "run": run,
        "state": state,
        "reason": chart.reason,
        "elapsed": round(now, 3),
        "read": chart.read,
        "complete": chart.total is not None,
        **asdict(chart.counts),
        "rate": round(chart.rate(now), 3),
        "peak": chart.peak,
        "spent": asdict(chart.costs.usage) if chart.costs.usage.requests else None,
        **({"batches": chart.batches.plain()} if chart.batches else {}),
        **({"served": chart.served.plain()} if chart.served is not None else {}),
        **({"agents": [{"key": key, "step": step} for key, step in agents]} if agents else {}),
        "lanes": lanes,
    }


# --- in a terminal -------------------------------------------------------------------------------


def draw(chart: LaneChart, run: str, state: str, now: float, canvas: Canvas) -> Text:
    """The whole drawing."""
    margin = (
        max([cell_len(_name(strip)) for strip in chart.lanes.values()] + [len("99 waiting")]) + 2
    )
    frame = DrawingFrame.of(chart, now, max(10, canvas.width - margin))
    sums = [Text(line, "dim") for line in _sums(chart)]
    header = _header(chart, run, state, now, canvas)
    lines = [*header, *sums, Text()]
    agents = chart.agents.items()[:_MAX_AGENTS]
    taken = 4 + len(header) + len(sums) + 2 * len(chart.lanes) + len(agents)
    shown = _visible_lanes(chart, frame, canvas.height - taken)
    for strip, rows in shown:
        for bars in rows:
            name = _name(strip) if bars is rows[0] else ""
            lines.append(
                Text()
                .append(set_cell_size(name, margin), "bold")
                .append_text(_bar_row(bars, frame, chart.seams, canvas))
            )
        if strip.waited.steps:
            lines.append(_waiting_row(strip, frame, margin, _most_waiting(chart), canvas))
        if hidden := len(strip.rows) - len(rows):
            lines.append(Text(f"{'':{margin}}and {hidden} more rows", "dim"))
    lines += [
        Text(" " * margin + axis(frame, canvas), "dim"),
        Text(" " * margin).append_text(_legend(shown, canvas)),
        *(_agent_row(key, step, margin, canvas) for key, step in agents),
    ]
    return Text("\n", no_wrap=True, end="").join(lines)


def _agent_row(key: str, step: str, margin: int, canvas: Canvas) -> Text:
    """The last step of an agent that runs."""
    name = set_cell_size(one_line(key), margin - 2)
    row = Text().append(f"{name}  ", "bold").append(one_line(step), _text_style(RUNNING))
    row.truncate(canvas.width, overflow="ellipsis")
    return row


def _name(strip: ChartLane) -> str:
    name = one_line(strip.name)
    return name if len(name) <= _NAME_WIDTH else f"{name[:9]}..{name[-9:]}"


def _header(chart: LaneChart, run: str, state: str, now: float, canvas: Canvas) -> list[Text]:
    """The run in one line; in a narrow terminal what does not fit there stands below."""
    lines = [
        Text()
        .append(f"{one_line(run)}  ", "bold")
        .append(state, _text_style(state if state in _COLOURS else CANCELLED))
        .append(f" {elapsed(chart, now)}", "dim")
    ]
    most = min(_MAX_HEADER, canvas.height // 6)
    for part, kind in summary_parts(chart, now):
        if lines[-1].cell_len + len(part) + 3 > canvas.width and len(lines) < most:
            lines.append(Text())
        space = "   " if lines[-1] else ""
        lines[-1].append(space).append(part, _text_style(kind) if kind else "dim")
    for line in lines:
        line.truncate(canvas.width, overflow="ellipsis")
    return lines


def _visible_lanes(chart: LaneChart, frame: DrawingFrame, room: int) -> list[VisibleLane]:
    """The lanes with their non-empty rows, at most `room` rows in all."""
    lanes = [
        (strip, [row for row in strip.rows if row.seen_since(frame.begin)])
        for strip in chart.lanes.values()
    ]
    most = max((len(rows) for _, rows in lanes), default=0)
    while most > 1 and sum(min(len(rows), most) for _, rows in lanes) > room:
        most -= 1
    shown = [
        (strip, [list(row.seen(frame.begin, frame.end)) for row in rows[:most]])
        for strip, rows in lanes
    ]
    return [(strip, rows) for strip, rows in shown if rows]


def _bar_row(
    bars: Sequence[LaneBar], frame: DrawingFrame, seams: Iterable[float], canvas: Canvas
) -> Text:
    parts: list[Shade] = [None] * (frame.columns * _PARTS_PER_CELL)
    names: dict[int, tuple[str, Style]] = {}
    for bar in bars:
        since, start, end = (
            round(frame.place(when) * _PARTS_PER_CELL) for when in (bar.since, bar.start, bar.end)
        )
        start = min(start, len(parts) - 1)
        parts[since:start] = [(WAITING, 0)] * (start - since)
        end = max(end, start + 1)
        parts[start:end] = [(bar.state, bar.nth % 2)] * (end - start)
        if end - start > 2 * _PARTS_PER_CELL:
            names |= _label_cells(bar, -(-start // _PARTS_PER_CELL), end // _PARTS_PER_CELL)
    edges = {math.ceil(frame.place(seam)) for seam in seams if frame.begin < seam < frame.end}
    text = Text()
    for column in range(frame.columns):
        cell = parts[column * _PARTS_PER_CELL : (column + 1) * _PARTS_PER_CELL]
        if column in edges and cell[0] in (None, (WAITING, 0)):
            text.append(":" if canvas.ascii else "┊", _text_style(CRASHED))
        elif canvas.colour and not canvas.ascii:
            text.append(*(names[column] if column in names else _coloured_cell(cell)))
        else:
            text.append(names[column][0] if column in names else _plain_cell(cell, canvas))
    return text


def _label_cells(bar: LaneBar, first: int, after: int) -> dict[int, tuple[str, Style]]:
    """The cells with the item's key; none if the bar is too short for it."""
    label = _bar_label(bar)
    room = after - first - 2
    if not 0 < len(label) <= room:
        return {}
    at = first + 1 + (room - len(label)) // 2
    style = Style(color="#0b0f14", bgcolor=_COLOURS[bar.state][bar.nth % 2])
    return {at + number: (char, style) for number, char in enumerate(label)}


def _bar_label(bar: LaneBar) -> str:
    """The item's key without leading zeros; empty for a bar of several items."""
    label = one_line(bar.key.lstrip("0") or bar.key[-1:]) if bar.attempts == 1 else ""
    return label if cell_len(label) == len(label) else ""


def _coloured_cell(parts: Sequence[Shade]) -> tuple[str, Style]:
    """One cell in colour: the first shade in its exact width, and the most frequent other one."""
    left = parts[0]
    width = next((at for at, part in enumerate(parts) if part != left), _PARTS_PER_CELL)
    if width == _PARTS_PER_CELL:
        return ("─" if left and left[0] == WAITING else " "), _cell_style(left)
    rest = parts[width:]
    right = max(rest, key=rest.count)
    left, right = (None if shade and shade[0] == WAITING else shade for shade in (left, right))
    return _BLOCKS[width], _edge_style(left, right)


@cache
def _cell_style(shade: Shade) -> Style:
    if shade is None:
        return Style()
    colour = _COLOURS[shade[0]][shade[1]]
    return Style(color=colour) if shade[0] == WAITING else Style(bgcolor=colour)


@cache
def _edge_style(left: Shade, right: Shade) -> Style:
    """The style of a block in the colour of `left`, with `right` as background.

    Without `left`, the block has the terminal's background colour.
    """
    colours = [None if shade is None else _COLOURS[shade[0]][shade[1]] for shade in (left, right)]
    return (
        Style(color=colours[0], bgcolor=colours[1])
        if left
        else Style(color=colours[1], reverse=True)
    )


@cache
def _text_style(state: str) -> Style:
    return Style(color=_COLOURS[state][1])


def _plain_cell(parts: Sequence[Shade], canvas: Canvas) -> str:
    most = max(parts, key=lambda part: (parts.count(part), part is not None))
    return (_ASCII_MARKS if canvas.ascii else _MARKS)[most[0]][most[1]] if most else " "


def _waiting_row(
    strip: ChartLane, frame: DrawingFrame, margin: int, most: int, canvas: Canvas
) -> Text:
    """How many items waited, as a row of small columns."""
    columns = highest(strip.waited, frame)
    marks = _ASCII_LEVELS if canvas.ascii else _LEVELS
    line = "".join(marks[-(-value * (len(marks) - 1) // most)] for value in columns)
    return Text(
        f"{f'{max(columns)} {WAITING}':{margin}}{line}",
        _text_style(WAITING) if canvas.colour else "",
    )


def _most_waiting(chart: LaneChart) -> int:
    """The most that waited in any lane: all lanes are drawn to this scale."""
    return max(
        (high for strip in chart.lanes.values() for _, high, _ in strip.waited.steps), default=0
    )


def _states(shown: Iterable[VisibleLane]) -> list[str]:
    found = {bar.state for _, rows in shown for bars in rows for bar in bars}
    if any(strip.waited.steps for strip, _ in shown):
        found.add(WAITING)
    return [state for state in _COLOURS if state in found]


def _legend(shown: Iterable[VisibleLane], canvas: Canvas) -> Text:
    line = Text()
    for state in _states(shown):
        mark = (_ASCII_MARKS if canvas.ascii else _MARKS)[state][0]
        mark = "─" if state == WAITING and canvas.colour else "■" if canvas.colour else mark
        line.append(mark, _text_style(state)).append(f" {state}   ", "dim")
    return line


# --- as an SVG -----------------------------------------------------------------------------------

_SVG_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 104, 28, 72, 62  # pixels
_BAR_HEIGHT, _ROW_HEIGHT, _WAITING_HEIGHT = (
    20,
    24,
    30,
)  # pixels; the last one is for how many wait
_MAX_ROWS: Final = 32
_MAX_BARS: Final = 1500  # keeps the file under 60 KB
_MAX_LABELLED_BARS: Final = 250  # up to so many get round corners and labels
_GREY: Final = "#9aa4b2"


def svg(chart: LaneChart, run: str, state: str, now: float) -> str:
    """The drawing as a file that loads nothing from elsewhere."""
    frame = DrawingFrame.of(chart, now, _SVG_WIDTH - _LEFT - _RIGHT)
    body: list[str] = []
    y = _TOP
    shown = _merge_bars(_visible_lanes(chart, frame, _MAX_ROWS), frame)
    few = sum(len(bars) for _, rows in shown for bars in rows) <= _MAX_LABELLED_BARS
    for strip, rows in shown:
        body.append(svg_text(20, y + 15, _name(strip), "b"))
        if hidden := len(strip.rows) - len(rows):
            body.append(svg_text(20, y + 15 + _ROW_HEIGHT, f"+{hidden} rows"))
        for bars in rows:
            body += (_svg_bar(bar, frame, y) for bar in bars) if few else _svg_bars(bars, frame, y)
            y += _ROW_HEIGHT
        if strip.waited.steps:
            body += _waiting_area(strip, frame, y, _most_waiting(chart))
            y += _WAITING_HEIGHT
        y += 10
    grid = [f'<path d="M{_LEFT + x} {_TOP - 8}V{y}" stroke="#222a35"/>' for x, _ in frame.ticks(90)]
    grid += (svg_text(_LEFT + x, y + 18, name, "m") for x, name in frame.ticks(90))
    for seam in chart.seams:
        x = _LEFT + frame.place(seam)
        dashed = f'stroke="{_COLOURS[CRASHED][1]}" stroke-dasharray="4 3"'
        body.append(f'<path d="M{x:.1f} {_TOP - 14}V{y}" {dashed}/>')
        body.append(svg_text(round(x), _TOP - 17, "resumed", "m"))
    head = [svg_text(20, 30, run, "b"), _headline(chart, state, now, 20 + 8 * (len(run) + 3))]
    parts = "\n".join([*head, *grid, *body, *_svg_legend(shown, y + 46)])
    return svg_file(_SVG_WIDTH, y + _BOTTOM, summary_line(chart, run, state, now), parts)


def _merge_bars(shown: list[VisibleLane], frame: DrawingFrame) -> list[VisibleLane]:
    """The lanes with neighbouring bars merged, so that the file stays small."""
    most = _MAX_BARS // max(1, sum(len(rows) for _, rows in shown))
    return [
        (strip, [_merge_row(most, bars, frame.end - frame.begin) for bars in rows])
        for strip, rows in shown
    ]


def _merge_row(most: int, bars: list[LaneBar], length: float) -> list[LaneBar]:
    """Merge neighbouring bars until `most` are left; those of the same state first."""
    grain = length / _SVG_WIDTH
    while len(bars) > most:
        grain *= 2
        joined = bars[:1]
        for bar in bars[1:]:
            last = joined[-1]
            if bar.end - last.start < grain and (bar.state == last.state or grain > length / 8):
                joined[-1] = max(last, bar, key=lambda either: either.end - either.start)._replace(
                    start=last.start, end=bar.end, attempts=last.attempts + bar.attempts
                )
            else:
                joined.append(bar)
        bars = joined
    return bars


def _svg_bars(bars: Iterable[LaneBar], frame: DrawingFrame, y: int) -> Iterator[str]:
    """A row of many bars, as one path per state to keep the file small."""
    shapes: dict[str, str] = {}
    for bar in bars:
        start, end = (_LEFT + frame.place(when) for when in (bar.start, bar.end))
        width = max(0.6, end - start - 0.4)
        shapes[bar.state] = (
            f"{shapes.get(bar.state, '')}M{start:.1f} {y}h{width:.1f}v{_BAR_HEIGHT}h-{width:.1f}"
        )
    return (f'<path d="{shape}" fill="{_COLOURS[state][1]}"/>' for state, shape in shapes.items())


def _svg_bar(bar: LaneBar, frame: DrawingFrame, y: int) -> str:
    since, start, end = (_LEFT + frame.place(when) for when in (bar.since, bar.start, bar.end))
    width = max(1.0, end - start - 1)
    size = f'width="{width:.1f}" height="{_BAR_HEIGHT}" rx="{min(4, width / 2):.1f}"'
    drawn = f'<rect x="{start:.1f}" y="{y}" {size} fill="{_COLOURS[bar.state][1]}"/>'
    if start - since > 1:
        dashed = f'stroke="{_COLOURS[WAITING][0]}" stroke-dasharray="2 2"'
        drawn += f'<path d="M{since:.1f} {y + 10}H{start:.1f}" {dashed}/>'
    label = _bar_label(bar)
    if label and width > 7 * len(label) + 4:
        drawn += svg_text(round(start + width / 2), y + 14, label, "k")
    return drawn


def _waiting_area(strip: ChartLane, frame: DrawingFrame, y: int, most: int) -> Iterator[str]:
    """How many items waited over time, as an area."""
    heights = highest(strip.waited, DrawingFrame(frame.begin, frame.end, frame.columns // 4))
    if top := max(heights):
        foot = y + _WAITING_HEIGHT - 6
        points = "".join(
            f"V{foot - (_WAITING_HEIGHT - 8) * height / most:.1f}h4" for height in heights
        )
        area = f'<path d="M{_LEFT} {foot}{points}V{foot}z"'
        yield f'{area} fill="{_COLOURS[WAITING][0]}" opacity=".45"/>'
        yield svg_text(20, y + 18, f"{top} {WAITING}")


def _headline(chart: LaneChart, state: str, now: float, x: int) -> str:
    spans = [(state, state), (f" {elapsed(chart, now)}", "")]
    for part, kind in summary_parts(chart, now):
        spans += ((" · ", ""), (part, kind))
    inked = (
        f'<tspan fill="{_COLOURS[kind][1] if kind in _COLOURS else _GREY}">{text}</tspan>'
        for text, kind in spans
    )
    return f'<text x="{x}" y="30" xml:space="preserve">{"".join(inked)}</text>'


def _svg_legend(shown: Iterable[VisibleLane], y: int) -> Iterator[str]:
    x = _LEFT
    for state in _states(shown):
        faint = 0.45 if state == WAITING else 1
        shape = f'y="{y - 10}" width="12" height="12" rx="3" opacity="{faint}"'
        yield f'<rect x="{x}" {shape} fill="{_COLOURS[state][1]}"/>{svg_text(x + 18, y, state)}'
        x += 42 + 8 * len(state)
