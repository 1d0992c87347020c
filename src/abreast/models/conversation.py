"""Conversations as input: messages of several forms become `Message`s, each checked."""

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

from abreast.models.media import MediaFile, MediaSource, read_files
from abreast.models.port import Message, Role, ToolCall

MessageLike: TypeAlias = "Message | Mapping[str, object]"
"""A message: a `Message`, or a mapping with `role` and `content`."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_OTHER_NAMES: Final = {"developer": "system"}
_KEYS: Final = ("role", "content", "tool_calls", "tool_call_id", "kept", "files")
_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_MAX_SHOWN: Final = 60  # characters of a wrong value in a message


def make_conversation(
    prompt: str | None,
    messages: Sequence[MessageLike] | None = None,
    files: Sequence[MediaSource] = (),
    *,
    system: str | None = None,
    folder: str = "",
) -> tuple[Message, ...]:
    """The turns of a request: the messages, and the prompt as the last user message.

    `files` go with the prompt, or with the last message where there is no prompt; paths count from
    `folder`. Raises TypeError or ValueError with the position of the message that is wrong, also
    if one of them is a system prompt beside `system`.
    """
    if prompt is not None and not isinstance(prompt, str):
        hint = "; give a conversation as messages=" if isinstance(prompt, (list, tuple)) else ""
        raise TypeError(f"the prompt must be a text, not {_kind(prompt)}{hint}")
    if messages is None and prompt is None:
        raise ValueError("there is nothing to ask: give a prompt, or messages")
    turns = () if messages is None else read_messages(messages, folder)
    _check_order(turns, prompt, system)
    media = read_files(files, folder) if files else ()
    if prompt is not None:
        return (*turns, Message("user", prompt, files=media))
    last = turns[-1]
    if media and last.role != "user":
        raise ValueError(f"files go with a user message, and the last one is of the {last.role}")
    return (*turns[:-1], replace(last, files=(*last.files, *media))) if media else turns


def _check_order(turns: Sequence[Message], prompt: str | None, system: str | None) -> None:
    """Raise ValueError for a conversation that contradicts itself, or leaves nothing to answer."""
    if not turns:
        return
    for at, turn in enumerate(turns):
        if system is not None and turn.role == "system":
            raise ValueError(f"messages[{at}] is a system prompt beside system; give one of them")
    last, where = turns[-1], f"messages[{len(turns) - 1}]"
    if last.tool_calls:
        raise ValueError(f"{where} calls tools, and no message after it has their results")
    if last.role == "user" and last.content == prompt:
        raise ValueError(f"{where} is the prompt, which would be sent twice; leave one out")
    if prompt is None and last.role not in ("user", "tool"):
        raise ValueError(
            f"{where}, the last, is of the {last.role}, and leaves nothing to answer: end with a "
            "user message, or give a prompt"
        )


def read_messages(given: Sequence[MessageLike], folder: str = "") -> tuple[Message, ...]:
    """The messages, each checked; raises as `make_conversation` does."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise TypeError(f"messages must be a list of messages, not {_kind(given)}")
    if not given:
        raise ValueError("messages is empty; give at least one message")
    return tuple(_read_message(one, f"messages[{at}]", folder) for at, one in enumerate(given))


def has_files(messages: Sequence[object] | None) -> bool:
    """Whether a message may have files, which are read from the disk."""
    return any(
        isinstance(one, Mapping) and (one.get("files") or isinstance(one.get("content"), list))
        for one in messages or ()
    )


def asked_text(facts: Mapping[str, object]) -> str:
    """What is asked last by recorded facts: their `prompt`, or the last of their `messages`."""
    prompt, messages = facts.get("prompt"), facts.get("messages")
    if prompt is None and isinstance(messages, Sequence) and messages:
        last = messages[-1]
        content = last.get("content") if isinstance(last, Mapping) else None
        parts = content if isinstance(content, (list, tuple)) else [content]
        texts = [one.get("text") if isinstance(one, Mapping) else one for one in parts]
        return "\n".join(text for text in texts if isinstance(text, str))
    return prompt if isinstance(prompt, str) else ""


def conversation_text(turns: Sequence[Message]) -> str:
    """A conversation as one text, for a judge; a single message as it is."""
    if len(turns) == 1:
        return turns[0].content
    return "\n\n".join(f"{turn.role.capitalize()}:\n{turn.content}" for turn in turns)


def _read_message(given: object, where: str, folder: str) -> Message:
    if isinstance(given, Message):
        message = given
        if not isinstance(message.content, str):
            raise TypeError(f"{where}.content must be a text, not {_kind(message.content)}")
    elif isinstance(given, Mapping):
        message = _of_mapping(given, where, folder)
    else:
        hint = "; give reply.message()" if hasattr(given, "finish") else ""
        raise TypeError(
            f"{where} must be a Message or a mapping with role and content, "
            f"not {_kind(given)}{hint}"
        )
    if message.role not in ROLES:
        raise ValueError(
            f"{where}.role must be one of {', '.join(ROLES)}, not {_short(message.role)}"
        )
    if message.files and message.role != "user":
        raise ValueError(f"{where} is of the {message.role}, and only a user message has files")
    if message.role == "tool" and not message.tool_call_id:
        raise ValueError(f"{where} is the result of a tool, and has no tool_call_id")
    is_empty = not (message.content.strip() or message.files or message.tool_calls or message.kept)
    if is_empty and message.role != "tool":
        raise ValueError(f"{where} is empty")
    return message


