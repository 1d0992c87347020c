"""What the drawings of lanes and of limits share: the frame of time, its axis, levels, SVG text."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self
from xml.sax.saxutils import escape

from abreast.views.lane_rows import RUNNING, LaneLevel
from abreast.views.lanes import LaneChart
from abreast.views.limits import LimitChart

_MIN_SECONDS: Final = 0.05  # that a drawing spans at least
_MIN_SECONDS_LIVE: Final = 5.0  # while the run goes on, so that its first bars don't keep shrinking
_TICK_STEPS: Final = (1, 2, 5, 10, 15, 30, 60)  # times a power of ten seconds, or of minutes
_MINUTE: Final = 60  # seconds
_SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" \
viewBox="0 0 {wide} {high}">
<title>{title}</title>
<style>text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
fill:#9aa4b2}}
.b{{font-weight:700;fill:#e6edf3}}.k{{font-size:11px;fill:#0b0f14;text-anchor:middle}}\
.m{{text-anchor:middle}}.e{{text-anchor:end}}</style>
<rect width="{wide}" height="{high}" rx="10" fill="#0f141b"/>
{body}
</svg>
"""


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size of the output, and whether it has colours and more than ASCII."""

    width: int = 100
    height: int = 1000
    colour: bool = False
    ascii: bool = False


@dataclass(frozen=True, slots=True)
class DrawingFrame:
    """The part of the run's time that is drawn, and on how many columns (or pixels)."""

    begin: float
    end: float
    columns: int

    @classmethod
    def of(cls, chart: LaneChart | LimitChart, now: float, columns: int) -> Self:
        """The whole time that the chart still holds."""
        begin = chart.window.begin(now)
        least = _MIN_SECONDS_LIVE if chart.state == RUNNING else _MIN_SECONDS
        return cls(begin, max(now, begin + least), columns)

    def place(self, when: float) -> float:
        """The column of a moment."""
        return min(max((when - self.begin) / (self.end - self.begin), 0.0), 1.0) * self.columns

    def ticks(self, apart: int) -> Iterator[tuple[int, str]]:
        """Columns of round times with their labels, at least `apart` columns apart."""
        step = _round_step(apart * (self.end - self.begin) / self.columns)
        first, last = math.ceil(self.begin / step - 1e-9), math.floor(self.end / step + 1e-9)
        return ((round(self.place(at * step)), clock(at * step)) for at in range(first, last + 1))


def _round_step(least: float) -> float:
    """The shortest round time that is at least `least` seconds."""
    if least > _TICK_STEPS[-1]:
        return 60 * _round_step(least / 60)
    power = 1.0 if least > 1 else 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _TICK_STEPS if step * power >= least * 0.999)


def clock(seconds: float) -> str:
    """A time in the run: `0.25 s`, `4 s`, `1:30`, `2:05:00`."""
    if seconds < _MINUTE:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def elapsed(chart: LaneChart | LimitChart, now: float) -> str:
    """How long the run has been going, or how long it went."""
    return f"{'for' if chart.state == RUNNING else 'after'} {clock(round(now, 1))}"


def highest(level: LaneLevel, frame: DrawingFrame) -> list[int]:
    """The highest number in each column."""
    columns = [0] * frame.columns
    value, at = 0, 0
    for when, high, last in (*level.steps, (frame.end, level.value, level.value)):
        column = min(int(frame.place(when)), frame.columns - 1)
        for between in range(at, column + 1):
            columns[between] = max(columns[between], value)
        columns[column] = max(columns[column], high)
        value, at = last, column
    return columns


def axis(frame: DrawingFrame, canvas: Canvas) -> str:
    """A line with marks at round times."""
    line = ""
    for column, name in frame.ticks(12):
        if column + len(name) + 1 <= frame.columns:
            line = f"{line:{column}}{'|' if canvas.ascii else '╵'}{name}"
    return line


def svg_text(x: float, y: float, text: str, kind: str = "") -> str:
    """A text in an SVG, in one of its styles."""
    styled = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{styled}>{escape(text)}</text>'


def svg_file(width: int, height: int, title: str, body: str) -> str:
    """An SVG that loads nothing from elsewhere."""
    return _SVG.format(wide=width, high=height, title=escape(title), body=body)
