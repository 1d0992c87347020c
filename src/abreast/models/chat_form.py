"""The form of chat completions, which OpenAI, compatible servers and the embedded model share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from abreast.models.media import MediaFile
from abreast.models.port import ANY_TOOL, Message, Request, ToolCall


def present(**fields: object) -> dict[str, Any]:
    """The fields of a body that a request sets: those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def with_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A body with a request's further fields; an object is merged with the body's own."""
    for key, value in extra.items():
        ours = body.get(key)
        merge = isinstance(ours, dict) and isinstance(value, Mapping)
        body[key] = {**(ours or {}), **value} if merge else value
    return body


def tools_form(request: Request) -> list[dict[str, Any]] | None:
    """The tools of a request; None if it has none."""
    return [{"type": "function", "function": dict(tool)} for tool in request.tools] or None


def tool_choice_form(choice: str) -> str | dict[str, Any]:
    """The tool that must be called, by its name, or any."""
    return "required" if choice == ANY_TOOL else {"type": "function", "function": {"name": choice}}


def message_form(message: Message) -> dict[str, Any]:
    """A turn, which may call tools or answer such a call."""
    form: dict[str, Any] = {
        "role": message.role,
        "content": content_form(message) if message.files else message.content,
    }
    if message.tool_calls:
        form["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        form["tool_call_id"] = message.tool_call_id
    return form


def content_form(message: Message) -> list[dict[str, Any]]:
    """The content of a turn with files, in parts."""
    parts = [file_form(file) for file in message.files]
    return [*parts, {"type": "text", "text": message.content}] if message.content else parts


def file_form(file: MediaFile) -> dict[str, Any]:
    """An image or a PDF file as a part of a turn; ValueError if it has changed since."""
    if file.is_pdf:
        return {"type": "file", "file": {"filename": _name(file), "file_data": file.data_url()}}
    return {"type": "image_url", "image_url": {"url": file.data_url()}}


def responses_file_form(file: MediaFile) -> dict[str, Any]:
    """The same as a part of an input item of the Responses API."""
    if file.is_pdf:
        return {"type": "input_file", "filename": _name(file), "file_data": file.data_url()}
    return {"type": "input_image", "image_url": file.data_url()}


def _name(file: MediaFile) -> str:
    return file.name or "document.pdf"


@dataclass(slots=True)
class ToolCallDraft:
    """A tool call that arrives in parts."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, part: Mapping[str, Any]) -> None:
        """Add a part; the id and the name may come in the first one only."""
        function = part.get("function") or {}
        self.id = self.id or part.get("id") or ""
        self.name = self.name or function.get("name") or ""
        self.arguments.append(function.get("arguments") or "")

    def tool_call(self) -> ToolCall:
        """The complete tool call."""
        return ToolCall(self.id, self.name, "".join(self.arguments))
