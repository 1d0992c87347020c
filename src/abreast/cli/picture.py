"""The lanes as a picture: in a terminal with rich, in plain text, in words, and as an SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

from rich.style import Style
from rich.text import Text

from abreast.cli.errors import one_line
from abreast.cli.lanes import CANCELLED, CRASHED, DONE, FAILED, RETRIED, RUNNING, Bar, Chart, Row, Strip

WAITING: Final = "waiting"

_COLOURS: Final = {  # two shades each, so that neighbours can be told apart
    DONE: ("#2f9e4f", "#4fc06f"), FAILED: ("#e5484d", "#f2676b"), RETRIED: ("#c98a1b", "#dda23a"),
    CANCELLED: ("#6b7380", "#8a929e"), CRASHED: ("#b457c2", "#c975d6"), RUNNING: ("#2f76e8", "#5b9bff"),
    WAITING: ("#8a929e", "#8a929e"),
}  # fmt: skip
_MARKS: Final = {DONE: "█▓", FAILED: "xx", RETRIED: "~~", CANCELLED: "--", CRASHED: "!!", RUNNING: "▒░", WAITING: "··"}
_ASCII_MARKS: Final = {**_MARKS, DONE: "#=", RUNNING: ">>", WAITING: ".."}
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS: Final = " .:-=+*#%"
_BLOCKS: Final = " ▏▎▍▌▋▊▉"
_PARTS: Final = len(_BLOCKS)  # of a cell
_LEAST: Final = 1.0  # seconds that a picture shows at least
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60)

Shade: TypeAlias = "tuple[str, int] | None"
"""What a part of a cell is painted with: a state in one of its two shades, or nothing."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of the run's time that is drawn, and on how many columns (or pixels)."""

    begin: float
    end: float
    columns: int

    @classmethod
    def of(cls, chart: Chart, now: float, columns: int) -> Frame:
        """All that the chart still has."""
        begin = 0.0 if chart.whole else max(0.0, now - chart.window)
        return cls(begin, max(now, begin + _LEAST), columns)

    def place(self, when: float) -> float:
        """The column of a moment."""
        return min(max((when - self.begin) / (self.end - self.begin), 0.0), 1.0) * self.columns

    def ticks(self, apart: int) -> Iterator[tuple[int, str]]:
        """Columns of round times with their names, at least so many columns apart."""
        step = _round_step(apart * (self.end - self.begin) / self.columns)
        first, last = math.ceil(self.begin / step - 1e-9), math.floor(self.end / step + 1e-9)
        return ((round(self.place(at * step)), clock(at * step)) for at in range(first, last + 1))


def _round_step(least: float) -> float:
    """The shortest round time that is not shorter than this."""
    if least > _STEPS[-1]:
        return 60 * _round_step(least / 60)
    power = 1.0 if least > 1 else 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * 0.999)


def clock(seconds: float) -> str:
    """A time in the run: `0.25 s`, `4 s`, `1:30`, `2:05:00`."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"  # noqa: PLR2004


# --- in words --------------------------------------------------------------------------------------------------------


def words(chart: Chart, now: float) -> list[tuple[str, str]]:
    """What is worth saying, each with the state whose colour it has."""
    counts = chart.counts
    of = f" of {chart.read}{'' if chart.complete else '+'}" if chart.read > counts.done else ""
    said = [(f"{counts.done}{of} done", DONE)]
    others = ((name, getattr(counts, name)) for name in (FAILED, RUNNING, WAITING, RETRIED, CANCELLED))
    said += [(f"{count} {name}", name) for name, count in others if count]
    if counts.speculative:
        said.append((f"{counts.speculative} past the stop", CANCELLED))
    rate = chart.rate(now) if chart.state == RUNNING else chart.settled / now if now else 0.0
    said += [(f"{rate:.1f}/s", ""), (f"peak {chart.peak}", ""), (f"{now:.1f} s", "")]
    if chart.usage.requests:
        tokens = chart.usage.input_tokens + chart.usage.output_tokens
        dollars = f", {chart.usage.usd:.4f} usd" if chart.usage.usd is not None else ""
        said.append((f"{chart.usage.requests} req, {tokens} tok{dollars}", ""))
    return said


def one_liner(chart: Chart, run: str, state: str, now: float) -> str:
    """The run in one line of plain text."""
    return f"{run} {state}: {', '.join(said for said, _ in words(chart, now))}"


def snapshot(chart: Chart, run: str, state: str, now: float) -> dict[str, Any]:
    """The run in JSON's own types."""
    lanes = [{"lane": strip.name, **asdict(strip.counts), "peak": len(strip.rows)} for strip in chart.strips.values()]
    return {
        "run": run, "state": state, "reason": chart.reason, "elapsed": round(now, 3), "read": chart.read,
        "complete": chart.complete, **asdict(chart.counts), "rate": round(chart.rate(now), 3), "peak": chart.peak,
        "spent": asdict(chart.usage) if chart.usage.requests else None, "lanes": lanes,
    }  # fmt: skip


