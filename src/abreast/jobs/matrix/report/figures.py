"""The plots of a report, as the dictionaries that plotly.js draws, and plotly.js itself."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, Final, TypeAlias

from abreast.jobs.matrix.report.findings import Findings, Scored
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.arms import Arm, finished, grouped
from abreast.jobs.matrix.scoring.inference import MeanEstimate, NeedsReport
from abreast.jobs.matrix.scoring.statistics import Offer
from abreast.system.installation import install_hint

Figure: TypeAlias = dict[str, Any]

# After Okabe and Ito: distinct for colour-blind readers, and visible on white and on near-black.
COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#8a6fd1",
    "#cc79a7",
    "#56b4e9",
    "#b58900",
    "#7f7f7f",
)
MOST_PAIRS: Final = 24  # that a plot shows; the table has more
_FEW_FAILURES: Final = 10  # up to which the axis counts one by one
_CURVE_POINTS: Final = 200
_LOG_RATIO: Final = 20  # of largest to smallest value, from which a scale is logarithmic
_ROW_PIXELS: Final = 34
_MARGIN: Final = {"l": 10, "r": 16, "t": 10, "b": 44}


def plotly_js() -> str:
    """The text of plotly.js, from its package."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise NeedsReport(f"a report needs plotly: {install_hint('report')} ({error})") from error
    return str(get_plotlyjs())


def figures(found: Findings, rows: Sequence[Row]) -> dict[str, Figure]:
    """Each plot, by the id of its element in the page.

    A plot without anything to show is left out.
    """
    drawn: dict[str, Figure | None] = {
        "latency-plot": _latency(rows),
        "failures-plot": _failures(found),
    }
    for place, scored in enumerate(found.scores):
        drawn[f"scores-{place}"] = _means(scored)
        drawn[f"heatmap-{place}"] = _heatmap(scored)
        drawn[f"differences-{place}"] = _differences(scored)
        drawn[f"pareto-{place}"] = _pareto(scored)
    return {name: figure for name, figure in drawn.items() if figure}


def label(text: object) -> str:
    """Escape text for plotly.js, which interprets tags in labels."""
    return escape(str(text), quote=False)


def _layout(height: int, **more: Any) -> Figure:
    axis = {"automargin": True, "zeroline": False}
    layout = {
        "height": height,
        "margin": _MARGIN,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        "hoverlabel": {"align": "left"},
        **more,
    }
    return {**layout, **{name: {**axis, **layout.get(name, {})} for name in ("xaxis", "yaxis")}}


def _titled(text: str, **more: Any) -> Figure:
    return {"title": {"text": text, "standoff": 8}, **more}


def _scale(values: Sequence[float]) -> Figure:
    """A logarithmic scale with marks at 1, 2 and 5 if values lie far apart, otherwise linear."""
    least, most = min(values), max(values)
    if not most > _LOG_RATIO * least > 0:
        return {"type": "linear"}
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)))
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": [float(f"{one}e{power}") for power in powers for one in (1, 2, 5)],
    }


def _error_bars(found: Sequence[MeanEstimate]) -> Figure:
    """The distance of the interval's bounds from the mean, on both sides."""
    up = [0 if one.high is None or one.mean is None else one.high - one.mean for one in found]
    down = [0 if one.low is None or one.mean is None else one.mean - one.low for one in found]
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "thickness": 1.5,
        "width": 4,
    }


def _means(scored: Scored) -> Figure:
    """Both readings of each arm, the best on top."""
    shown = scored.summaries[::-1]
    both = [one for held in shown for one in (held.intended, held.valid)]
    reached = [end for one in both for end in (one.mean, one.low, one.high) if end is not None]
    data = []
    for name, symbol, colour, beside in (
        ("intention-to-treat", "circle", COLOURS[0], 0.13),
        ("valid-only", "circle-open", COLOURS[1], -0.13),
    ):
        read = [one.valid if name == "valid-only" else one.intended for one in shown]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "y": [place + beside for place in range(len(shown))],
                "x": [one.mean for one in read],
                "text": [label(one.arm) for one in shown],
                "error_x": _error_bars(read),
                "marker": {
                    "size": 9,
                    "symbol": symbol,
                    "color": colour,
                    "line": {"width": 2, "color": colour},
                },
                "hovertemplate": "%{text}<br>%{x:.3f}<extra>" + name + "</extra>",
            }
        )
    return {
        "data": data,
        "layout": _layout(
            90 + _ROW_PIXELS * len(shown),
            margin={**_MARGIN, "t": 34},
            xaxis=_titled(f"mean {label(scored.name)}, with 95% interval", **_score_axis(reached)),
            yaxis=_name_axis([label(one.arm) for one in shown]),
        ),
    }


