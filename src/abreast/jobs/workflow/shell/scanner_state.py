"""The state of the scanner: its position, the open contexts, the words and the pieces so far."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NoReturn

from abreast.jobs.files.expressions import Block, ExpressionInvalid
from abreast.jobs.files.grammar import Expression
from abreast.jobs.workflow.shell.commands import reads_input_as_code


class ScriptInvalid(ExpressionInvalid):
    """A shell script that can't take a value safely, or has an invalid expression."""


# How a value is written into the script.
ValueForm = Enum("ValueForm", ["BARE", "DOUBLE", "SINGLE", "NUMBER", "RAW"])


@dataclass(frozen=True, slots=True)
class ValueSlot:
    """A place in the script for a value."""

    at: int
    inner: str
    expression: Expression
    form: ValueForm


# The contexts that can be open in a script: the first five are code.
ContextKind = Enum(
    "ContextKind",
    [
        "CODE",
        "SUBSTITUTION",
        "PARENTHESES",
        "BACKTICKS",
        "CASE",
        "DOUBLE",
        "SINGLE",
        "DOLLAR_SINGLE",
        "BRACES",
        "FORMULA",
        "HERE",
    ],
)


CODE: Final = frozenset(
    {
        ContextKind.CODE,
        ContextKind.SUBSTITUTION,
        ContextKind.PARENTHESES,
        ContextKind.BACKTICKS,
        ContextKind.CASE,
    }
)
NAMES: Final = {
    ContextKind.DOUBLE: "a double quote",
    ContextKind.SINGLE: "a single quote",
    ContextKind.DOLLAR_SINGLE: "a quote after $",
    ContextKind.BRACES: "${",
    ContextKind.FORMULA: "$((",
    ContextKind.BACKTICKS: "a backtick",
    ContextKind.SUBSTITUTION: "$(",
}
MARK: Final = "\ufffc"  # stands for a value in a word
_MAX_WORD_LENGTH: Final = 200  # characters of a word that are remembered
_SUBSCRIPT: Final = re.compile(r"\w*\[(?!.*\]\+?=(?!=)).*", re.DOTALL)
_MAX_DEPTH: Final = 100  # of nested contexts
_BEFORE_COMMANDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done"}
)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)\+?=")


@dataclass(slots=True)
class HereDocument:
    """A here-document: the word that ends it, and the command that it goes to."""

    piece: int
    word: str
    quoted: bool
    tabs: bool
    level: int
    words: list[str]
    end: int = 0
    after: int = 0


@dataclass(slots=True, eq=False)
class Context:
    """An open context: code, with the words of the command so far, or a quote."""

    kind: ContextKind
    start: int
    words: list[str] = field(default_factory=list)
    word: str | None = None
    quoted: bool = False
    target: bool = False
    """Whether the next word is the target of a redirection."""
    doubled: bool = False
    """Whether it comes after `>&`."""
    pattern: bool | None = None
    """Inside a case: whether a pattern comes next; None before its `in`."""
    formula: bool = False
    holds: bool = False
    depth: int = 0
    upstream: list[int] = field(default_factory=list)
    """Offsets of the values that flow into this command through a pipe."""
    own: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    """Offsets of all values in it, for the command that it is part of."""
    here: HereDocument | None = None

    def expects_a_command(self) -> bool:
        """Return whether the next word is the name of a command."""
        is_pattern = self.kind is ContextKind.CASE and self.pattern is not False
        return not (self.words or self.word or self.target or is_pattern)

    def is_subscript(self) -> bool:
        """Return whether the word so far is the beginning of an assignment to an array element."""
        may_assign = self.kind is ContextKind.PARENTHESES or (
            self.kind is not ContextKind.CASE and not self.words
        )
        return may_assign and _SUBSCRIPT.fullmatch(self.word or "") is not None


class ScannerState:
    """The position in a script, the basic moves from there, and the ends of words and commands."""

    def __init__(self, text: str, blocks: Mapping[int, Block]) -> None:
        self.pieces: list[str | ValueSlot] = []
        self.warnings: list[tuple[int, str]] = []
        self._text = text
        self._blocks = blocks
        self._at = 0
        self._stack = [Context(ContextKind.CODE, 0)]
        self._pending: list[HereDocument] = []
        self._assigned: set[str] = set()

    def _refuse(self, sentence: str, at: int | None = None) -> NoReturn:
        raise ScriptInvalid(sentence, self._at if at is None else at)

    def _take(self, count: int = 1, *, word: bool = True) -> str:
        """Append the next characters to the pieces, and to the word that they are in."""
        taken = self._text[self._at : self._at + count]
        self.pieces.append(taken)
        self._at += len(taken)
        if word and (owner := self._owner()):
            owner.word = owner.word or ""
            owner.word += taken[: max(0, _MAX_WORD_LENGTH - len(owner.word))]
        return taken

    def _owner(self) -> Context | None:
        """Return the code context whose word the position is in; None in a here-document."""
        for frame in reversed(self._stack):
            if frame.kind in CODE:
                return frame
            if frame.kind is ContextKind.HERE:
                return None
        return None

    def _push(self, kind: ContextKind, count: int) -> Context:
        start = self._at
        self._take(count)
        return self._nest(Context(kind, start))

    def _nest(self, frame: Context) -> Context:
        if len(self._stack) > _MAX_DEPTH:
            self._refuse("quotes and brackets are nested too deeply here")
        self._stack.append(frame)
        return frame

    def _is_in(self, *kinds: ContextKind) -> bool:
        return any(frame.kind in kinds for frame in self._stack)

    def _level(self) -> int:
        return sum(
            frame.kind in {ContextKind.SUBSTITUTION, ContextKind.BACKTICKS} for frame in self._stack
        )

    def _next_is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _warn(self, at: int, sentence: str) -> None:
        self.warnings.append((at, sentence))

    def _end_word(self, frame: Context) -> None:
        word, frame.word, quoted, frame.quoted = frame.word, None, frame.quoted, False
        if word is None:
            return
        if frame.target:
            frame.target = False
        elif frame.kind is ContextKind.CASE and frame.pattern is not False:
            self._end_case_word(frame, word)
        elif frame.words or quoted:
            self._add_word(frame, word)
        elif word == "case":
            self._nest(Context(ContextKind.CASE, self._at))
        elif word == "esac" and frame.kind is ContextKind.CASE:
            self._leave_case()
        elif word not in _BEFORE_COMMANDS:
            self._add_word(frame, word)

    def _end_case_word(self, frame: Context, word: str) -> None:
        if frame.pattern is None:
            frame.pattern = True if word == "in" and frame.words else None
            frame.words = [] if frame.pattern else [word]
        elif word == "esac":
            self._leave_case()

    def _leave_case(self) -> None:
        self._stack.pop()
        self._stack[-1].words.append("esac")

    def _add_word(self, frame: Context, word: str) -> None:
        assigned = _ASSIGNMENT.match(word)
        if assigned and MARK in word:
            self._assigned.add(assigned[1])
        if frame.words or not assigned:
            frame.words.append(word)

    def _end_command(self, frame: Context, *, piped: bool = False) -> None:
        self._end_word(frame)
        frame = self._stack[-1]
        if frame.upstream and (program := reads_input_as_code(frame.words)):
            for at in frame.upstream:
                self._warn(
                    at,
                    f"{program} reads this value as code, through the pipe: "
                    "hand it over as an argument instead",
                )
        frame.upstream = frame.upstream + frame.own if piped else []
        frame.own = []
        if frame.kind is not ContextKind.CASE or frame.pattern is not None:
            frame.words = []
        frame.target = False
