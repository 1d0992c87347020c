"""`abreast matrix run --dry-run`: prints what a study would cost, and how long it would take."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from abreast.assembly.names import open_model
from abreast.cli.jobs.model_options import batch_share
from abreast.cli.terminal.tables import say, say_json, say_table
from abreast.jobs.matrix.forecast import ArmSeen, ForecastInterval, forecast
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.spec import (
    CONTROL_LANE,
    CellChoice,
    ModelArm,
    Study,
    StudyInput,
    StudyStrategy,
)
from abreast.models.estimate import NO_BOUND
from abreast.models.lanes import LaneSettings
from abreast.models.port import SHORT_REPLY_TOKENS, Message, Request
from abreast.store.port import Store

_DEFAULT_CALL_SECONDS: Final = 2.0  # if nothing is known about the model


@dataclass(frozen=True, slots=True)
class DryRun:
    """A study, the cells that are wanted, and the lanes and widths that they have here."""

    study: Study
    wanted: CellChoice
    lanes: Mapping[str, LaneSettings]
    widths: Mapping[str, int]


def print_dry_run(given: DryRun, store: Store | None, *, as_json: bool) -> int:
    """Print cells, tokens, cost and time with intervals, and the lane that ends last."""
    study = given.study
    seen = _history(store, study.name)
    left = Counter(
        (cell.model.label, cell.strategy.name)
        for lane in study.lanes()
        if lane != CONTROL_LANE
        for cell in study.cells(lane, given.wanted)
    )
    arms = [
        _arm_estimate(
            given,
            model,
            strategy,
            left[model.label, strategy.name],
            seen.get((model.label, strategy.name), []),
        )
        for model in study.models
        for strategy in study.strategies
        if left[model.label, strategy.name]
    ]
    found = forecast(arms, given.widths)
    if as_json:
        arms_left = [
            {"model": model, "strategy": strategy, "cells": count}
            for (model, strategy), count in left.items()
        ]
        say_json(
            {
                "arms": arms_left,
                "cells": found.cells,
                "tokens": found.tokens._asdict(),
                "usd": found.usd._asdict(),
                "seconds": found.seconds._asdict(),
                "bottleneck": found.bottleneck,
                "note": f"tokens and cost are {NO_BOUND}",
            }
        )
        return 0
    say_table(("model", "strategy", "cells"), [(*arm, count) for arm, count in left.items()])
    controls = sum(1 for _ in study.cells(CONTROL_LANE, given.wanted)) if study.controls else 0
    say(f"{found.cells} cells, and {controls} of controls, which ask no model")
    say(f"tokens: {_interval_text(found.tokens, '{:,.0f}')}")
    say(f"cost: {_interval_text(found.usd, '{:.4g}')} usd; {NO_BOUND}")
    shares = {batch_share(open_model(model.name, lanes=given.lanes)) for model in study.models}
    if len(shares) == 1 and (share := shares.pop()) is not None:
        part = ForecastInterval(*(share * usd for usd in found.usd))
        say(f"in batches: {_interval_text(part, '{:.4g}')} usd")
    seconds = _interval_text(found.seconds, "{:,.0f}")
    say(f"time: {seconds} s; the lane that ends last is {found.bottleneck}")
    return 0


def _history(store: Store | None, name: str) -> dict[tuple[str, str], list[Row]]:
    """Rows of earlier runs of the study, by arm."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in store.runs(name=name, limit=5) if store is not None else ():
        if row.kind == "matrix" and store is not None:
            for one in rows_of(store, row):
                found.setdefault((one.model, one.strategy), []).append(one)
    return found


def _arm_estimate(
    given: DryRun, model: ModelArm, strategy: StudyStrategy, left: int, rows: list[Row]
) -> ArmSeen:
    tokens, usd, seconds = _estimate(given, model, strategy, given.study.inputs[0])
    judge_tokens, judge_usd = _judge_cost(given)
    return ArmSeen(
        model.lane,
        left,
        [float(row.input_tokens + row.output_tokens) + judge_tokens for row in rows],
        [(row.usd or 0.0) + judge_usd for row in rows],
        [row.service_s for row in rows],
        (tokens + judge_tokens, usd + judge_usd, seconds),
    )


def _judge_cost(given: DryRun) -> tuple[float, float]:
    """Tokens and cost of all verdicts on one cell, which rows don't count.

    Each judge is given room to think before it answers.
    """
    study, tokens, usd = given.study, 0.0, 0.0
    for spec in study.scores:
        if spec.kind == "judge":
            caller = open_model(spec.model or study.models[0].name, lanes=given.lanes)
            prompt = f"{spec.argument}{study.inputs[0].value}"
            need, _ = caller.reserve(
                Request((Message("user", prompt),), max_tokens=SHORT_REPLY_TOKENS), ()
            )
            tokens, usd = tokens + need.tokens, usd + need.usd
    return tokens, usd


def _estimate(
    given: DryRun, model: ModelArm, strategy: StudyStrategy, one: StudyInput
) -> tuple[float, float, float]:
    """Tokens, cost and seconds of a cell, estimated by the length of its prompt."""
    text = str(one.value)
    if strategy.prompt is not None:
        text = str(strategy.prompt.value({"input": dict(one.value)}))
    most = strategy.max_tokens or model.max_tokens
    thinking = strategy.thinking_tokens or model.thinking_tokens
    files = tuple(one.files_for(strategy).values())
    draws = 1
    if strategy.kind == "sample":
        draws = int(strategy.facts.get("breadth", 1)) * int(strategy.facts.get("depth", 1))
    need, _ = open_model(model.name, lanes=given.lanes).reserve(
        Request((Message("user", text, files=files),), max_tokens=most, thinking_tokens=thinking),
        (),
    )
    return float(need.tokens * draws), need.usd * draws, _DEFAULT_CALL_SECONDS * draws


def _interval_text(interval: ForecastInterval, form: str) -> str:
    low, likely, high = (form.format(amount) for amount in interval)
    return f"about {likely} ({low} to {high})"
