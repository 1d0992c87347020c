"""The options of `abreast map`, as a run's manifest stores them for a resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from abreast.cli.config import Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.map.template import ItemTemplate, TemplateItem, UnstartedItem, value_at
from abreast.cli.jobs.request import unknown_version
from abreast.core.frozen import record
from abreast.core.item import position_key
from abreast.jobs.files.manifests import without_unsaid
from abreast.models.media import MediaFile, check_media, read_files
from abreast.store.port import JsonValue, RunRow

if TYPE_CHECKING:
    from abreast.models.lanes import LaneSettings
    from abreast.models.port import Effort, Message

KIND: Final = "map"
MANIFEST: Final = "map"
"""The key of the MapJob in a run's manifest."""
ITEMS: Final = "items"
"""The map's name in its run, so the item 0007 of a run named `map` is `map/items/0007`."""
INPUT: Final = "input"
_LATER: Final = (
    "reasoning",
    "thinking_tokens",
    "messages",
    "agent",
    "allow",
    "worktree",
    "calls",
)
WHOLE_LINE: Final = "{}"
"""As `messages`: the line is the conversation, or an object that has it as `messages`."""


@record(frozen=True)
class MapJob:
    """One `abreast map`: its command, function or prompt, its input, and the map's options."""

    cwd: str
    command: tuple[str, ...] = ()
    call: str | None = None
    jsonl: bool = False
    null: bool = False
    input: str | None = None
    key: str | None = None
    width: int = 8
    halt: bool = False
    until: int | None = None
    retries: int = 0
    timeout: float | None = None
    budget: str | None = None
    executor: str = "local"
    keep: int = 8 << 20
    prompt: str | None = None
    model: str | None = None
    system: str | None = None
    schema: dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    cache: bool = False
    lane_width: str | None = None
    warm: bool = False
    images: tuple[str, ...] = ()
    reasoning: Effort | None = None
    thinking_tokens: int | None = None
    calls: dict[str, Any] = field(default_factory=dict)
    """How calls are made: the facts of a `CallMode`."""
    messages: str | None = None
    """Where a line has its conversation: `{}` or `{.field}`."""
    agent: str | None = None
    """The coding agent that gets the prompt, in place of a model."""
    allow: tuple[str, ...] = ()
    worktree: bool = False
    """Whether each item works in a copy of the working tree."""

    def __post_init__(self) -> None:
        """Check options that exclude or require each other."""
        given = [
            name
            for name, value in (
                ("a command", self.command),
                ("--call", self.call),
                ("--prompt" if self.prompt else "--messages", self.asks),
            )
            if value
        ]
        if len(given) > 1:
            raise UsageError(
                f"{' and '.join(given[::-1])} exclude each other; leave one of them out"
            )
        if self.agent is not None and (self.messages is not None or not self.prompt):
            raise UsageError("--agent needs a task: abreast map --agent claude --prompt 'Fix {}'")
        if not given:
            raise UsageError("there is no command to run; write: abreast map -- COMMAND {} < items")
        if self.command and self.executor == "process":
            raise UsageError("--executor is for --call; a command is a process of its own anyway")
        if self.worktree and self.agent is None and not self.command:
            raise UsageError("--worktree is for commands and for --agent")
        if self.worktree and self.executor != "local":
            raise UsageError("--worktree makes copies on this machine: leave --executor out")
        if self.asks and self.executor != "local":
            raise UsageError("--executor is for --call and commands; models are called from here")

    def manifest(self) -> dict[str, JsonValue]:
        """The job as the run's manifest stores it."""
        facts: dict[str, Any] = asdict(self)
        facts |= {word: list(facts[word]) for word in ("command", "images", "allow")}
        return {MANIFEST: without_unsaid(facts, _LATER)}

    @classmethod
    def of_run(cls, row: RunRow) -> MapJob:
        """The job of a recorded run; raises `UsageError` for a run that a script has started."""
        facts = row.manifest.get(MANIFEST)
        if row.kind != KIND or not isinstance(facts, Mapping):
            raise UsageError(_started_by_script(row))
        try:
            known: dict[str, Any] = {word: facts[word] for word in facts if word != "wait"}
            texts = {word: tuple(known.get(word, ())) for word in ("images", "allow")}
            texts["command"] = tuple(known["command"])
            return cls(**{**known, **texts})
        except (TypeError, KeyError):
            raise unknown_version(row) from None

    def with_changes(self, **changes: object) -> MapJob:
        """A copy with those changes that aren't None."""
        wait = changes.pop("batch_wait", None)
        if wait is not None:
            changes["calls"] = {**self.calls, "wait": wait}
        given: dict[str, Any] = {
            name: value for name, value in changes.items() if value is not None
        }
        return replace(self, **given)

    @cached_property
    def arguments(self) -> ItemTemplate:
        """The command as a template that is filled in for each item."""
        return ItemTemplate(
            self.command, json_items=self.jsonl, option="the command", add_item=True
        )

    @cached_property
    def question(self) -> ItemTemplate:
        """The prompt as a template; the item is added at its end if no placeholder names it.

        Nor if it is the path of an image, or a conversation.
        """
        template = ItemTemplate((self.prompt or "",), json_items=self.jsonl, option="--prompt")
        return (
            template
            if template.uses_item or self.image_paths.uses_item or self.messages is not None
            else ItemTemplate((f"{self.prompt}\n\n{{}}",), json_items=self.jsonl, option="--prompt")
        )

    @cached_property
    def image_paths(self) -> ItemTemplate:
        """The paths of images and PDF files as a template."""
        return ItemTemplate(self.images, json_items=self.jsonl, option="--image")

    @property
    def asks(self) -> bool:
        """Whether a model is asked about each item."""
        return self.prompt is not None or self.messages is not None

    @property
    def may_have_files(self) -> bool:
        """Whether the items may have images and PDF files: then their content counts, too."""
        return bool(self.images) or self.messages is not None

    def conversation(self, value: object, where: TemplateItem) -> tuple[Message, ...]:
        """What is asked about an item; raises TypeError or ValueError if that can't be."""
        from abreast.models.conversation import make_conversation

        prompt = None if self.prompt is None else self.question.fill(value, where)[0]
        found: Any = None
        if self.messages is not None:
            found = value_at(self.messages, value)
            if self.messages == WHOLE_LINE and isinstance(found, Mapping):
                found = value_at("{.messages}", value)
        paths = self.image_paths.fill(value, where)
        return make_conversation(prompt, found, paths, system=self.system, folder=self.folder)

    @property
    def folder(self) -> str:
        """The directory from which paths count: empty if it is the current one."""
        return "" if self.cwd == str(Path.cwd()) else self.cwd

    def read_files(self, value: object, where: UnstartedItem) -> tuple[MediaFile, ...]:
        """The files of one item; raises ValueError for one that can't be sent."""
        if self.messages is not None:
            return tuple(file for turn in self.conversation(value, where) for file in turn.files)
        return read_files(self.image_paths.fill(value, where), self.folder)

    @cached_property
    def lanes(self) -> dict[str, LaneSettings]:
        """The lanes as configured in the directory where the job was started."""
        from abreast.cli.jobs.model_options import configured_lanes

        return configured_lanes(Config.load(Path(self.cwd)), self.lane_width, self.calls)

    @cached_property
    def key_of(self) -> Callable[[Any], str] | None:
        """The function that returns an item's key; None if keys are positions."""
        if self.key is None:
            return None
        template = ItemTemplate((self.key,), json_items=self.jsonl, option="--key")
        if not template.names_item:
            raise UsageError(
                "--key: a key is made from the item, as in --key '{.id}' or --key '{}'; "
                "leave it out for positions"
            )
        return lambda value: template.fill(value, UnstartedItem(0, ""))[0]

    def words(self, value: object, where: UnstartedItem) -> list[str]:
        """The command of one item; for a prompt, the model and the prompt."""
        if self.command:
            return self.arguments.fill(value, where)
        if self.messages is not None:
            from abreast.models.conversation import conversation_text

            turns = self.conversation(value, where)
            files = [file.path or file.mark for turn in turns for file in turn.files]
            return [str(self.model), conversation_text(turns), *files]
        if self.prompt:
            asked = self.question.fill(value, where) + self.image_paths.fill(value, where)
            return [str(self.agent or self.model), *asked]
        return [str(self.call), str(value)]

    def check_item(self, value: object, index: int) -> None:
        """Raise ValueError for an item that lacks a field of the command, the prompt or the key.

        Also for one whose image can't be sent.
        """
        key = self.key_of(value) if self.key_of is not None else position_key(index)
        if not key:
            raise ValueError("its key is empty")
        if self.command:
            self.arguments.fill(value, UnstartedItem(index, key))
        elif self.messages is not None:
            try:
                self.conversation(value, UnstartedItem(index, key))
            except TypeError as error:
                raise ValueError(str(error)) from None
        elif self.prompt:
            where = UnstartedItem(index, key)
            self.question.fill(value, where)
            for path in self.image_paths.fill(value, where):
                check_media(str(Path(self.folder, path)))


def _started_by_script(row: RunRow) -> str:
    argv = row.manifest.get("argv")
    words = (
        " ".join(str(word) for word in argv)
        if isinstance(argv, list)
        else str(row.manifest.get("script") or "")
    )
    where = row.manifest.get("cwd")
    return (
        f"{row.id} was made by a script, which knows what to do: "
        f"start it again ({words.strip()}, in {where})"
    )
