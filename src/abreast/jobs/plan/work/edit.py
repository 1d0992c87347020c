"""A subplan's work by a model, which gets the files and replies with whole files that change.

A reply is written only if it keeps the rules: files of the subplan or new ones beside them, each
once and complete, and Python that compiles. Otherwise the model gets the list of faults and may
reply again, a limited number of times; then the work fails.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

from abreast.jobs.plan.decompose.inventory import HUGE
from abreast.jobs.plan.errors import EditRefused
from abreast.jobs.plan.work.assignment import Assignment
from abreast.jobs.plan.work.ownership import Ownership
from abreast.models.port import Message, Model, Reply, Request
from abreast.worktrees.merge.listing import is_binary
from abreast.worktrees.merge.names import is_one_line, printable

REPAIRS: Final = 2
"""How many times a model may reply again after a reply that breaks a rule."""
REPLY_TOKENS: Final = 8_192
"""The default bound of a reply; it is raised if the files are larger than that."""
_CHARACTERS_PER_TOKEN: Final = 3  # most texts have more, so the bound is generous
_NOTHING: Final = "NOTHING TO CHANGE"
_FENCE: Final = re.compile(r"^(```+|~~~+)[^\n]*\n(.*\n)\1[ \t]*\n?$", re.DOTALL)
_SYSTEM: Final = """\
You change files of a repository as the user asks, and nothing else. You are shown some of its \
files. Others work on the other files at the same time: you can't change those.

Answer with every file that changes, whole, from its first line to its last, in this form:

=== {mark} FILE path/of/the/file
(the new content)
=== {mark} END

A file that is to be deleted is one line: === {mark} DELETE path/of/the/file
Use the paths as they are shown. If nothing has to change, answer: {nothing}"""
_MAY_ASK: Final = """
If your change needs a change of a file that you are not shown, ask the one who works on it:

=== {mark} ASK path/of/that/file
(what has to change there, and why)
=== {mark} END"""

_ASKED: Final = """\
Others who work on other files need these changes in yours. Make them too, in your files, unless \
they are wrong:"""


@dataclass(frozen=True, slots=True)
class _ShownFiles:
    """The files of a subplan as text, and those that are not text or have a name of many lines."""

    texts: Mapping[str, str]
    others: tuple[str, ...]
    mark: str  # a word that is in none of the files; the lines of the form begin with it

    @classmethod
    def of(cls, assignment: Assignment) -> Self:
        texts: dict[str, str] = {}
        others: list[str] = []
        for file, place in zip(assignment.files, assignment.places, strict=True):
            content = (
                b"\0" if place.is_symlink() or place.stat().st_size > HUGE else place.read_bytes()
            )
            try:
                text = None if is_binary(content) else content.decode()
            except UnicodeDecodeError:
                text = None
            if text is None or not is_one_line(file):
                others.append(file)
            else:
                texts[file] = text
        return cls(texts, tuple(others), _mark((*texts.values(), _task_text(assignment))))

    def prompt(self, instruction: str) -> str:
        parts = [instruction.rstrip(), ""]
        for file, text in self.texts.items():
            end = "" if text.endswith("\n") or not text else "\n"
            parts.append(f"=== {self.mark} FILE {file}\n{text}{end}=== {self.mark} END")
        if self.others:
            parts.append(
                f"Also there, but not to be changed: {', '.join(map(printable, self.others))}"
            )
        return "\n".join(parts)

    def reply_tokens(self) -> int:
        """The bound of a reply: enough for every file to come back whole and somewhat longer.

        It also cuts off a reply that never ends.
        """
        return max(
            REPLY_TOKENS,
            sum(map(len, self.texts.values())) // _CHARACTERS_PER_TOKEN + REPLY_TOKENS // 2,
        )


def _task_text(assignment: Assignment) -> str:
    """What is to be done: the prompt, the part's own instructions, and what others ask for."""
    asked = assignment.request_text
    texts = [assignment.instruction, assignment.instructions]
    if asked:
        texts.append(f"{_ASKED}\n\n{asked}")
    return "\n\n".join(text.rstrip() for text in texts if text.strip())


def _mark(texts: Iterable[str]) -> str:
    digest = blake2b("\0".join(texts).encode(), digest_size=4)
    while any(digest.hexdigest() in text for text in texts):
        digest = blake2b(digest.digest(), digest_size=4)
    return digest.hexdigest()