# --- in a terminal ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Canvas:
    """What is drawn on: its size, and whether it has colours and more than ASCII."""

    width: int = 100
    height: int = 1000
    colour: bool = False
    ascii: bool = False


def draw(chart: Chart, run: str, state: str, now: float, canvas: Canvas) -> Text:
    """The whole picture."""
    margin = max([len(_name(strip)) for strip in chart.strips.values()] + [len("99 waiting")]) + 2
    frame = Frame.of(chart, now, max(10, canvas.width - margin))
    lines = [_header(chart, run, state, now), Text()]
    for strip, rows in _shown(chart, frame, canvas.height - 5 - 2 * len(chart.strips)):
        for bars in rows:
            name = _name(strip) if bars is rows[0] else ""
            lines.append(Text(f"{name:{margin}}", "bold").append_text(_bars(bars, frame, chart.seams, canvas)))
        if strip.waiting.steps:
            lines.append(_levels(strip, frame, margin, canvas))
        if hidden := len(strip.rows) - len(rows):
            lines.append(Text(f"{'':{margin}}and {hidden} more rows", "dim"))
    lines += [Text(" " * margin + _axis(frame, canvas), "dim"), Text(" " * margin).append_text(_legend(chart, canvas))]
    return Text("\n", no_wrap=True, end="").join(lines)


def _name(strip: Strip) -> str:
    name = one_line(strip.name)
    return name if len(name) <= 20 else f"{name[:9]}..{name[-9:]}"  # noqa: PLR2004


def _header(chart: Chart, run: str, state: str, now: float) -> Text:
    line = Text().append(f"{run}  ", "bold").append(state, _ink(state if state in _COLOURS else CANCELLED))
    for said, kind in words(chart, now):
        line.append("   ").append(said, _ink(kind) if kind else "dim")
    return line


def _shown(chart: Chart, frame: Frame, room: int) -> list[tuple[Strip, list[list[Bar]]]]:
    """The lanes with those of their rows that have something to show, as many as there is room for."""
    found = []
    for strip in chart.strips.values():
        rows = ([bar for bar in row.seen(frame.end) if bar.end >= frame.begin] for row in strip.rows)
        found.append((strip, [bars for bars in rows if bars]))
    most = max((len(rows) for _, rows in found), default=0)
    while most > 1 and sum(min(len(rows), most) for _, rows in found) > room:
        most -= 1
    return [(strip, rows[:most]) for strip, rows in found if rows]


