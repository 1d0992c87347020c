"""How three APIs write batches: OpenAI's with files, Anthropic's and Gemini's without."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from abreast.testing.storm.batches.state import BatchEntry, StormBatch
from abreast.testing.storm.dialects.dialect import BadRequest

Json = dict[str, Any]
Entries = list[tuple[str, Json]]

_ANTHROPIC_OUTCOMES = {"cancelled": "canceled"}
_GEMINI_STATES = {
    "in_progress": "RUNNING",
    "cancelling": "RUNNING",
    "completed": "SUCCEEDED",
    "cancelled": "CANCELLED",
    "expired": "EXPIRED",
    "failed": "FAILED",
}
_GEMINI_ENDS = {"cancelled": (1, "CANCELLED"), "expired": (4, "DEADLINE_EXCEEDED")}


# --- OpenAI


def openai_entries(content: bytes, endpoint: str) -> Entries:
    """The requests of an input file; BadRequest for a line that is none."""
    try:
        lines = [json.loads(line) for line in content.splitlines() if line.strip()]
        for line in lines:
            if line["method"] != "POST" or line["url"] != endpoint:
                raise BadRequest(f"each request is a POST to {endpoint}")
        return [(str(line["custom_id"]), dict(line["body"])) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f"the file has a line that is no request: {error!r}") from None


def openai_batch(batch: StormBatch) -> Json:
    """A batch as `/v1/batches` shows it."""
    number, state = batch.number, batch.state
    counts = {
        "total": len(batch.entries),
        "completed": batch.count("succeeded"),
        "failed": batch.count("errored"),
    }
    failed = batch.count("errored") + batch.count("expired")
    errors = None
    if state == "failed":
        code = "token_limit_exceeded" if batch.fault == "too-many-tokens" else "invalid_json_line"
        message = (
            "Enqueued token limit reached for this model."
            if batch.fault == "too-many-tokens"
            else "This line is not parseable as valid JSON."
        )
        errors = {"object": "list", "data": [{"code": code, "message": message, "line": None}]}
    return {
        "id": f"batch_storm{number}",
        "object": "batch",
        "endpoint": batch.endpoint,
        "status": state,
        "completion_window": "24h",
        "created_at": int(batch.wall),
        "output_file_id": f"file-storm-out{number}" if counts["completed"] else None,
        "error_file_id": f"file-storm-err{number}" if failed else None,
        "errors": errors,
        "request_counts": counts,
        "metadata": {"abreast_batch": batch.label} if batch.label else {},
    }


def openai_line(entry: BatchEntry, number: int) -> Json:
    """A line of an output file, or of an error file."""
    response, error = None, None
    if entry.result is not None:
        response = {
            "status_code": entry.result.status,
            "request_id": f"storm-batch{number}",
            "body": entry.result.body
            if entry.billed or "error" in entry.result.body
            else {"error": entry.result.body},
        }
    else:
        error = {
            "code": f"batch_{entry.outcome}",
            "message": "This request could not be executed before the batch ended.",
        }
    name = f"batch_req_{entry.custom_id}"
    return {"id": name, "custom_id": entry.custom_id, "response": response, "error": error}


# --- Anthropic


def anthropic_entries(body: Json) -> Entries:
    """The requests of a batch; BadRequest if the body has none."""
    try:
        return [(str(one["custom_id"]), dict(one["params"])) for one in body["requests"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"requests: each has a custom_id and params: {error!r}") from None


def anthropic_batch(batch: StormBatch, base: str) -> Json:
    """A batch as `/v1/messages/batches` shows it; it has no name that the client gave."""
    name = f"msgbatch_storm{batch.number}"
    state = "ended" if batch.ended else "in_progress" if batch.cancelled is None else "canceling"
    counts = {
        "processing": batch.count(""),
        "succeeded": batch.count("succeeded"),
        "errored": batch.count("errored"),
        "canceled": batch.count("cancelled"),
        "expired": batch.count("expired") + batch.count("missing"),
    }
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": state,
        "request_counts": counts,
        "created_at": _time(batch.wall),
        "results_url": f"{base}/{name}/results" if batch.ended else None,
    }


def anthropic_line(entry: BatchEntry) -> Json:
    """A line of the results."""
    result: Json = {"type": _ANTHROPIC_OUTCOMES.get(entry.outcome, entry.outcome)}
    if entry.billed and entry.result is not None:
        result["message"] = entry.result.body
    elif entry.result is not None:
        body = entry.result.body
        inner = body if "error" in body else {"error": {"type": "api_error", **body}}
        result["error"] = {"type": "error", **inner}
    return {"custom_id": entry.custom_id, "result": result}


# --- Gemini


def gemini_entries(body: Json) -> tuple[str, Entries]:
    """The name of a batch and its requests; BadRequest if the body has none."""
    try:
        batch = body["batch"]
        listed = batch["input_config"]["requests"]["requests"]
        return str(batch["display_name"]), [
            (str(one["metadata"]["key"]), dict(one["request"])) for one in listed
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"batch: each request has a metadata.key: {error!r}") from None


def gemini_batch(batch: StormBatch, entries: list[BatchEntry] | None = None) -> Json:
    """A batch as an operation; `entries` are the results of one that has ended."""
    operation: Json = {
        "name": f"batches/storm{batch.number}",
        "metadata": {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "model": f"models/{batch.model}",
            "displayName": batch.label,
            "state": f"BATCH_STATE_{_GEMINI_STATES[batch.state]}",
            "createTime": _time(batch.wall),
            "batchStats": {"requestCount": str(len(batch.entries))},
        },
    }
    if batch.ended:
        operation["done"] = True
    if batch.state == "failed":
        operation["error"] = {"code": 3, "message": "The batch failed.", "status": "FAILED"}
    elif entries is not None:
        inlined = {"inlinedResponses": [_gemini_line(entry) for entry in entries]}
        operation["response"] = {"inlinedResponses": inlined}
    return operation


def _gemini_line(entry: BatchEntry) -> Json:
    line: Json = {"metadata": {"key": entry.custom_id}}
    if entry.billed and entry.result is not None:
        return {**line, "response": entry.result.body}
    if entry.result is not None:
        inner = entry.result.body.get("error", entry.result.body)
        error: Mapping[str, Any] = {"code": 13, "message": inner.get("message", "")}
        if entry.result.status < 500:  # noqa: PLR2004 - the request is wrong
            error = {"code": 3, "message": inner.get("message", ""), "status": "INVALID_ARGUMENT"}
        return {**line, "error": error}
    code, status = _GEMINI_ENDS[entry.outcome]
    return {
        **line,
        "error": {"code": code, "message": f"It was {entry.outcome}.", "status": status},
    }


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat().replace("+00:00", "Z")
