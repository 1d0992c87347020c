"""What is recorded of a call: its request and its answer, byte for byte; and its replay."""

import difflib
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from abreast.core.errors import NoSuchRun, NotRecorded
from abreast.core.frozen import record
from abreast.core.item import escape
from abreast.serve.answers.outlet import AnswerHead, Outlet
from abreast.store.codec.json_text import json_writer
from abreast.store.port import RunRow, Store, each_outcome
from abreast.views.served import call_facts

CALLS: Final = "calls"
"""The map of a run whose items are the calls."""
_DIGEST_BYTES: Final = 10
# Fields that differ between two sessions with the same questions: who asks, and for which cache.
_IDENTITY: Final = frozenset(
    {"metadata", "user", "prompt_cache_key", "safety_identifier", "client_metadata"}
)
_MAX_TEXT: Final = 20_000  # characters of one text of a request that are recorded
_MAX_DIFF_LINES: Final = 12
_MAX_LINE: Final = 160  # characters
_HEADER: Final = "header "  # before the name of a recorded header
_canonical: Final = json_writer(sort_keys=True)


class AnswerFailed(Exception):
    """A call that was answered with an error; the answer is in `details`."""

    def __init__(self, message: str, details: Mapping[str, object]) -> None:
        super().__init__(message)
        self.details = dict(details)


@record(frozen=True, slots=True)
class CallFacts:
    """Who asked what: recorded beside the answer."""

    dialect: str
    model: str
    client: str
    tag: str | None
    body: Mapping[str, Any]
    raw: bytes

    def plain(self) -> dict[str, object]:
        """The facts as texts, which are encoded several times as fast as nested values."""
        short = len(self.raw) <= _MAX_TEXT
        text = self.raw.decode() if short else json.dumps(shortened(self.body), ensure_ascii=False)
        return {
            "dialect": self.dialect,
            "model": self.model,
            "client": self.client,
            **({"tag": self.tag} if self.tag else {}),
            "request": text,
        }


def digest_of(dialect: str, body: Mapping[str, Any]) -> str:
    """A short name for a request: equal for equal bodies of any client."""
    asked = _without_identity(body)
    text = f"{dialect}\0{_canonical(asked)}".encode("utf-8", "surrogatepass")
    return f"{dialect}-{hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()}"


def _without_identity(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what differs in every session: identity, and ids of its own turns."""
    asked = {name: value for name, value in body.items() if name not in _IDENTITY}
    if isinstance(items := asked.get("input"), list):
        asked["input"] = [
            {name: value for name, value in item.items() if name != "id"}
            if isinstance(item, dict)
            else item
            for item in items
        ]
    return asked


def shortened(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A request as it is recorded: long texts, such as images, are cut."""
    if isinstance(value, str):
        more = len(value) - _MAX_TEXT
        text = value if more <= 0 else f"{value[:_MAX_TEXT]}… and {more} characters"
        return text.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(name): shortened(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    return value


# --- answers


def answer_facts(outlet: Outlet, clean: Callable[[str], str] | None = None) -> dict[str, object]:
    """An answer as it is recorded: its status, type and body, without secrets."""
    head = outlet.head or AnswerHead(500, "", {})
    body = b"".join(outlet.written)
    facts: dict[str, object] = {"status": head.status, "type": head.content_type}
    facts |= {f"{_HEADER}{name}": value for name, value in head.headers.items()}
    try:
        text = body.decode()
        return {**facts, "body": text if clean is None else clean(text)}
    except UnicodeDecodeError:
        return {**facts, "base64": b64encode(body).decode()}


def send_recorded(facts: Mapping[str, Any], outlet: Outlet) -> None:
    """Answer with what was recorded."""
    headers = {
        name.removeprefix(_HEADER): str(value)
        for name, value in facts.items()
        if name.startswith(_HEADER)
    }
    outlet.begin(int(facts["status"]), str(facts["type"]), headers)
    body = facts.get("body")
    outlet.send(b64decode(facts["base64"]) if body is None else str(body).encode())
    outlet.end()


class Recording:
    """The recorded calls of a run, for a replay without a provider."""

    def __init__(self, store: Store, run: RunRow) -> None:
        """Read the run; raises `NoSuchRun` if it has no recorded calls."""
        self._run_id = run.id
        self._answers: dict[str, dict[int, Mapping[str, Any]]] = {}
        self._given: dict[str, int] = {}
        prefix = f"{escape(run.name)}/{CALLS}/"
        for recorded in each_outcome(store, run.id, prefix=prefix):
            facts = call_facts(recorded)
            if facts is not None:
                digest, _, number = recorded.path.rpartition("/")[2].rpartition("-")
                self._answers.setdefault(digest, {})[int(number)] = facts
        if not self._answers:
            raise NoSuchRun(f"{run.id} has no recorded calls of `abreast serve` to replay")

    def __repr__(self) -> str:
        return f"<Recording of {self._run_id}, {len(self._answers)} requests>"

    def answer(self, dialect: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The recorded answer to an equal request.

        Equal requests get their answers in the order in which they were recorded, then the last
        one. `NotRecorded` shows how the nearest recorded request differs.
        """
        digest = digest_of(dialect, body)
        found = self._answers.get(digest)
        if found is None:
            raise NotRecorded(self._unknown(dialect, body))
        number = self._given.get(digest, 0)
        self._given[digest] = number + 1
        numbers = sorted(found)
        return found[numbers[min(number, len(numbers) - 1)]]

    def _unknown(self, dialect: str, body: Mapping[str, Any]) -> str:
        message = f"{self._run_id} recorded no such request, and a replay answers only those"
        asked = _lines(body)
        recorded = [
            _lines(_parsed(facts.get("request")))
            for answers in self._answers.values()
            for facts in list(answers.values())[:1]
            if facts.get("dialect") == dialect
        ]
        if not recorded:
            return f"{message}; it has none of this API at all"
        wanted = set(asked)
        nearest = max(
            recorded, key=lambda lines: len(wanted & set(lines)) / len(wanted | set(lines))
        )
        diff = [
            line[:_MAX_LINE]
            for line in difflib.unified_diff(nearest, asked, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]
        more = len(diff) - _MAX_DIFF_LINES
        shown = diff[:_MAX_DIFF_LINES] + ([f"and {more} lines more"] if more > 0 else [])
        return f"{message}. The nearest one (-) and this one (+):\n" + "\n".join(shown)


def facts_of_error(error: BaseException) -> Mapping[str, Any] | None:
    """The facts of a call that failed, as it was recorded; None if it has none."""
    details = getattr(error, "details", None)
    return details if isinstance(details, Mapping) and "type" in details else None


def _parsed(request: object) -> object:
    try:
        return json.loads(str(request))
    except ValueError:
        return request


def _lines(body: object) -> list[str]:
    asked = shortened(body)
    if isinstance(asked, dict):
        asked = _without_identity(asked)
    return json.dumps(asked, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