class EditTask:
    """Asks a model to change the files of each subplan."""

    def __init__(
        self,
        model: Model,
        ownership: Ownership,
        *,
        repairs: int = REPAIRS,
        request: Request | None = None,
        asks: bool = False,
    ) -> None:
        """`request` has further settings of the calls, such as a temperature.

        Its system text is put before that of this module. With `asks`, a reply may ask for changes
        of files that other subplans own; the requests are `asks` of the value.
        """
        self._model = model
        self._ownership = ownership
        self._repairs = repairs
        self._rules = _SYSTEM + (_MAY_ASK if asks else "")
        self._request = request or Request(())

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Call the model, check its reply, write it; raises `EditRefused` if none is valid."""
        shown = _ShownFiles.of(assignment)
        rules = self._rules.format(mark=shown.mark, nothing=_NOTHING)
        system = f"{self._request.system}\n\n{rules}" if self._request.system else rules
        turns = [Message("user", shown.prompt(_task_text(assignment)))]
        settings = replace(
            self._request,
            system=system,
            max_tokens=self._request.max_tokens or shown.reply_tokens(),
        )
        for tried in range(self._repairs + 1):
            reply = await self._model.complete(replace(settings, messages=tuple(turns)))
            asks: list[dict[str, str]] = []
            edits, faults = _read_edits(reply, shown, assignment, self._ownership, asks)
            if not faults:
                _write(edits, assignment, shown)
                facts: dict[str, Any] = {
                    "written": sorted(edits),
                    "replies": tried + 1,
                    "model": reply.model or self._model.name,
                }
                return facts | ({"asks": asks} if asks else {})
            listed = "\n".join(f"- {fault}" for fault in faults)
            repair = f"Nothing of that was written:\n{listed}\nAnswer once more, whole."
            turns += [Message("assistant", reply.text), Message("user", repair)]
        raise EditRefused(
            f"{faults[0]} (after {self._repairs + 1} replies)",
            {"faults": faults, "reply": reply.text},
        )


def _read_edits(
    reply: Reply,
    shown: _ShownFiles,
    assignment: Assignment,
    ownership: Ownership,
    asks: list[dict[str, str]],
) -> tuple[dict[str, str | None], list[str]]:
    """The new contents of a reply (None for a file to delete), and the reply's faults.

    What it asks others for is put into `asks`.
    """
    if reply.finish == "length":
        return {}, [
            "the reply was cut off before its end: answer with fewer files, or allow longer replies"
        ]
    edits: dict[str, str | None] = {}
    faults: list[str] = []
    for path, content, is_ask in _blocks(reply.text, shown.mark, faults):
        if is_ask:
            asks.append({"file": path, "text": content or ""})
            fault = f"{path} is your own: change it, and don't ask" if path in shown.texts else None
        elif path in edits:
            fault = f"{path} comes twice"
        elif (fault := _path_fault(path, content, shown, assignment, ownership)) is None:
            before = shown.texts.get(path)
            edits[path] = edited = None if content is None else _adapted(content, before)
            fault = None if edited is None else _compile_fault(path, edited, before)
        faults += [] if fault is None else [fault]
    if not edits and not asks and not faults and _NOTHING not in reply.text:
        faults.append(
            f"there is no file in the reply, in the form that was asked for, nor {_NOTHING}"
        )
    return edits, faults


def _path_fault(
    path: str,
    content: str | None,
    shown: _ShownFiles,
    assignment: Assignment,
    ownership: Ownership,
) -> str | None:
    """Why a reply may not write or delete a path; None if it may."""
    if path in shown.others:
        return f"{path} is no text, and can't be written"
    if path in shown.texts:
        return None
    if not _may_create(path, assignment, ownership):
        owners = [one for one in ownership.owners(path) if one != assignment.id]
        whose = f": it belongs to {', '.join(owners)}" if owners else ""
        return f"{path} is not among the files of this part{whose}"
    return f"{path} is not there, and can't be deleted" if content is None else None


def _blocks(text: str, mark: str, faults: list[str]) -> Iterable[tuple[str, str | None, bool]]:
    """Each path of a reply, its text, and whether it is a request to another."""
    head = re.compile(rf"^=== {mark} (FILE|ASK|DELETE|END)(?: +(.+?))?\s*$")
    path: str | None = None
    is_ask = False
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        found = head.match(line)
        if found is None:
            lines.append(line)
            continue
        word, name = found.groups()
        if word == "END" and path is not None:
            yield path, "".join(lines), is_ask
        elif path is not None:
            faults.append(f"{path} has no end")
        path = None
        if word == "DELETE" and name:
            yield name, None, False
        elif word in ("FILE", "ASK") and name:
            path, lines, is_ask = name, [], word == "ASK"
    if path is not None:
        faults.append(f"{path} has no end")


def _may_create(path: str, assignment: Assignment, ownership: Ownership) -> bool:
    parts = path.split("/")
    if any(part in {"", ".", "..", ".git"} for part in parts) or "\0" in path:
        return False
    place = assignment.path
    for part in parts[:-1]:
        place /= part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return False
    return not (assignment.path / path).exists() and ownership.allows(assignment.id, path)


def _adapted(content: str, before: str | None) -> str:
    """The content without a fence that the model put around it, and with the file's line ends."""
    if (fenced := _FENCE.match(content)) and not (before or "").startswith(("```", "~~~")):
        content = fenced.group(2)
    if before and "\r\n" in before and "\n" not in before.replace("\r\n", ""):
        content = content.replace("\r\n", "\n").replace("\n", "\r\n")
    if before and not before.endswith("\n"):
        content = content.removesuffix("\n").removesuffix("\r")
    return content


def _compile_fault(path: str, content: str, before: str | None) -> str | None:
    if not path.endswith((".py", ".pyi")) or (before is not None and _syntax_error(before)):
        return None
    fault = _syntax_error(content)
    return None if fault is None else f"{path} does not compile: {fault}"


def _syntax_error(text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
    return None


def _write(edits: Mapping[str, str | None], assignment: Assignment, shown: _ShownFiles) -> None:
    for path, content in edits.items():
        place: Path = assignment.path / path
        if content is None:
            place.unlink()
        elif content != shown.texts.get(path):
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = place.stat().st_mode if path in shown.texts else None
            # A new file, since the old one may be a hard link to a file elsewhere.
            place.unlink(missing_ok=True)
            place.write_text(content, "utf-8", newline="")
            if mode is not None:
                place.chmod(mode)