def _name_axis(names: Sequence[str]) -> Figure:
    """An axis with one line for each name.

    Its values are numbers, not categories, so that two marks of a line can be side by side.
    """
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [-0.6, len(names) - 0.4],
    }


def _heatmap(scored: Scored) -> Figure:
    """Means of models (down) by strategies (across)."""
    models = sorted({one.arm.model for one in scored.summaries}, reverse=True)
    strategies = sorted({one.arm.strategy for one in scored.summaries})
    means = {one.arm: one.intended.mean for one in scored.summaries}
    table = [[means.get((model, strategy)) for strategy in strategies] for model in models]  # type: ignore[call-overload]
    return {
        "data": [
            {
                "type": "heatmap",
                "z": table,
                "x": [label(one) for one in strategies],
                "y": [label(one) for one in models],
                "text": [["" if one is None else f"{one:.2f}" for one in line] for line in table],
                "texttemplate": "%{text}",
                "textfont": {"color": "#111"},
                "colorscale": [[0, "#eef4fa"], [1, "#56a0d8"]],  # dark text is legible on all of it
                **(
                    {"zmin": 0, "zmax": 1}
                    if all(0 <= one <= 1 for one in means.values() if one is not None)
                    else {}
                ),
                "xgap": 2,
                "ygap": 2,
                "colorbar": {"thickness": 12, "outlinewidth": 0},
                "hovertemplate": "%{y}<br>%{x}<br>%{z:.3f}<extra></extra>",
            }
        ],
        "layout": _layout(
            110 + 44 * len(models),
            xaxis={"type": "category", "showgrid": False},
            yaxis={"type": "category", "showgrid": False},
        ),
    }


def _differences(scored: Scored) -> Figure | None:
    """The largest differences, clear ones filled."""
    shown = [one for one in scored.comparisons if one.intended.mean is not None][:MOST_PAIRS][::-1]
    if not shown:
        return None
    found = [one.intended for one in shown]
    names = [f"{label(one.second)}<br>less {label(one.first)}" for one in shown]
    read = [MeanEstimate(one.pairs, one.pairs, one.mean, one.low, one.high) for one in found]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "y": list(range(len(shown))),
                "text": names,
                "x": [one.mean for one in found],
                "error_x": _error_bars(read),
                "marker": {
                    "size": 9,
                    "color": COLOURS[0],
                    "symbol": ["circle" if one.clear else "circle-open" for one in found],
                    "line": {"width": 2, "color": COLOURS[0]},
                },
                "hovertemplate": "%{text}<br>%{x:+.3f}<extra></extra>",
            }
        ],
        "layout": _layout(
            80 + 44 * len(shown),
            xaxis=_titled(
                f"difference in {label(scored.name)}, with 95% interval",
                zeroline=True,
                zerolinewidth=2,
                rangemode="tozero",
            ),
            yaxis=_name_axis(names),
        ),
    }


