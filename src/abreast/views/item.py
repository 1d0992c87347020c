"""One item in full: input, outcome, attempts, calls of models, timing, what an agent did."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from abreast.core.errors import NoSuchRun, command_output
from abreast.core.events import (
    AGENT_STEP,
    ATTEMPT_FAILED,
    CALL_SETTLED,
    CALL_STARTED,
    ITEM_READ,
    LIMIT_WAITED,
    Event,
    items_read,
)
from abreast.core.item import unescape
from abreast.store.codec.codec import decode_plain
from abreast.store.codec.json_text import json_writer
from abreast.store.port import Recorded, RunRow, Store
from abreast.views.job_view import listed, mapping, number, short, whole
from abreast.views.run_reader import error_of, value_of

ItemFacts = dict[str, object]
_MAX_TEXT_CHARACTERS: Final = 100_000  # of one text on the page
_MAX_CALLS: Final = 50
_MAX_NESTED_OUTCOMES: Final = 100
_MAX_STEPS: Final = 500
_STEP_CHARACTERS: Final = 2_000
_MAX_FILES: Final = 200  # of one diff
_MAX_FILE_CHARACTERS: Final = 50_000  # of one file's diff
_FILE_START: Final = re.compile(r"^(?=diff --git )", re.MULTILINE)
_NAMES: Final = (
    re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE),
    re.compile(r"^--- a/(.+)$", re.MULTILINE),
    re.compile(r"^diff --git a/.+ b/(.+)$", re.MULTILINE),
)
_AGENT_FACTS: Final = ("name", "session", "turns", "cost", "step_count")
_INPUT: Final = "input"  # the path, beneath a run, of the input that its command read
_JSON: Final = json_writer()


def item_of(
    store: Store,
    row: RunRow,
    path: str,
    prompt_of: Callable[[RunRow, str, object], str | None],
) -> ItemFacts:
    """Everything that is recorded of the item at `path`; one that runs has no outcome yet.

    Raises `NoSuchRun` if nothing is recorded of it.
    """
    found = store.recorded(row.id, [path]).get(path) if path else None
    happened = (
        store.events(row.id, kinds={ATTEMPT_FAILED, LIMIT_WAITED}, prefix=path, limit=500)
        if path
        else []
    )
    read = _item_input(store, row, path, found)
    calls = (
        store.events(row.id, kinds={CALL_SETTLED}, prefix=path, limit=_MAX_CALLS) if path else []
    )
    started = {
        event.path: event
        for event in store.events(row.id, kinds={CALL_STARTED}, prefix=path, limit=_MAX_CALLS)
        if event.body
    }
    if (
        found is None
        and not happened
        and read is None
        and not calls
        and not path.startswith(row.name)
    ):
        raise NoSuchRun(f"nothing is recorded of an item {path!r} in {row.id}")
    given = decode_plain(read) if read is not None else None
    key = unescape(path.rpartition("/")[2])
    facts: ItemFacts = {
        "run": row.id,
        "path": path,
        "key": key,
        "state": "running",
        "input": None if read is None else _text(given),
        "prompt": _cut(prompt_of(row, key, given)),
        "calls": [_call(event, path, started.pop(event.path, None)) for event in calls]
        + [
            {**_call(event, path, event), "state": "running"}
            for event in started.values()
            if found is None
        ],
        "attempts": [
            {
                "attempt": event.data.get("attempt"),
                "backoff": event.data.get("backoff"),
                "error": _error(event),
            }
            for event in happened
            if event.kind == ATTEMPT_FAILED and event.path == path
        ],
        "waits": [
            {"limit": event.data.get("limit"), "seconds": event.data.get("seconds")}
            for event in happened
            if event.kind == LIMIT_WAITED and event.path == path
        ],
        "beneath": [
            _nested_outcome(one)
            for one in store.outcomes(row.id, prefix=f"{path}/", limit=_MAX_NESTED_OUTCOMES)
        ]
        if path
        else [],
        "steps": [
            step_facts(event)
            for event in store.events(row.id, kinds={AGENT_STEP}, prefix=path, limit=_MAX_STEPS)
            if event.path == path
        ],
    }
    return facts if found is None else {**facts, **_outcome(found)}


def _item_input(store: Store, row: RunRow, path: str, found: Recorded | None) -> str | None:
    """The item's input as JSON, if the journal has it.

    Items that can be read only once, such as lines of a pipe, are recorded as they are read.
    """
    root, _, rest = path.partition("/")
    index: object = found.data.get("index") if found is not None else None
    key = rest.rpartition("/")[2]
    if index is None and key.isdecimal():  # it still runs, and its key is its position
        index = int(key)
    return (
        _input_at(store, row, f"{root}/{_INPUT}", index)
        if rest and isinstance(index, int)
        else None
    )


def _input_at(store: Store, row: RunRow, prefix: str, index: int) -> str | None:
    """The input at a position; its event is found by binary search, since events are in order."""
    first, texts = 0, list[str]()
    low, high = 0, row.last_seq
    while low < high:
        middle = (low + high) // 2
        event = next(
            iter(store.events(row.id, kinds={ITEM_READ}, prefix=prefix, after=middle, limit=1)),
            None,
        )
        if event is None or items_read(event)[0] > index:
            high = middle
        else:
            (first, texts), low = items_read(event), event.seq
    return texts[index - first] if first <= index < first + len(texts) else None


def _outcome(found: Recorded) -> ItemFacts:
    data: dict[str, Any] = dict(found.data)
    facts: ItemFacts = {
        "state": "speculative" if data.get("speculative") else data["state"],
        "lane": found.lane,
        "index": data.get("index"),
        "attempt": data.get("attempts", 1),
        "timing": {
            "queued": data.get("queued", 0.0),
            "waited": data.get("waited", 0.0),
            "backoff": data.get("backoff", 0.0),
            "service": data.get("service", []),
        },
        "usage": {
            name: data[name]
            for name in ("requests", "input_tokens", "output_tokens", "usd")
            if name in data
        },
    }
    if data["state"] == "done":
        value = value_of(found)
        agent, tree = work_of(value)
        if agent:
            facts["agent"] = {name: agent.get(name) for name in _AGENT_FACTS}
        if tree:
            facts["tree"] = tree_facts(tree)
        if isinstance(value, dict) and {"exit_code", "stdout", "stderr"} <= value.keys():
            facts |= {name: _text(value[name]) for name in ("stdout", "stderr")} | {
                "exit_code": value["exit_code"]
            }
        elif agent and isinstance(value, dict) and isinstance(value.get("text"), str):
            facts["value"] = _text(value["text"] if "value" not in value else value["value"])
        else:
            facts["value"] = _text(value)
    elif data["state"] == "failed":
        facts["error"] = _error(found)
    else:
        facts["reason"] = data.get("reason", "")
    return facts


def _error(recorded: Recorded | Event) -> ItemFacts:
    error = error_of(recorded)
    raw, status = error.details.get("raw"), error.details.get("status")
    left = command_output(error) or error.details
    wrote = {name: _text(left[name]) for name in ("stdout", "stderr") if left.get(name)}
    return {
        "type": error.kind,
        "message": _cut(error.message),
        "traceback": _cut(error.trace),
        "status": status,
        "raw": _cut(raw) if isinstance(raw, str) else None,
        **wrote,
    }


def _call(event: Event, path: str, started: Event | None) -> ItemFacts:
    data: dict[str, Any] = dict(event.data)
    facts: ItemFacts = {
        "path": event.path.removeprefix(f"{path}/"),
        "model": data.get("model"),
        "state": data.get("state"),
        "lane": event.lane,
        "waited": data.get("waited", 0.0),
        "backoff": data.get("backoff", 0.0),
        "service": data.get("service", []),
        "first_token": data.get("first_token"),
        "usd": data.get("usd"),
        "input_tokens": data.get("input_tokens"),
        "output_tokens": data.get("output_tokens"),
    }
    if started is not None:
        turns: Any = value_of(started)
        facts["asked"] = [
            {"role": role, "text": text, "characters": size} for role, text, size in turns
        ]
    if data.get("state") == "done":
        reply = value_of(event)
        facts["reply"] = _text(reply.get("text") if isinstance(reply, dict) else reply)
    elif data.get("state") == "failed":
        facts["error"] = _error(event)
    return facts


def _nested_outcome(one: Recorded) -> ItemFacts:
    """An outcome recorded within the item: of a check, a judge, or a step of its own."""
    state = one.data.get("state")
    short = str(_text(value_of(one))["text"] if state == "done" else "")[:400]
    return {
        "path": one.path,
        "key": unescape(one.path.rpartition("/")[2]),
        "state": state,
        "value": short,
    }


def _text(value: object) -> ItemFacts:
    """A value as readable text: a string as it is, all else as JSON (bytes in base64)."""
    return _cut(value if isinstance(value, str) else _JSON(value)) or {}


def _cut(text: str | None) -> ItemFacts | None:
    return None if text is None else {"text": text[:_MAX_TEXT_CHARACTERS], "characters": len(text)}


def step_facts(event: Event) -> dict[str, object]:
    """A step of an agent, as JSON values."""
    return {
        "number": whole(event.data.get("number")),
        "text": short(event.data.get("text"), _STEP_CHARACTERS),
        "usd": number(event.data.get("usd")),
    }


def work_of(value: object) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a recorded value says of an agent, and of a tree: an item's own, or a step's output."""
    facts = mapping(value)
    found = facts if "tree" in facts or "agent" in facts else mapping(facts.get("output"))
    return mapping(found.get("agent")), mapping(found.get("tree"))


