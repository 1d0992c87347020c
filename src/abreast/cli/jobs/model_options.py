"""Options of calls to models that several jobs share: lanes, schema, temperature, the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from abreast.assembly.names import open_model
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, os_error_text, refusing
from abreast.cli.jobs.request import read_number
from abreast.core.outcome import TOKEN_PARTS
from abreast.jobs.files import units
from abreast.models.batch.modes import CallMode
from abreast.models.lane_fields import HTTP_KINDS
from abreast.models.lanes import LaneSettings, price_names, refuses_files, split_name
from abreast.models.media import MediaFile, read_files
from abreast.models.port import Reply, check_effort, full_name
from abreast.models.price import Price, find_price
from abreast.run.calls.model import Caller
from abreast.store.port import Store


def read_call_mode(given: Mapping[str, Any]) -> dict[str, Any]:
    """How calls are made, by the flags `--batch...` and `--tier`, as manifests store it.

    Only those that are given. Raises `UsageError` for one that makes no sense.
    """
    facts: dict[str, Any] = {
        "mode": "batch" if given.get("batch") else None,
        "fallback": given.get("batch_fallback"),
        "wait": read_wait(given.get("batch_wait")),
        "tier": given.get("tier"),
    }
    found = {name: value for name, value in facts.items() if value is not None}
    with refusing():
        CallMode(**found)
    if not given.get("batch") and ("fallback" in found or "wait" in found):
        word = "fallback" if "fallback" in found else "wait"
        raise UsageError(f"--batch-{word} is for --batch; give both")
    if given.get("batch") and given.get("warm"):
        raise UsageError("--warm sends one call ahead, --batch all together; give one of them")
    return found


def read_wait(given: str | None) -> float | None:
    """The seconds of `--batch-wait`; 0 is possible."""
    if given is None or given.strip() in {"0", "0s"}:
        return None if given is None else 0.0
    with refusing("--batch-wait"):
        return units.duration(given)


def with_wait(calls: Mapping[str, Any], wait: float | None) -> dict[str, Any]:
    """The recorded facts of calls, with another `--batch-wait` if it is given."""
    return dict(calls) if wait is None else {**calls, "wait": wait}


def batch_share(caller: Caller) -> float | None:
    """The share of the usual price that a model's calls cost in batches; None if not in batches."""
    # Imported here, as it needs the HTTP client: most jobs make no call in batches.
    from abreast.run.calls.batch.caller import BatchCaller

    return caller.share if isinstance(caller, BatchCaller) else None


def configured_lanes(
    config: Config,
    widths: str | None = None,
    calls: Mapping[str, Any] | None = None,
    *,
    paced: bool = False,
) -> dict[str, LaneSettings]:
    """The configured lanes, with the widths of `--lane-width`, and calls as `calls` says.

    If they are `paced`, a lane that finds its limits out goes on with it, up to that width.
    """
    lanes = CallMode(**(calls or {})).lanes(config.lanes())
    for name, width in lane_widths(widths, lanes).items():
        finds_out = paced and lanes[name].adaptive
        lanes[name] = replace(lanes[name], width=width, adaptive=finds_out, capped=True)
    return lanes


def lane_widths(given: str | None, lanes: Mapping[str, LaneSettings]) -> dict[str, int]:
    """The widths of `--lane-width`: `4` for all lanes, `a=1,b=8` for some.

    Raises `UsageError` for a bad number or an unknown lane.
    """
    if given is None:
        return {}
    widths: dict[str, Any] = {}
    for part in given.split(","):
        name, equals, number = part.rpartition("=")
        width = read_number("--lane-width", number)
        if equals and name.strip() not in lanes:
            raise UsageError(
                f"--lane-width: there is no lane {name.strip()!r}; "
                f"there are {', '.join(sorted(lanes))}"
            )
        widths |= {name.strip(): width} if equals else dict.fromkeys(lanes, width)
    return widths


def open_named(
    name: str,
    lanes: Mapping[str, LaneSettings],
    store: Store | None = None,
    *,
    flag: str = "--model",
    **where: Any,
) -> Caller:
    """Open the model of that name, which `flag` gives; raises `UsageError` if there is none."""
    with refusing(flag, (ValueError, OSError)):
        return open_model(name, lanes=lanes, store=store, **where)


def find_known_price(name: str, lanes: Mapping[str, LaneSettings]) -> tuple[str, Price | None]:
    """The whole name of a model, and its price if that is known; its key is not needed."""
    with refusing("--model"):
        name = full_name(name)
        settings, model = split_name(name, lanes)
    if settings.price is not None or settings.kind not in HTTP_KINDS:
        return name, settings.price
    return name, find_price(*price_names(settings, model))


def read_images(paths: Sequence[str], folder: str = "") -> tuple[MediaFile, ...]:
    """The files of `--image`; raises `UsageError` for one that can't be sent."""
    with refusing("--image"):
        return read_files(paths, folder)


def check_sees(model: str, lanes: Mapping[str, LaneSettings]) -> None:
    """Raise `UsageError` if it is known that a model takes no images and PDF files."""
    with refusing("--model"):
        if why := refuses_files(split_name(model, lanes)[0]):
            raise ValueError(why)


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


def read_talk(path: str | None) -> list[Any] | None:
    """The messages in a file of `--messages`; raises `UsageError` if they can't be read.

    They are a list, or an object that has it as `messages`.
    """
    if path is None:
        return None
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--messages: {path} can't be read ({os_error_text(error)})") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--messages: {path} is not JSON: {error}") from None
    talk = found.get("messages") if isinstance(found, dict) else found
    if not isinstance(talk, list):
        raise UsageError(f"--messages: {path} must have a list of messages in it")
    return talk


def check_schema(schema: object, where: str) -> dict[str, Any]:
    """The schema, checked; raises `UsageError` if replies can't be checked against it."""
    from abreast.models.schema import check_schema as check

    if not isinstance(schema, dict):
        raise UsageError(f"{where} must be a JSON object with a schema in it")
    with refusing(f"{where} is no JSON schema"):
        check(schema)
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


def read_thinking(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `--reasoning` and `--thinking-tokens`."""
    with refusing():
        effort = check_effort(given["reasoning"], "--reasoning")
    tokens = read_number("--thinking-tokens", given["thinking_tokens"], least=0)
    return {"reasoning": effort, "thinking_tokens": tokens}


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
    if reply.changed:
        row["changed"] = list(reply.changed)
    return row | {
        "finish": reply.finish,
        "model": reply.model,
        "seconds": round(reply.seconds, 6),
        "first_token": reply.first_token,
        "requests": used.requests,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        **{name: tokens for name in TOKEN_PARTS if (tokens := getattr(used, name))},
        "usd": used.usd,
    }