def _pareto(scored: Scored) -> Figure | None:
    """What each arm costs and scores; the front is a line."""
    if not scored.offers:
        return None
    front, unit = [offer for offer in scored.offers if offer.front], scored.offers[0].unit
    names = _point_labels(scored.offers)
    price = "$%{x:.4g}" if unit == "USD" else "%{x:,.0f} tokens"
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "best for the price",
        "hoverinfo": "skip",
        "x": [offer.price for offer in front],
        "y": [offer.mean for offer in front],
        "line": {"shape": "hv", "dash": "dot", "width": 2, "color": COLOURS[2]},
    }
    models = grouped((offer.arm.model, offer) for offer in scored.offers)
    points = [
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": label(model),
            "cliponaxis": False,
            "x": [offer.price for offer in offers],
            "y": [offer.mean for offer in offers],
            "text": [label(names.get(offer.arm, "")) for offer in offers],
            "customdata": [label(offer.arm) for offer in offers],
            "textposition": "middle right",
            "marker": {
                "size": 11,
                "color": COLOURS[place % len(COLOURS)],
                "symbol": ["circle" if offer.front else "circle-open" for offer in offers],
                "line": {"width": 2, "color": COLOURS[place % len(COLOURS)]},
            },
            "hovertemplate": f"%{{customdata}}<br>%{{y:.3f}}<br>{price}<extra></extra>",
        }
        for place, (model, offers) in enumerate(models)
    ]
    return {
        "data": [*([line] if len(front) > 1 else []), *points],
        "layout": _layout(
            420,
            margin={**_MARGIN, "t": 40},
            xaxis=_titled(
                f"{unit} per cell",
                rangemode="tozero",
                **_scale([offer.price for offer in scored.offers]),
            ),
            yaxis=_titled(
                f"mean {label(scored.name)}", **_score_axis([offer.mean for offer in scored.offers])
            ),
        ),
    }


def _point_labels(offers: Sequence[Offer]) -> dict[Arm, str]:
    """The labels of the points; points in the same place share the label of the first."""
    places: dict[tuple[float, float], list[Arm]] = {}
    for offer in offers:
        places.setdefault((float(f"{offer.price:.2g}"), round(offer.mean, 2)), []).append(offer.arm)
    return {
        arms[0]: ", ".join(dict.fromkeys(arm.strategy for arm in arms)) for arms in places.values()
    }


def _score_axis(values: Sequence[float]) -> Figure:
    """From 0 to 1 where all are within, so that plots of several scores can be compared."""
    return {"range": [-0.04, 1.04]} if all(0 <= one <= 1 for one in values) else {}


def _latency(rows: Sequence[Row]) -> Figure | None:
    """The share of each model's cells that were served within a time."""
    models = grouped((row.model, row.service_s) for row in finished(rows))
    if not models:
        return None
    data = []
    for place, (model, times) in enumerate(models):
        ordered = sorted(times)
        kept = sorted(
            {round(step * (len(ordered) - 1) / _CURVE_POINTS) for step in range(_CURVE_POINTS + 1)}
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label(model),
                "line": {"shape": "hv", "width": 2.5, "color": COLOURS[place % len(COLOURS)]},
                "x": [round(ordered[at], 6) for at in kept],
                "y": [(at + 1) / len(ordered) for at in kept],
                "hovertemplate": "%{y:.0%} within %{x:.3g} s<extra>" + label(model) + "</extra>",
            }
        )
    return {
        "data": data,
        "layout": _layout(
            380,
            margin={**_MARGIN, "t": 40},
            xaxis=_titled(
                "service time in seconds", **_scale([time for _, times in models for time in times])
            ),
            yaxis=_titled("share of cells", tickformat=".0%", range=[0, 1.02]),
        ),
    }


def _failures(found: Findings) -> Figure | None:
    """How many cells of each arm failed, and how."""
    if not found.failures:
        return None
    kinds = sorted({failure.error_type for failure in found.failures})
    held = sorted({failure.arm for failure in found.failures}, reverse=True)
    counts = {(failure.arm, failure.error_type): failure.count for failure in found.failures}
    highest = max(sum(counts.get((arm, kind), 0) for kind in kinds) for arm in held)
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": label(kind),
                "y": [label(arm) for arm in held],
                "x": [counts.get((arm, kind), 0) for arm in held],
                "marker": {"color": COLOURS[place % len(COLOURS)]},
                "hovertemplate": "%{y}<br>%{x}<extra>" + label(kind) + "</extra>",
            }
            for place, kind in enumerate(kinds)
        ],
        "layout": _layout(
            100 + _ROW_PIXELS * len(held),
            barmode="stack",
            bargap=0.35,
            showlegend=True,
            margin={**_MARGIN, "t": 34},
            legend={
                "orientation": "h",
                "x": 0,
                "y": 1.0,
                "yanchor": "bottom",
                "traceorder": "normal",
            },
            xaxis=_titled(
                "failed cells",
                rangemode="tozero",
                **({"dtick": 1} if highest <= _FEW_FAILURES else {}),
            ),
            yaxis={"type": "category"},
        ),
    }