def _of_mapping(given: Mapping[str, Any], where: str, folder: str) -> Message:
    for key, value in given.items():
        if key not in _KEYS and value not in (None, "", [], {}):
            raise ValueError(
                f"{where} has {key!r}, which is no part of a message; there are {', '.join(_KEYS)}"
            )
    if "role" not in given:
        raise ValueError(f"{where} has no role; it is one of {', '.join(ROLES)}")
    role, content = given["role"], given.get("content")
    text, parts = _read_content(content, f"{where}.content", folder)
    if content is None and not given.get("tool_calls"):
        raise ValueError(f"{where} has no content")
    calls = given.get("tool_calls") or ()
    if not isinstance(calls, (list, tuple)):
        raise TypeError(f"{where}.tool_calls must be a list, not {_kind(calls)}")
    call_id = given.get("tool_call_id")
    if call_id is not None and not isinstance(call_id, str):
        raise TypeError(f"{where}.tool_call_id must be a text, not {_kind(call_id)}")
    with _naming(f"{where}.files"):
        files = read_files(given.get("files") or (), folder)
    return Message(
        cast("Role", _OTHER_NAMES.get(role, role) if isinstance(role, str) else role),
        text,
        tuple(_read_call(one, f"{where}.tool_calls[{at}]") for at, one in enumerate(calls)),
        call_id,
        kept=tuple(given.get("kept") or ()),
        files=(*parts, *files),
    )


def _read_content(given: object, where: str, folder: str) -> tuple[str, tuple[MediaFile, ...]]:
    if given is None or isinstance(given, str):
        return given or "", ()
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{where} must be a text or a list of parts, not {_kind(given)}")
    parts: list[str | MediaFile] = []
    for at, one in enumerate(given):
        with _naming(f"{where}[{at}]"):
            parts.append(_read_part(one, folder))
    texts = [one for one in parts if isinstance(one, str)]
    return "\n".join(texts), tuple(one for one in parts if isinstance(one, MediaFile))


def _read_part(part: object, folder: str) -> str | MediaFile:
    """A part of a message's content, in abreast's form or in one of a provider's."""
    if isinstance(part, (str, MediaFile)):
        return part
    if isinstance(part, PathLike):
        return MediaFile.read(Path(folder, part))
    if not isinstance(part, Mapping):
        raise TypeError(f"a part is a text, a MediaFile or a mapping, not {_kind(part)}")
    text = part.get("text")
    if isinstance(text, str) and part.get("type", "text") in _TEXT_TYPES:
        return text
    for key in ("image", "file"):
        if isinstance(path := part.get(key), str):
            return MediaFile.read(Path(folder, path))
    return _inline_file(part)


def _inline_file(part: Mapping[str, Any]) -> MediaFile:
    """The file in a part that has its content, in the forms of chat completions and Anthropic."""
    source, file, url = (part.get(key) for key in ("source", "file", "image_url"))
    if isinstance(source, Mapping) and source.get("type") == "base64":
        return _decoded(source.get("data"))
    url = url.get("url") if isinstance(url, Mapping) else url
    holder = file if isinstance(file, Mapping) else part
    if isinstance(url, str):
        return _of_url(url)
    if isinstance(data := holder.get("file_data"), str):
        return _of_url(data, str(holder.get("filename") or ""))
    raise ValueError(
        "a part is a text ({'type': 'text', 'text': ...}) or an image or PDF file "
        f"({{'image': path}}), and this is {_short(dict(part))}"
    )


def _of_url(url: str, name: str = "") -> MediaFile:
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise ValueError(
            f"a file is given as a path or as a data: URL, not as {_short(url)}; download it, and "
            "write {'image': path}"
        )
    return _decoded(data, name)


def _decoded(data: object, name: str = "") -> MediaFile:
    try:
        return MediaFile.of(b64decode(str(data), validate=True), name)
    except binascii.Error:
        raise ValueError(f"its data is not base64: {_short(data)}") from None


def _read_call(given: object, where: str) -> ToolCall:
    """A tool call, in abreast's form or in that of chat completions."""
    if isinstance(given, ToolCall):
        return given
    if isinstance(given, Mapping):
        function = given.get("function")
        named = function if isinstance(function, Mapping) else given
        found = (given.get("id"), named.get("name"), named.get("arguments"))
        if all(isinstance(one, str) for one in found):
            return ToolCall(*map(str, found))
    raise ValueError(f"{where} must have id, name and arguments, each a text")


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Name the place in the message of what is raised."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _kind(given: object) -> str:
    names = {str: "a text", dict: "a mapping", list: "a list", type(None): "nothing"}
    return names.get(type(given), f"a {type(given).__name__}")


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
