"""The paths of batches, in front of a storm's state: submit, list, ask, download, cancel."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from abreast.core.clock import SYSTEM_CLOCK
from abreast.testing.storm.batches import forms
from abreast.testing.storm.batches.state import (
    BatchEntry,
    EntryResult,
    Json,
    StormBatch,
    StormBatches,
)
from abreast.testing.storm.dialects.dialect import BadRequest, Dialect, Refusal, count_tokens
from abreast.testing.storm.dialects.replies import (
    JSON,
    Script,
    error_answer,
    fixed_text,
    make_draft,
    to_json,
)
from abreast.testing.storm.world import World, WorldRequest

LINES: Final = "application/x-ndjson"
_ANTHROPIC: Final = "/v1/messages/batches"
_PAGE: Final = 20  # batches of a list, unless a client asks for fewer or more
_NUMBER = re.compile(r"(?:batch_|msgbatch_|batches/)?storm(\d+)")
_GEMINI_SUBMIT = re.compile(r"/v1beta/models/(?P<model>[^:]+):batchGenerateContent")
_GEMINI_ONE = re.compile(r"/v1beta/batches/(?P<name>[^:/]+)(?P<cancel>:cancel)?")
_OPENAI_ONE = re.compile(r"/v1/batches/(?P<name>[^/]+)(?P<cancel>/cancel)?")
_OPENAI_FILE = re.compile(r"/v1/files/file-storm-(?P<kind>out|err)(?P<number>\d+)/content")
_ANTHROPIC_ONE = re.compile(r"/v1/messages/batches/(?P<name>[^/]+)(?P<what>/cancel|/results)?")


class ConnectionReset(Exception):
    """The connection is to be reset instead of an answer."""


class BatchRoutes:
    """Answers the requests about batches; `dialects` are those of the current profile."""

    def __init__(
        self,
        world: World,
        script: Script | None,
        dialects: Callable[[], Mapping[str, Dialect]],
    ) -> None:
        self._world = world
        self._script = script
        self._dialects = dialects
        self.batches = StormBatches(self._answer_entry, world.seed)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """The answer to a request about batches; None for one about something else.

        Raises BadRequest, and ConnectionReset if there is to be no answer.
        """
        if request.path == "/storm/batches":
            lines = "".join(json.dumps(row) + "\n" for row in self._log())
            return web.Response(text=lines, content_type=LINES)
        for answers in (self._openai, self._anthropic, self._gemini):
            if (answer := await answers(request)) is not None:
                settings = self._world.settings
                if settings.latency:
                    await asyncio.sleep(settings.latency * settings.scale)
                return answer
        return None

    async def _openai(self, request: web.BaseRequest) -> web.Response | None:
        path, posts = request.path, request.method == "POST"
        if path == "/v1/files" and posts:
            return await self._upload(request)
        if path == "/v1/batches":
            return await self._submit_openai(request) if posts else self._list_openai(request)
        if (found := _OPENAI_ONE.fullmatch(path)) is not None:
            batch = self._find("openai", found["name"], cancel=posts and bool(found["cancel"]))
            return _json(forms.openai_batch(batch))
        if (found := _OPENAI_FILE.fullmatch(path)) is not None:
            return self._download_openai(found["kind"], int(found["number"]))
        return None

    async def _anthropic(self, request: web.BaseRequest) -> web.Response | None:
        path, posts = request.path, request.method == "POST"
        if path == _ANTHROPIC:
            return await self._submit_anthropic(request) if posts else self._list_anthropic(request)
        if (found := _ANTHROPIC_ONE.fullmatch(path)) is None:
            return None
        cancel = posts and found["what"] == "/cancel"
        batch = self._find("anthropic", found["name"], cancel=cancel)
        if found["what"] != "/results":
            return _json(forms.anthropic_batch(batch, _ANTHROPIC))
        if not batch.ended:
            raise BadRequest("the results are not available yet")
        return self._cut(batch, [forms.anthropic_line(one) for one in self.batches.results(batch)])

    async def _gemini(self, request: web.BaseRequest) -> web.Response | None:
        path, posts = request.path, request.method == "POST"
        if (found := _GEMINI_SUBMIT.fullmatch(path)) is not None and posts:
            return await self._submit_gemini(request, found["model"])
        if path == "/v1beta/batches":
            return self._list_gemini(request)
        if (found := _GEMINI_ONE.fullmatch(path)) is None:
            return None
        batch = self._find("gemini", found["name"], cancel=bool(found["cancel"]))
        ended = batch.ended and not found["cancel"]
        results = self.batches.results(batch) if ended else None
        return self._cut(batch, forms.gemini_batch(batch, results))

    def _log(self) -> list[Mapping[str, Any]]:
        self.batches.advance(SYSTEM_CLOCK.now())
        return self.batches.log()

    # --- submissions

    def _submit(
        self, lane: str, model: str, label: str, entries: forms.Entries, endpoint: str = ""
    ) -> StormBatch:
        """Accept a batch, unless its fault is not to; some faults lose the answer."""
        now, settings = SYSTEM_CLOCK.now(), self._world.settings
        if not entries:
            raise BadRequest("a batch has at least one request")
        fault = self.batches.fault(settings)
        if fault == "unsent":
            raise ConnectionReset
        if fault in ("500", "429"):
            raise Refusal(fault, _error(lane, fault), int(fault))
        tokens = sum(count_tokens(json.dumps(body)) for _, body in entries)
        try:
            batch = self.batches.create(
                now,
                settings,
                lane=lane,
                model=model,
                label=label,
                entries=entries,
                tokens=tokens,
                fault=fault,
                wall=SYSTEM_CLOCK.wall(),
                endpoint=endpoint,
            )
        except ValueError as error:
            raise BadRequest(str(error)) from None
        if fault in ("lost", "lost-late"):
            raise ConnectionReset
        if fault == "500-created":
            raise Refusal(fault, _error(lane, "500"), 500)
        return batch

    async def _upload(self, request: web.BaseRequest) -> web.Response:
        given = await request.post()
        file = given.get("file")
        if given.get("purpose") != "batch" or not isinstance(file, web.FileField):
            raise BadRequest("a file of a batch has the purpose batch")
        self.batches.files.append(file.file.read())
        number = len(self.batches.files)
        return _json({"id": f"file-storm{number}", "object": "file", "purpose": "batch"})

    async def _submit_openai(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        found = re.fullmatch(r"file-storm(\d+)", str(body.get("input_file_id")))
        files, endpoint = self.batches.files, str(body.get("endpoint"))
        if found is None or not 0 < int(found[1]) <= len(files):
            raise BadRequest("input_file_id: there is no such file")
        if endpoint not in self._dialects() or body.get("completion_window") != "24h":
            raise BadRequest("endpoint or completion_window: there is no such value")
        label = str((body.get("metadata") or {}).get("abreast_batch", ""))
        entries = forms.openai_entries(files[int(found[1]) - 1], endpoint)
        model = str(entries[0][1].get("model", "")) if entries else ""
        batch = self._submit("openai", model, label, entries, endpoint)
        return _json(forms.openai_batch(batch))

    async def _submit_anthropic(self, request: web.BaseRequest) -> web.Response:
        entries = forms.anthropic_entries(await _body(request))
        model = str(entries[0][1].get("model", "")) if entries else ""
        batch = self._submit("anthropic", model, "", entries)
        return _json(forms.anthropic_batch(batch, _ANTHROPIC))

    async def _submit_gemini(self, request: web.BaseRequest, model: str) -> web.Response:
        label, entries = forms.gemini_entries(await _body(request))
        return _json(forms.gemini_batch(self._submit("gemini", model, label, entries)))

    # --- lists

    def _list_openai(self, request: web.BaseRequest) -> web.Response:
        page, more = self._page(request, "openai", "after")
        data = [forms.openai_batch(one) for one in page]
        last = data[-1]["id"] if data else None
        return _json({"object": "list", "data": data, "last_id": last, "has_more": more})

    def _list_anthropic(self, request: web.BaseRequest) -> web.Response:
        page, more = self._page(request, "anthropic", "after_id")
        data = [forms.anthropic_batch(one, _ANTHROPIC) for one in page]
        return _json({"data": data, "has_more": more, "last_id": data[-1]["id"] if data else None})

    def _list_gemini(self, request: web.BaseRequest) -> web.Response:
        page, more = self._page(request, "gemini", "pageToken", "pageSize")
        body: Json = {"operations": [forms.gemini_batch(one) for one in page]}
        return _json(body | ({"nextPageToken": f"storm{page[-1].number}"} if more else {}))

    def _page(
        self, request: web.BaseRequest, lane: str, cursor: str, size: str = "limit"
    ) -> tuple[list[StormBatch], bool]:
        found = self.batches.listed(SYSTEM_CLOCK.now(), lane)
        after = _number(request.query.get(cursor, ""))
        rest = [one for one in found if after is None or one.number < after]
        most = int(request.query.get(size, _PAGE))
        return rest[:most], len(rest) > most

    # --- one batch

    def _find(self, lane: str, name: str, *, cancel: bool = False) -> StormBatch:
        now, number = SYSTEM_CLOCK.now(), _number(name)
        batch = None if number is None else self.batches.find(now, lane, number)
        if batch is None:
            raise Refusal("404", {"error": {"message": f"There is no batch {name}."}}, 404)
        if cancel:
            self.batches.cancel(now, batch)
        return batch

    def _download_openai(self, kind: str, number: int) -> web.Response:
        batch = self._find("openai", f"storm{number}")
        lines = [
            forms.openai_line(entry, number)
            for entry in self.batches.results(batch)
            if entry.billed == (kind == "out") and entry.outcome != "cancelled"
        ]
        return self._cut(batch, lines)

    def _cut(self, batch: StormBatch, content: Json | list[Json]) -> web.Response:
        """Results; of a batch with the fault `cut`, the first download breaks off."""
        lines = isinstance(content, list)
        body = b"".join(to_json(one) + b"\n" for one in content) if lines else to_json(content)  # type: ignore[arg-type]
        if lines or "response" in content:
            batch.downloads += 1
            if batch.fault == "cut" and batch.downloads == 1:
                raise ConnectionReset
        return web.Response(body=body, content_type=LINES if lines else JSON)

    # --- requests of batches

    def _answer_entry(self, now: float, batch: StormBatch, entry: BatchEntry) -> EntryResult:
        """Answer a request as if it had come by itself, but for the limits on requests."""
        paths = {
            "openai": batch.endpoint,
            "anthropic": "/v1/messages",
            "gemini": "/v1beta/models",
        }
        dialect, settings = self._dialects()[paths[batch.lane]], self._world.settings
        model = batch.model if batch.lane == "gemini" else ""
        try:
            ask = dialect.ask(entry.body, model, stream=False)
            text = fixed_text(ask, settings.reply, self._script, agrees=settings.strict != "none")
        except Refusal as error:
            return EntryResult(error.status, error.body)
        except (BadRequest, AttributeError, KeyError, TypeError, ValueError) as error:
            return EntryResult(400, dialect.error(400, "bad", str(error), None))
        arriving = WorldRequest(
            ask.key,
            ask.input_tokens,
            ask.max_tokens,
            None if text is None else count_tokens(text),
            dialect.lane,
            ask.model,
            ask.prompt,
            ask.reasoning_tokens,
            ask.cached_tokens,
            ask.cache_write_tokens,
            ask.files,
        )
        verdict = self._world.answer_batched(now, arriving)
        if verdict.status != 200:  # noqa: PLR2004 - OK
            body = json.loads(error_answer(dialect, verdict).parts[0])
            return EntryResult(verdict.status, body, ask.key)
        body = dialect.reply(ask, make_draft(ask, verdict, text))
        return EntryResult(200, body, ask.key, ask.input_tokens)


def _number(name: str) -> int | None:
    found = _NUMBER.fullmatch(name)
    return None if found is None else int(found[1])


async def _body(request: web.BaseRequest) -> Json:
    try:
        parsed = json.loads(await request.read())
    except ValueError as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadRequest("the body is an object of JSON")
    return parsed


def _error(lane: str, fault: str) -> Json:
    message = "Too many requests." if fault == "429" else "The server had an error."
    kind = "rate_limit_error" if fault == "429" else "api_error"
    if lane == "gemini":
        return {"error": {"code": int(fault), "message": message}}
    return {"type": "error", "error": {"type": kind, "message": message}}


def _json(body: Json) -> web.Response:
    return web.Response(body=to_json(body), content_type=JSON)