def tree_facts(tree: Mapping[str, Any]) -> dict[str, object]:
    """What was made of a tree: its commit, the changed files, and the diff of each."""
    patch = tree.get("patch")
    changed = [str(name) for name in listed(tree.get("changed"))]
    return {
        "commit": str(tree.get("commit") or ""),
        "changed": changed[:_MAX_FILES],
        "more": max(0, len(changed) - _MAX_FILES),
        "files": split_patch(patch if isinstance(patch, str) else ""),
    }


def split_patch(patch: str) -> list[dict[str, object]]:
    """The diff of each file: `file`, `diff`, and how many lines were `added` and `removed`."""
    return [_file_diff(part) for part in _FILE_START.split(patch)[1:][:_MAX_FILES]]


def _file_diff(part: str) -> dict[str, object]:
    # What comes before the first hunk has lines that begin with + and -, too.
    head, _, hunks = part.partition("\n@@")
    lines = hunks.split("\n")
    names = (found[1] for form in _NAMES if (found := form.search(head)) is not None)
    return {
        "file": next(names, "").removesuffix("\t"),
        "diff": part[:_MAX_FILE_CHARACTERS],
        "cut": len(part) > _MAX_FILE_CHARACTERS,
        "added": sum(line.startswith("+") for line in lines),
        "removed": sum(line.startswith("-") for line in lines),
    }
