"""Draws calls in flight, how many are allowed, and each decision: in a terminal or as an SVG."""

from collections.abc import Iterator
from typing import Any, Final

from rich.text import Text

from abreast.cli.errors import one_line
from abreast.cli.terminal.drawing import (
    Canvas,
    DrawingFrame,
    axis,
    clock,
    elapsed,
    highest,
    svg_file,
    svg_text,
)
from abreast.views.limits import CONCURRENCY, CallFlow, LimitChart

_PLOT_LINES: Final = 8  # height of a plot
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS: Final = " ....####"
_MARGIN: Final = 8  # columns
_MAX_DECISIONS: Final = 12  # that are listed for a lane
_RATE_UNITS: Final = {
    "requests": "rpm",
    "tokens": "tpm",
    "input": "input tpm",
    "output": "output tpm",
}


def summary_line(chart: LimitChart, run: str, state: str, now: float) -> str:
    """The lanes in one line of plain text."""
    parts = "; ".join(f"{flow.name}: {_summary(flow)}" for flow in chart.flows.values())
    return f"{run} {state} {elapsed(chart, now)}: {parts or 'no call to a model yet'}"


def snapshot(chart: LimitChart, run: str, state: str, now: float) -> dict[str, Any]:
    """The lanes as JSON values."""
    lanes = [
        {
            "lane": flow.name,
            "in_flight": flow.flying.value,
            "peak": flow.peak,
            "calls": flow.calls,
            "rejections": flow.rejections,
            "decisions": [decision.plain() for decision in flow.decisions],
        }
        for flow in chart.flows.values()
    ]
    return {"run": run, "state": state, "elapsed": round(now, 3), "lanes": lanes}


