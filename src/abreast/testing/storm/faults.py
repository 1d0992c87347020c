"""The faults of a storm: their names, what each does, and how a request asks for one."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StormFault:
    """One fault. `early` ones are refused before any limit is checked, and charged to none."""

    name: str
    doc: str
    status: int = 200
    early: bool = False


FAULTS = {
    fault.name: fault
    for fault in (
        StormFault("500", "an internal error", 500),
        StormFault("502", "a bad gateway, as HTML", 502),
        StormFault("503", "unavailable", 503),
        StormFault("529", "overloaded", 529),
        StormFault("reset", "the connection is reset before any byte"),
        StormFault("reset-body", "the connection is lost in the middle of the body"),
        StormFault("stall", "never answers"),
        StormFault("stall-body", "begins to answer and never goes on"),
        StormFault("truncated", "ends early: a stream without its end, half of a JSON document"),
        StormFault("malformed", "200 with a body that is no JSON"),
        StormFault("empty", "a reply with no choices"),
        StormFault("huge", "a reply of 10 MB"),
        StormFault("html", "200 with a page of HTML"),
        StormFault("refusal", "the model refuses, or a content filter does"),
        StormFault("401", "the key is wrong", 401, early=True),
        StormFault("403", "the key may not do this", 403, early=True),
        StormFault("404", "no such model", 404, early=True),
        StormFault("context", "more tokens than the context holds", 400, early=True),
        StormFault("429", "too many requests, with Retry-After in seconds", 429, early=True),
        StormFault("429-bare", "too many requests, without Retry-After", 429, early=True),
        StormFault(
            "429-date", "too many requests, with Retry-After as an HTTP date", 429, early=True
        ),
        StormFault("429-concurrency", "too many requests in flight", 429, early=True),
        StormFault("quota", "the day's quota is used up", 429, early=True),
    )
}

BATCH_FAULTS = {
    "lost": "the batch is accepted, and the connection is reset before the answer",
    "lost-late": "the same, and it is listed only after half of its time",
    "unsent": "the connection is reset, and the batch is not accepted",
    "500": "an internal error, and the batch is not accepted",
    "500-created": "an internal error, and the batch is accepted all the same",
    "429": "too many requests, and the batch is not accepted",
    "expired": "half of it is answered, the rest expires",
    "cancelled": "half of it is answered, the rest is cancelled, as by someone else",
    "failed": "none of it is answered: the file is said to be no JSON",
    "partial": "every fifth request fails",
    "missing": "every fifth request has no result",
    "duplicates": "every third result comes twice",
    "cut": "the first download of the results is reset",
    "slow": "it takes ten times as long",
}
"""What can happen to a submitted batch. Results never come in the order of the requests."""

# Not in the middle of a word: "default-500" asks for nothing.
_MARKER = re.compile(r"(?<![\w-])fault-([a-z0-9]+?(?:-[a-z]+?)?)(?:x(\d+))?(?![\w-])")


def find_marker(text: str, turn: int) -> StormFault | None:
    """The fault that a text asks for, or None.

    `fault-500x2` applies to the first two of identical requests.

    >>> text = "please fault-500x2"
    >>> find_marker(text, turn=1).name, find_marker(text, turn=3)
    ('500', None)
    """
    if "fault-" not in text:
        return None
    found = _MARKER.search(text)
    if found is None or (found[2] is not None and turn > int(found[2])):
        return None
    return FAULTS.get(found[1])