def _bars(bars: Sequence[Bar], frame: Frame, seams: Iterable[float], canvas: Canvas) -> Text:
    """One row."""
    parts: list[Shade] = [None] * (frame.columns * _PARTS)
    names: dict[int, tuple[str, Style]] = {}
    for bar in bars:
        since, start, end = (round(frame.place(when) * _PARTS) for when in (bar.since, bar.start, bar.end))
        start = min(start, len(parts) - 1)
        parts[since:start] = [(WAITING, 0)] * (start - since)
        end = max(end, start + 1)
        parts[start:end] = [(bar.state, bar.nth % 2)] * (end - start)
        names |= _inscription(bar, -(-start // _PARTS), end // _PARTS)
    edges = {int(frame.place(seam)) for seam in seams if frame.begin < seam < frame.end}
    text = Text()
    for column in range(frame.columns):
        cell = parts[column * _PARTS : (column + 1) * _PARTS]
        if column in edges and cell[0] is None:
            text.append(":" if canvas.ascii else "┊", _ink(CRASHED))
        elif canvas.colour and not canvas.ascii:
            text.append(*(names[column] if column in names else _cell(cell)))
        else:
            text.append(names[column][0] if column in names else _mark(cell, canvas))
    return text


def _inscription(bar: Bar, first: int, after: int) -> dict[int, tuple[str, Style]]:
    """The item's key, on the cells of a bar that is long enough for it."""
    said = one_line(bar.key.lstrip("0") or bar.key[-1:])
    room = after - first - 2
    if bar.count > 1 or not 0 < len(said) <= room:
        return {}
    at = first + 1 + (room - len(said)) // 2
    style = Style(color="#0b0f14", bgcolor=_COLOURS[bar.state][bar.nth % 2])
    return {at + number: (char, style) for number, char in enumerate(said)}


def _cell(parts: Sequence[Shade]) -> tuple[str, Style]:
    """One cell in colour: up to two shades, the first one as wide as it is."""
    left = parts[0]
    width = next((at for at, part in enumerate(parts) if part != left), _PARTS)
    if width == _PARTS:
        return ("─" if left and left[0] == WAITING else " "), _fill(left)
    rest = parts[width:]
    right = max(rest, key=rest.count)
    left, right = (None if shade and shade[0] == WAITING else shade for shade in (left, right))
    return _BLOCKS[width], _edge(left, right)


@cache
def _fill(shade: Shade) -> Style:
    if shade is None:
        return Style()
    colour = _COLOURS[shade[0]][shade[1]]
    return Style(color=colour) if shade[0] == WAITING else Style(bgcolor=colour)


@cache
def _edge(left: Shade, right: Shade) -> Style:
    """Of a block that is `left` and has `right` behind it; where there is no left, the block is the background's."""
    colours = [None if shade is None else _COLOURS[shade[0]][shade[1]] for shade in (left, right)]
    return Style(color=colours[0], bgcolor=colours[1]) if left else Style(color=colours[1], reverse=True)


@cache
def _ink(state: str) -> Style:
    return Style(color=_COLOURS[state][1])


def _mark(parts: Sequence[Shade], canvas: Canvas) -> str:
    """One cell without colours."""
    most = max(parts, key=lambda part: (parts.count(part), part is not None))
    return (_ASCII_MARKS if canvas.ascii else _MARKS)[most[0]][most[1]] if most else " "


def _levels(strip: Strip, frame: Frame, margin: int, canvas: Canvas) -> Text:
    """How many waited, as a line of small columns."""
    columns = _highest(strip, frame)
    marks = _ASCII_LEVELS if canvas.ascii else _LEVELS
    top = max(columns)
    line = "".join(marks[-(-value * (len(marks) - 1) // top)] for value in columns) if top else ""
    return Text(f"{f'{top} {WAITING}':{margin}}{line}", _ink(WAITING) if canvas.colour else "")


def _highest(strip: Strip, frame: Frame) -> list[int]:
    """The highest number that waited in each column."""
    columns = [0] * frame.columns
    value, at = 0, 0
    for when, high, last in (*strip.waiting.steps, (frame.end, 0, 0)):
        column = min(int(frame.place(when)), frame.columns - 1)
        for between in range(at, column + 1):
            columns[between] = max(columns[between], value)
        columns[column] = max(columns[column], high)
        value, at = last, column
    return columns


def _axis(frame: Frame, canvas: Canvas) -> str:
    line = ""
    for column, name in frame.ticks(12):
        if column + len(name) + 1 <= frame.columns:
            line = f"{line:{column}}{'|' if canvas.ascii else '╵'}{name}"
    return line


def _states(chart: Chart) -> list[str]:
    """Those that are to be seen."""
    rows = [row for strip in chart.strips.values() for row in strip.rows]
    found = {bar.state for row in rows for bar in row.seen(chart.now)}
    if any(strip.waiting.steps for strip in chart.strips.values()):
        found.add(WAITING)
    return [state for state in _COLOURS if state in found]


def _legend(chart: Chart, canvas: Canvas) -> Text:
    line = Text()
    for state in _states(chart):
        mark = (_ASCII_MARKS if canvas.ascii else _MARKS)[state][0]
        mark = "─" if state == WAITING and canvas.colour else "■" if canvas.colour else mark
        line.append(mark, _ink(state)).append(f" {state}   ", "dim")
    return line


# --- as an SVG -------------------------------------------------------------------------------------------------------

_WIDE, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 104, 28, 66, 62  # pixels
_HIGH, _STEP, _HILL = 20, 24, 30  # of a bar, from row to row, of the hill of those that wait
_MOST_BARS: Final = 500  # keeps the file under 60 KB
_MOST_ROWS: Final = 40
_SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img">
<title>{title}</title>
<style>text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#9aa4b2}}
.b{{font-weight:700;fill:#e6edf3}}.k{{font-size:11px;fill:#0b0f14;text-anchor:middle}}.m{{text-anchor:middle}}</style>
<rect width="{wide}" height="{high}" rx="10" fill="#0f141b"/>
{body}
</svg>
"""


def svg(chart: Chart, run: str, state: str, now: float) -> str:
    """The picture as a file of its own: nothing in it is fetched from elsewhere."""
    frame = Frame.of(chart, now, _WIDE - _LEFT - _RIGHT)
    shown = _fewer(_shown(chart, frame, _MOST_ROWS), frame)
    body: list[str] = []
    y = _TOP
    for strip, rows in shown:
        body.append(_said(20, y + 15, _name(strip), "b"))
        for bars in rows:
            body += (_svg_bar(bar, frame, y) for bar in bars)
            y += _STEP
        if strip.waiting.steps:
            body += _hill(strip, frame, y)
            y += _HILL
        y += 10
    grid = [f'<path d="M{_LEFT + x} {_TOP - 8}V{y}" stroke="#222a35"/>' for x, _ in frame.ticks(90)]
    grid += (_said(_LEFT + x, y + 18, name, "m") for x, name in frame.ticks(90))
    for seam in chart.seams:
        x = _LEFT + frame.place(seam)
        body.append(f'<path d="M{x:.1f} {_TOP - 8}V{y}" stroke="{_COLOURS[CRASHED][1]}" stroke-dasharray="3 3"/>')
    title = f"{run} {state}: {', '.join(said for said, _ in words(chart, now))}"
    head = [_said(20, 34, run, "b"), _headline(chart, state, now, 20 + 8 * (len(run) + 3))]
    parts = [*head, *grid, *body, *_svg_legend(chart, y + 46)]
    return _SVG.format(wide=_WIDE, high=y + _BOTTOM, title=escape(title), body="\n".join(parts))


def _fewer(shown: list[tuple[Strip, list[list[Bar]]]], frame: Frame) -> list[tuple[Strip, list[list[Bar]]]]:
    """The same with so few bars that the file stays small: neighbours that are hard to tell apart become one."""
    grain = 2 * (frame.end - frame.begin) / frame.columns
    while sum(len(bars) for _, rows in shown for bars in rows) > _MOST_BARS:
        shown = [(strip, [_coarser(bars, grain) for bars in rows]) for strip, rows in shown]
        grain *= 1.5
    return shown


def _coarser(bars: Iterable[Bar], grain: float) -> list[Bar]:
    row = Row()
    for bar in bars:
        row.keep(bar, grain)
    return list(row.bars)


def _svg_bar(bar: Bar, frame: Frame, y: int) -> str:
    since, start, end = (_LEFT + frame.place(when) for when in (bar.since, bar.start, bar.end))
    width = max(1.0, end - start - 1)
    drawn = f'<rect x="{start:.1f}" y="{y}" width="{width:.1f}" height="{_HIGH}" rx="{min(4, width / 2):.1f}" fill="{_COLOURS[bar.state][1]}"/>'
    if start - since > 1:
        drawn += f'<path d="M{since:.1f} {y + 10}H{start:.1f}" stroke="{_COLOURS[WAITING][0]}" stroke-dasharray="2 2"/>'
    said = one_line(bar.key.lstrip("0") or bar.key[-1:])
    if bar.count == 1 and width > 7 * len(said) + 4:
        drawn += _said(round(start + width / 2), y + 14, said, "k")
    return drawn


def _hill(strip: Strip, frame: Frame, y: int) -> Iterator[str]:
    """How many waited over time."""
    heights = _highest(strip, Frame(frame.begin, frame.end, frame.columns // 4))
    top = max(heights)
    if top:
        points = "".join(f"V{y + _HILL - 4 - (_HILL - 8) * height / top:.1f}h4" for height in heights)
        yield f'<path d="M{_LEFT} {y + _HILL - 4}{points}V{y + _HILL - 4}z" fill="#8a929e" opacity=".4"/>'
        yield _said(20, y + 18, f"{top} {WAITING}")


def _headline(chart: Chart, state: str, now: float, x: int) -> str:
    said = [(state, state), *words(chart, now)]
    spans = (f'<tspan fill="{_COLOURS[kind][1] if kind in _COLOURS else "#9aa4b2"}">{escape(text)}</tspan>' for text, kind in said)
    return f'<text x="{x}" y="34">{"   ".join(spans)}</text>'


def _svg_legend(chart: Chart, y: int) -> Iterator[str]:
    x = _LEFT
    for state in _states(chart):
        shape = f'y="{y - 5}" width="12" height="2"' if state == WAITING else f'y="{y - 10}" width="12" height="12" rx="3"'
        yield f'<rect x="{x}" {shape} fill="{_COLOURS[state][1]}"/>{_said(x + 18, y, state)}'
        x += 42 + 8 * len(state)


def _said(x: float, y: float, said: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}"{f' class="{kind}"' if kind else ""}>{escape(said)}</text>'
