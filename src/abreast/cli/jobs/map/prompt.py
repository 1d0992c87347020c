"""Asks a model about each item: prompt, lanes, and the options of a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from abreast.assembly.names import open_model
from abreast.cli import units
from abreast.cli.config import DEFAULT, WIDTH, Config
from abreast.cli.errors import UsageError, os_error_text
from abreast.cli.jobs.map.job import MapJob
from abreast.limits.budget import Budget
from abreast.models.lanes import LaneSettings, check_keys, split_name
from abreast.models.port import Json, Reply, Request
from abreast.run.calls.model import Caller
from abreast.run.current import current_item
from abreast.store.port import Store

ADAPTIVE_WIDTH: Final = 256
"""The width of a map whose adaptive lane limits the calls at once by itself."""


def configured_lanes(config: Config, widths: str | None = None) -> dict[str, LaneSettings]:
    """The configured lanes, with the widths of `--lane-width`."""
    lanes = config.lanes()
    for name, width in lane_widths(widths, lanes).items():
        lanes[name] = replace(lanes[name], width=width, adaptive=False, capped=True)
    return lanes


def lane_widths(given: str | None, lanes: Mapping[str, LaneSettings]) -> dict[str, int]:
    """The widths of `--lane-width`: `4` for all lanes, `a=1,b=8` for some.

    Raises `UsageError` for a bad number or an unknown lane.
    """
    if given is None:
        return {}
    widths: dict[str, int] = {}
    for part in given.split(","):
        name, equals, number = part.rpartition("=")
        try:
            width = units.number(number, least=1)
        except ValueError as error:
            raise UsageError(f"--lane-width: {error}") from None
        if equals and name.strip() not in lanes:
            raise UsageError(
                f"--lane-width: there is no lane {name.strip()!r}; "
                f"there are {', '.join(sorted(lanes))}"
            )
        widths |= {name.strip(): width} if equals else dict.fromkeys(lanes, width)
    return widths


def width_for(config: Config, model_options: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    """How many items run at once: as many as an adaptive lane takes, unless a width is set.

    With --until or --halt the usual width is used: items that run past the stop are wasted, and a
    lane can't know how many those are.
    """
    found = config.find(WIDTH, given["width"])
    if found.source != DEFAULT or not model_options or given["until"] is not None or given["halt"]:
        return found.value
    lane = configured_lanes(config, model_options["lane_width"]).get(
        model_options["model"].partition("/")[0]
    )
    return ADAPTIVE_WIDTH if lane is not None and lane.adaptive else found.value


def read_schema(path: str | None) -> dict[str, Any] | None:
    """The JSON schema in a file; raises `UsageError` if it can't be read or is no schema."""
    if path is None:
        return None
    try:
        schema = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--schema: {path} can't be read ({os_error_text(error)})") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--schema: {path} is not JSON: {error}") from None
    return check_schema(schema, f"--schema: {path}")


def check_schema(schema: object, where: str) -> dict[str, Any]:
    """The schema, checked; raises `UsageError` if replies can't be checked against it."""
    from abreast.models.schema import check_schema as check

    if not isinstance(schema, dict):
        raise UsageError(f"{where} must be a JSON object with a schema in it")
    try:
        check(schema)
    except ValueError as error:
        raise UsageError(f"{where} is no JSON schema: {error}") from None
    return schema


def read_temperature(given: str | None) -> float | None:
    """The value of `--temperature`: a number of at least 0."""
    if given is None:
        return None
    try:
        amount = float(given)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 100:  # noqa: PLR2004 - nan fails too
        raise UsageError(f"--temperature must be a number of at least 0, not {units.quoted(given)}")
    return amount


def read_tokens(given: str | None) -> int | None:
    """The value of `--max-tokens`: a whole number of at least 1."""
    try:
        return None if given is None else units.number(given, least=1)
    except ValueError as error:
        raise UsageError(f"--max-tokens: {error}") from None


def check_prompt(job: MapJob) -> None:
    """Raise an error if the model's name, its key, the schema or the budget is wrong."""
    settings, _ = split_name(job.model or "", job.lanes)
    check_keys([settings])
    if job.schema is not None:
        check_schema(job.schema, "--schema")
    _ = job.question
    if settings.kind != "replay":  # its replies are in the store, which isn't open yet
        budgets = (Budget.parse(job.budget),) if job.budget else ()
        # Raises if the budget limits money and the model's price is unknown.
        _open(job).reserve(Request(()), budgets)


def open_caller(job: MapJob, store: Store) -> Caller:
    """Open the job's model."""
    return _open(job, store=store, cache=job.cache)


def _open(job: MapJob, **where: Any) -> Caller:
    try:
        return open_model(job.model or "", lanes=job.lanes, **where)
    except (ValueError, OSError) as error:
        raise UsageError(f"--model: {error}") from None


class PromptWork:
    """Asks the job's question about an item; the value is the reply's text, or its JSON value."""

    def __init__(self, job: MapJob, caller: Caller) -> None:
        """Ask through `caller`."""
        self._job = job
        self._caller = caller

    async def __call__(self, value: Any) -> Json:  # noqa: ANN401 - any JSON value
        """Ask about one item."""
        item = current_item()
        if item is None:
            raise RuntimeError("a question is asked inside an item of a map")
        job = self._job
        reply = await self._caller.ask(
            job.question.fill(value, item)[0],
            system=job.system,
            schema=job.schema,
            temperature=job.temperature,
            max_tokens=job.max_tokens,
        )
        return reply.value if job.schema is not None else reply.text


def reply_as_json(reply: Reply) -> dict[str, Any]:
    """A reply as JSON values."""
    used = reply.usage
    row: dict[str, Any] = {"text": reply.text}
    if reply.value is not None:
        row["value"] = reply.value
    if reply.tool_calls:
        row["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in reply.tool_calls
        ]
    return row | {
        "finish": reply.finish,
        "model": reply.model,
        "seconds": round(reply.seconds, 6),
        "first_token": reply.first_token,
        "requests": used.requests,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "usd": used.usd,
    }


def default_model(config: Config, flag: str | None) -> str:
    """The model of the flag, or else the configured one."""
    from abreast.cli.config import MODEL

    return config.get(MODEL, flag)