def draw(chart: LimitChart, run: str, state: str, now: float, canvas: Canvas) -> Text:
    """All lanes, one below the other."""
    frame = DrawingFrame.of(chart, now, max(10, canvas.width - _MARGIN))
    lines = [
        Text().append(f"{one_line(run)}  ", "bold").append(f"{state} {elapsed(chart, now)}", "dim")
    ]
    if not chart.flows:
        lines.append(Text("no call to a model is recorded"))
    for flow in chart.flows.values():
        lines += [
            Text(),
            Text().append(one_line(flow.name), "bold").append(f"  {_summary(flow)}", "dim"),
        ]
        lines += _plot(flow, frame, canvas)
        shown = list(flow.decisions)
        listed = (
            shown
            if len(shown) <= _MAX_DECISIONS
            else [*shown[: _MAX_DECISIONS // 2], None, *shown[-_MAX_DECISIONS // 2 :]]
        )
        for decision in listed:
            text = (
                "..."
                if decision is None
                else f"{clock(round(decision.at, 2)):>9}  {decision.spoken()}"
            )
            lines.append(
                Text(
                    f"{'':{_MARGIN}}{one_line(text)}",
                    "yellow" if decision and decision.cause == "429" else "",
                )
            )
    return Text("\n", no_wrap=True, end="").join(lines)


def _summary(flow: CallFlow) -> str:
    parts = [f"{flow.flying.value} in flight, {flow.peak} at most"]
    if (limit := flow.allowed(CONCURRENCY)) is not None:
        parts.append(f"{limit:,.0f} allowed")
    parts += [
        f"{rate:,.0f} {word}"
        for name, word in _RATE_UNITS.items()
        if (rate := flow.allowed(name)) is not None
    ]
    return ", ".join([*parts, f"{flow.calls} calls", f"{flow.rejections} times turned away"])


def _plot(flow: CallFlow, frame: DrawingFrame, canvas: Canvas) -> Iterator[Text]:
    flying, limits = highest(flow.flying, frame), _limits(flow, frame)
    top = max([*flying, 1])
    reached = [
        limit if limit is not None and limit <= 1.5 * top else None for limit in limits
    ]  # else it is far above
    top = max(top, *(round(limit) for limit in reached if limit is not None), 1)
    marks = _ASCII_LEVELS if canvas.ascii else _LEVELS
    line = "=" if canvas.ascii else "─"
    for row in range(_PLOT_LINES, 0, -1):
        cells = []
        for value, limit in zip(flying, reached, strict=True):
            full = value * _PLOT_LINES / top - (row - 1)
            at_limit = limit is not None and row - 1 < limit * _PLOT_LINES / top <= row
            cells.append(line if at_limit and full < 1 else marks[max(0, min(8, round(8 * full)))])
        name = f"{top}" if row == _PLOT_LINES else "0" if row == 1 else ""
        yield (
            Text(f"{name:>{_MARGIN - 2}} ")
            .append(f"{'|' if canvas.ascii else '│'}", "dim")
            .append("".join(cells))
        )
    yield Text(f"{'':{_MARGIN}}{axis(frame, canvas)}", "dim")


def _limits(flow: CallFlow, frame: DrawingFrame) -> list[float | None]:
    """How many in flight were allowed in each column."""
    columns: list[float | None] = [None] * frame.columns
    for change in [
        each for each in flow.decisions if each.dimension == CONCURRENCY and each.new is not None
    ]:
        first = min(int(frame.place(change.at)), frame.columns - 1)
        columns[first:] = [change.new] * (frame.columns - first)
    return columns


# --- as an SVG -----------------------------------------------------------------------------------

_SVG_WIDTH, _LEFT, _RIGHT, _LANE_HEIGHT, _TOP = 960, 64, 24, 150, 64  # pixels
_FLYING, _LIMIT, _REJECTED = "#2f76e8", "#e3b341", "#e5484d"


def svg(chart: LimitChart, run: str, state: str, now: float) -> str:
    """The drawing as a file that loads nothing from elsewhere."""
    frame = DrawingFrame.of(chart, now, _SVG_WIDTH - _LEFT - _RIGHT)
    body = [
        svg_text(20, 30, run, "b"),
        svg_text(20 + 8 * (len(run) + 2), 30, f"{state} {elapsed(chart, now)}"),
    ]
    y = _TOP
    for flow in chart.flows.values():
        body += _svg_lane(flow, frame, y)
        y += _LANE_HEIGHT + 70
    keys = ((_FLYING, "in flight"), (_LIMIT, "allowed"), (_REJECTED, "turned away"))
    for place, (colour, word) in enumerate(keys):
        x = _LEFT + 130 * place
        square = f'<rect x="{x}" y="{y - 12}" width="12" height="12" rx="3" fill="{colour}"/>'
        body.append(f"{square}{svg_text(x + 18, y - 2, word)}")
    return svg_file(_SVG_WIDTH, y + 18, summary_line(chart, run, state, now), "\n".join(body))


def _svg_lane(flow: CallFlow, frame: DrawingFrame, y: int) -> Iterator[str]:
    step = 4
    narrow = DrawingFrame(frame.begin, frame.end, frame.columns // step)
    flying, limits = highest(flow.flying, narrow), _limits(flow, narrow)
    top = max([*flying, 1])
    shown = [limit if limit is not None and limit <= 1.5 * top else None for limit in limits]
    top = round(1.1 * max(top, *(limit for limit in shown if limit is not None), 1))
    foot = y + 24 + _LANE_HEIGHT
    yield svg_text(20, y + 10, flow.name, "b") + svg_text(
        20 + 8 * (len(flow.name) + 2), y + 10, _summary(flow)
    )
    for part in (0, top // 2, top):
        height = foot - _LANE_HEIGHT * part / top
        yield f'<path d="M{_LEFT} {height:.1f}H{_SVG_WIDTH - _RIGHT}" stroke="#222a35"/>'
        yield svg_text(_LEFT - 8, height + 4, f"{part}", "e")
    for x, name in frame.ticks(110):
        yield svg_text(_LEFT + x, foot + 18, name, "m")
    area = "".join(f"V{foot - _LANE_HEIGHT * value / top:.1f}h{step}" for value in flying)
    yield f'<path d="M{_LEFT} {foot}{area}V{foot}z" fill="{_FLYING}" opacity=".55"/>'
    line, pen = "", False
    for column, limit in enumerate(shown):
        if limit is not None:
            height = foot - _LANE_HEIGHT * limit / top
            line += f"{'' if pen else f'M{_LEFT + step * column} {height:.1f}'}V{height:.1f}h{step}"
        pen = limit is not None
    if line:
        yield f'<path d="{line}" fill="none" stroke="{_LIMIT}" stroke-width="2"/>'
    cuts = "".join(
        f"M{_LEFT + frame.place(each.at):.1f} {foot}v-10"
        for each in flow.decisions
        if each.cause == "429"
    )
    if cuts:
        yield f'<path d="{cuts}" stroke="{_REJECTED}" stroke-width="2"/>'
