"""Where in a shell script a value stands: bare, in quotes, in a here-document, in a formula.

Whatever this finds, a value comes in as the expansion of a variable, which no shell reads as code again. So a mistake
here can split a value into words, or print the name of the variable; it can't run it. The places where a shell does
read an expansion again (formulas, names of variables) are refused, or take whole numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NoReturn

from abreast.jobs.workflow.expressions import Block, ExpressionInvalid
from abreast.jobs.workflow.grammar import Expression, parse_expression
from abreast.jobs.workflow.handed import feeds_on, hands_on, refusal


class ScriptInvalid(ExpressionInvalid):
    """A shell text that a value can't be put into safely, or an expression in it that can't be read."""


class Form(Enum):
    """How a value is written where it stands."""

    BARE = auto()
    DOUBLE = auto()
    SINGLE = auto()
    NUMBER = auto()
    RAW = auto()


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the script for a value."""

    at: int
    inner: str
    expression: Expression
    form: Form


class _Kind(Enum):
    CODE = auto()
    SUBSTITUTION = auto()
    PARENTHESES = auto()
    BACKTICKS = auto()
    CASE = auto()
    DOUBLE = auto()
    SINGLE = auto()
    DOLLAR_SINGLE = auto()
    BRACES = auto()
    FORMULA = auto()
    HERE = auto()


_CODE: Final = frozenset({_Kind.CODE, _Kind.SUBSTITUTION, _Kind.PARENTHESES, _Kind.BACKTICKS, _Kind.CASE})
_NAMES: Final = {
    _Kind.DOUBLE: "a double quote", _Kind.SINGLE: "a single quote", _Kind.DOLLAR_SINGLE: "a quote after $",
    _Kind.BRACES: "${", _Kind.FORMULA: "$((", _Kind.BACKTICKS: "a backtick", _Kind.SUBSTITUTION: "$(",
}  # fmt: skip
_BEFORE_COMMANDS: Final = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done"})
_MARK: Final = "\ufffc"
_LONGEST_WORD: Final = 200
_DEEPEST: Final = 100
_MOST_HERE: Final = 20
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)\+?=")
_HERE_WORD: Final = re.compile(r"[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\[^\n]|[^\s;&|<>()'\"\\`])+)")
_SPECIAL_PARAMETER: Final = "#$?!@*-0123456789"
_RUNS: Final = {
    _Kind.DOUBLE: re.compile(r'[^\\"`${]+'),
    _Kind.SINGLE: re.compile(r"[^'{`]+"),
    _Kind.DOLLAR_SINGLE: re.compile(r"[^'{\\]+"),
    _Kind.BRACES: re.compile(r"[^\\'\"`${}]+"),
    _Kind.FORMULA: re.compile(r"[^\\`${()]+"),
    _Kind.HERE: re.compile(r"[^\\`${]+"),
}
_CODE_RUN: Final = re.compile(r"[^\\'\"`$#<>\s;&|(){]+")


@dataclass(slots=True, eq=False)
class _Frame:
    kind: _Kind
    start: int
    words: list[str] = field(default_factory=list)
    word: str | None = None
    quoted: bool = False
    target: bool = False
    """Whether the next word is where something is redirected to."""
    doubled: bool = False
    """Whether it comes after `>&`."""
    pattern: bool | None = None
    """Within a case: whether a pattern comes next; None before its `in`."""
    formula: bool = False
    holds: bool = False
    depth: int = 0
    upstream: list[int] = field(default_factory=list)
    """Values that flow down this pipe."""
    own: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    """Every value in it, for the command that it is part of."""
    here: _Here | None = None

    def expects_a_command(self) -> bool:
        """Whether the next word is the name of a command."""
        is_pattern = self.kind is _Kind.CASE and self.pattern is not False
        return not (self.words or self.word or self.target or is_pattern)


@dataclass(slots=True)
class _Here:
    piece: int
    word: str
    quoted: bool
    tabs: bool
    level: int
    words: list[str]
    end: int = 0
    after: int = 0


class Scanner:
    """Goes through a script once; `pieces` are its text and the slots in it, `warnings` what it found odd."""

    def __init__(self, text: str, blocks: Mapping[int, Block]) -> None:
        self.pieces: list[str | Slot] = []
        self.warnings: list[tuple[int, str]] = []
        self._text = text
        self._blocks = blocks
        self._at = 0
        self._stack = [_Frame(_Kind.CODE, 0)]
        self._pending: list[_Here] = []
        self._assigned: set[str] = set()

    def scan(self) -> None:
        """Find every slot; ScriptInvalid where no value can stand."""
        while True:
            frame = self._stack[-1]
            limit = next((one.here.end for one in reversed(self._stack) if one.here), len(self._text))
            if self._at >= limit:
                if frame.here:
                    self._leave_here(frame.here)
                    continue
                if limit < len(self._text):
                    self._refuse(
                        f"{_NAMES.get(frame.kind, 'a bracket')} is not closed in this here-document", frame.start
                    )
                break
            if block := self._blocks.get(self._at):
                self._block(block)
            elif frame.kind in _CODE:
                self._code(frame)
            else:
                self._quoted(frame)
        self._end_command(self._stack[-1])
        if open_quotes := [one for one in self._stack if one.kind in _NAMES]:
            self._refuse(f"{_NAMES[open_quotes[0].kind]} is opened here and never closed", open_quotes[0].start)

    # --- small steps

    def _refuse(self, sentence: str, at: int | None = None) -> NoReturn:
        raise ScriptInvalid(sentence, self._at if at is None else at)

    def _take(self, count: int = 1, *, word: bool = True) -> str:
        """Hand on the next letters, as part of the word they are in."""
        taken = self._text[self._at : self._at + count]
        self.pieces.append(taken)
        self._at += len(taken)
        if word and (owner := self._owner()):
            owner.word = owner.word or ""
            owner.word += taken[: max(0, _LONGEST_WORD - len(owner.word))]
        return taken

    def _owner(self) -> _Frame | None:
        """The code whose word we are in; a here-document is in none."""
        for frame in reversed(self._stack):
            if frame.kind in _CODE:
                return frame
            if frame.kind is _Kind.HERE:
                return None
        return None

    def _push(self, kind: _Kind, count: int) -> _Frame:
        start = self._at
        self._take(count)
        return self._nest(_Frame(kind, start))

    def _nest(self, frame: _Frame) -> _Frame:
        if len(self._stack) > _DEEPEST:
            self._refuse("quotes and brackets are nested too deeply here")
        self._stack.append(frame)
        return frame

    def _is_in(self, *kinds: _Kind) -> bool:
        return any(frame.kind in kinds for frame in self._stack)

    def _level(self) -> int:
        return sum(frame.kind in {_Kind.SUBSTITUTION, _Kind.BACKTICKS} for frame in self._stack)

    def _next_is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    # --- a value

    def _block(self, block: Block) -> None:
        expression = parse_expression(block.inner, block.start + 2, raw_allowed=True)
        form = Form.RAW if expression.raw else self._form()
        owner = self._owner()
        if form is not Form.RAW:
            self._check(block.start, owner)
        for frame in self._stack:
            frame.holds = True
        if owner:
            owner.own.append(block.start)
            owner.passed.append(block.start)
            owner.word = (owner.word or "") + _MARK
        self.pieces.append(Slot(block.start, block.inner, expression, form))
        self._at = block.end

    def _form(self) -> Form:
        kind = self._stack[-1].kind
        if self._is_in(_Kind.DOLLAR_SINGLE):
            self._refuse("a value can't stand in $'...', which not every sh knows: use \"...\"")
        if self._is_in(_Kind.BRACES):
            self._refuse("a value can't stand in ${...}: put it into a variable first, as in x={{ ... }}")
        if any(frame.formula for frame in self._stack):
            self._refuse("a value can't stand in ((...)), which not every sh knows: use $(( )) or [ ]")
        if kind is _Kind.FORMULA:
            return Form.NUMBER
        return Form.SINGLE if kind is _Kind.SINGLE else Form.DOUBLE if kind not in _CODE else Form.BARE

    def _check(self, at: int, owner: _Frame | None) -> None:
        if owner and owner.target and owner.doubled:
            # bash expands the word after >& twice.
            self._refuse("a value can't stand after >& or <&: write > and the name of a file, or a number")
        if owner and not owner.target and (why := refusal(owner.words, owner.word or "")):
            self._refuse(why)
        whom = next((found for frame in self._stack if (found := self._whom(frame))), None)
        if whom:
            self._warn(at, f"{whom} reads this value as code: hand it over as an argument or a variable instead")
        if owner and owner.expects_a_command():
            self._warn(at, "the value is the name of the command here, one word: use | raw for text that is code")
        if self._stack[-1].kind is not _Kind.FORMULA and self._is_in(_Kind.FORMULA):
            self._warn(at, "what comes of this value is read as a formula")

    def _whom(self, frame: _Frame) -> str | None:
        if frame.here:
            return feeds_on(frame.here.words)
        return hands_on(frame.words) if frame.kind in _CODE and not frame.target else None

    def _warn(self, at: int, sentence: str) -> None:
        self.warnings.append((at, sentence))

    # --- code

    def _code(self, frame: _Frame) -> None:
        if run := _CODE_RUN.match(self._text, self._at):
            self._take(len(run[0]))
            return
        letter = self._text[self._at]
        steps = {
            "\\": self._escape, "'": self._open_single, '"': self._open_double, "`": self._backtick, "$": self._dollar,
            "#": self._hash, "\n": self._newline, "<": self._redirect, ">": self._redirect, ";": self._operator,
            "&": self._operator, "|": self._operator, "(": self._open, ")": self._close,
        }  # fmt: skip
        if letter in steps:
            steps[letter](frame)
        elif letter.isspace():
            self._end_word(frame)
            self._take(word=False)
        else:
            self._take()

    def _escape(self, frame: _Frame) -> None:
        if self._at + 1 in self._blocks:
            self._refuse("a backslash stands right before the value: leave it out, or write \\\\")
        if self._next_is("\\\n"):
            self._take(2, word=False)
            return
        frame.quoted = True
        self._take(2)

    def _open_single(self, frame: _Frame) -> None:
        frame.quoted = True
        self._push(_Kind.SINGLE, 1)
        self._unquote()

    def _open_double(self, frame: _Frame) -> None:
        frame.quoted = True
        self._push(_Kind.DOUBLE, 1)
        self._unquote()

    def _unquote(self) -> None:
        """Leave the quote that was just taken out of the word."""
        if owner := self._owner():
            owner.word = (owner.word or "")[:-1]

    def _hash(self, frame: _Frame) -> None:
        if frame.word is not None:
            self._take()
            return
        while self._at < len(self._text) and self._text[self._at] != "\n":
            if self._text[self._at] == "`" and self._is_in(_Kind.BACKTICKS):
                return
            if block := self._blocks.get(self._at):
                self.pieces.append(" ".join(self._text[block.start : block.end].splitlines()))
                self._at = block.end
            else:
                self._take(word=False)

    def _redirect(self, frame: _Frame) -> None:
        if self._next_is("<<") and not self._next_is("<<<") and not any(one.formula for one in self._stack):
            self._here(frame)
            return
        self._end_word(frame)
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "<>&|" and self._at not in self._blocks:
            self._take(word=False)
        frame.doubled = "&" in self._text[start : self._at]
        frame.target = not self._next_is("(")

    def _operator(self, frame: _Frame) -> None:
        sign = self._text[self._at]
        if self._next_is("&>"):
            self._end_word(frame)
            self._take(word=False)
            return
        is_pipe = sign == "|" and not self._next_is("||")
        self._end_command(frame, piped=is_pipe)
        frame = self._stack[-1]
        if frame.kind is _Kind.CASE and sign == ";" and self._text[self._at + 1 : self._at + 2] in {";", "&"}:
            frame.pattern = True
        doubled = self._text[self._at + 1 : self._at + 2] == sign
        self._take(2 if doubled else 1, word=False)

    def _open(self, frame: _Frame) -> None:
        is_formula = self._next_is("((") and not frame.words and frame.word is None
        self._end_word(frame)
        start = self._at
        self._take(word=False)
        if frame.kind is not _Kind.CASE or frame.pattern is False:
            self._nest(_Frame(_Kind.PARENTHESES, start, formula=is_formula))

    def _close(self, frame: _Frame) -> None:
        self._end_command(frame)
        frame = self._stack[-1]
        self._take(word=False)
        if frame.kind is _Kind.CASE:
            frame.pattern = False
        elif frame.kind in {_Kind.PARENTHESES, _Kind.SUBSTITUTION}:
            self._pop()

    def _pop(self) -> None:
        frame = self._stack.pop()
        if owner := self._owner():
            owner.own += frame.passed
            if frame.kind is _Kind.PARENTHESES:
                # `f()` is the beginning of a function, and what follows is a command.
                owner.words = [] if self._text[frame.start : self._at] == "()" else ["()"]

    def _newline(self, frame: _Frame) -> None:
        self._end_command(frame)
        self._take(word=False)
        if self._pending:
            if any(here.level != self._level() for here in self._pending):
                self._refuse("a here-document begins in one $( ) and goes on in another: give it lines of its own")
            self._enter_here()

    # --- words and commands

    def _end_word(self, frame: _Frame) -> None:
        word, frame.word, quoted, frame.quoted = frame.word, None, frame.quoted, False
        if word is None:
            return
        if frame.target:
            frame.target = False
        elif frame.kind is _Kind.CASE and frame.pattern is not False:
            self._end_case_word(frame, word)
        elif frame.words or quoted:
            self._add_word(frame, word)
        elif word == "case":
            self._nest(_Frame(_Kind.CASE, self._at))
        elif word == "esac" and frame.kind is _Kind.CASE:
            self._leave_case()
        elif word not in _BEFORE_COMMANDS:
            self._add_word(frame, word)

    def _end_case_word(self, frame: _Frame, word: str) -> None:
        if frame.pattern is None:
            frame.pattern = True if word == "in" and frame.words else None
            frame.words = [] if frame.pattern else [word]
        elif word == "esac":
            self._leave_case()

    def _leave_case(self) -> None:
        self._stack.pop()
        self._stack[-1].words.append("esac")

    def _add_word(self, frame: _Frame, word: str) -> None:
        assigned = _ASSIGNMENT.match(word)
        if assigned and _MARK in word:
            self._assigned.add(assigned[1])
        if frame.words or not assigned:
            frame.words.append(word)

    def _end_command(self, frame: _Frame, *, piped: bool = False) -> None:
        self._end_word(frame)
        frame = self._stack[-1]
        if frame.upstream and (whom := feeds_on(frame.words)):
            for at in frame.upstream:
                self._warn(
                    at, f"{whom} reads this value as code, through the pipe: hand it over as an argument instead"
                )
        frame.upstream = frame.upstream + frame.own if piped else []
        frame.own = []
        if frame.kind is not _Kind.CASE or frame.pattern is not None:
            frame.words = []
        frame.target = False

    # --- here-documents

    def _here(self, frame: _Frame) -> None:
        self._end_word(frame)
        if self._is_in(_Kind.BACKTICKS):
            self._refuse("a here-document can't stand in backticks beside values: use $( )")
        if len(self._pending) > _MOST_HERE:
            self._refuse("too many here-documents begin on one line")
        tabs = self._next_is("<<-")
        self._take(3 if tabs else 2, word=False)
        found = _HERE_WORD.match(self._text, self._at)
        if found is None or any(found.start() <= at < found.end() for at in self._blocks):
            self._refuse("a here-document needs a word that ends it, and a value can't be that word")
        word = re.sub(r"\\(.)|['\"]", r"\1", found[1])
        self.pieces += [found[0][: -len(found[1])], found[1]]
        self._at = found.end()
        quoted = word != found[1]
        self._pending.append(_Here(len(self.pieces) - 1, word, quoted, tabs, self._level(), frame.words))

    def _enter_here(self) -> None:
        """Begin the body of the next here-document; where it ends is settled before anything in it is read."""
        here = self._pending.pop(0)
        here.end, here.after = self._find_end(here)
        if here.quoted:
            self._quoted_here(here)
            self._leave_here(here)
            return
        self._nest(_Frame(_Kind.HERE, self._at, here=here))

    def _find_end(self, here: _Here) -> tuple[int, int]:
        start, joined = self._at, False
        while True:
            end = self._line_end(start)
            line = self._text[start:end]
            if not joined and (line.lstrip("\t") if here.tabs else line) == here.word:
                return start, end
            if end == len(self._text):
                return end, end
            joined = not here.quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            start = end + 1

    def _line_end(self, start: int) -> int:
        """The end of the line; a line goes on where it breaks within a block."""
        at = start
        while at < len(self._text) and self._text[at] != "\n":
            block = self._blocks.get(at)
            at = block.end if block else at + 1
        return at

    def _quoted_here(self, here: _Here) -> None:
        """The body of a quoted here-document; with a value in it, it becomes an unquoted one that says the same."""
        blocks = [block for at, block in self._blocks.items() if self._at <= at < here.end]
        if not blocks:
            self._take(here.end - self._at, word=False)
            return
        if not re.fullmatch(r"[\w.-]+", here.word):
            self._refuse("a here-document with a value in it needs a word of letters to end it, such as 'EOF'")
        self.pieces[here.piece] = here.word
        self._nest(_Frame(_Kind.HERE, self._at, here=here))
        for block in blocks:
            self._literally(block.start)
            self._block(block)
            if isinstance(slot := self.pieces[-1], Slot) and slot.form is Form.RAW:
                self._refuse("raw can't stand in a quoted here-document: leave it out", block.start)
        self._literally(here.end)
        self._stack.pop()

    def _literally(self, end: int) -> None:
        self.pieces.append(re.sub(r"[\\$`]", r"\\\g<0>", self._text[self._at : end]))
        self._at = end

    def _leave_here(self, here: _Here) -> None:
        if self._stack[-1].here is here:
            self._stack.pop()
        self._take(here.after - self._at, word=False)
        if self._pending and self._at < len(self._text):
            self._take(word=False)
            self._enter_here()

    # --- in quotes

    def _quoted(self, frame: _Frame) -> None:
        limit = frame.here.end if frame.here else len(self._text)
        if run := _RUNS[frame.kind].match(self._text, self._at, limit):
            self._take(len(run[0]))
            return
        letter = self._text[self._at]
        if letter == "{":
            self._take()
        elif frame.kind in {_Kind.SINGLE, _Kind.DOLLAR_SINGLE}:
            self._in_single(letter)
        elif letter in "\\$`":
            {"\\": self._escape, "$": self._dollar, "`": self._backtick}[letter](frame)
        elif frame.kind is _Kind.FORMULA:
            self._in_formula(frame, letter)
        elif frame.kind is _Kind.BRACES and letter != "}":
            self._in_braces(letter)
        else:
            self._stack.pop()
            self._take(word=letter != '"')

    def _in_braces(self, letter: str) -> None:
        if letter == '"':
            self._push(_Kind.DOUBLE, 1)
        elif self._stack[-2].kind in _CODE:
            self._push(_Kind.SINGLE, 1)
        else:
            self._take()  # within double quotes it is a letter like any other

    def _in_single(self, letter: str) -> None:
        if letter == "`" and self._is_in(_Kind.BACKTICKS):
            self._refuse("a backtick stands in single quotes within backticks: use $( )")
        if letter == "\\":
            self._refuse("a backslash stands in $'...', which not every sh reads alike: use \"...\" beside values")
        if letter == "'":
            self._stack.pop()
            self._take(word=False)
        else:
            self._take()

    def _in_formula(self, frame: _Frame, letter: str) -> None:
        frame.depth += 1 if letter == "(" else -1
        self._take()
        if frame.depth > 0:
            return
        if not self._next_is(")"):
            if frame.holds:
                self._refuse("$(( is not closed by )): write $( ( with a space if it is a command", frame.start)
            self._stack[-1] = _Frame(_Kind.SUBSTITUTION, frame.start)
            return
        self._take()
        self._stack.pop()
        names = set(re.findall(r"[A-Za-z_]\w*", self._text[frame.start : self._at]))
        for name in sorted(names & self._assigned):
            self._warn(frame.start, f"{name} holds a value, which this formula reads as a formula too")

    def _backtick(self, frame: _Frame) -> None:
        if not self._is_in(_Kind.BACKTICKS):
            self._push(_Kind.BACKTICKS, 1)
            return
        if frame.kind in _CODE:
            self._end_command(frame)
        frame = self._stack[-1]
        if frame.kind is not _Kind.BACKTICKS:
            self._refuse("backticks cross with other quotes: use $( )")
        if frame.holds and "\\" in self._text[frame.start : self._at]:
            self._refuse("a backslash and a value stand in the same backticks: use $( )", frame.start)
        self._take(word=False)
        self._pop()

    def _dollar(self, frame: _Frame) -> None:
        if self._at + 1 in self._blocks:
            self._refuse("a $ stands right before the value: leave it out, or write \\$")
        following = self._text[self._at + 1 : self._at + 2]
        if self._next_is("$(("):
            self._push(_Kind.FORMULA, 3).depth = 1
        elif following == "(":
            self._push(_Kind.SUBSTITUTION, 2)
        elif following == "{":
            self._push(_Kind.BRACES, 2)
        elif following == "[":
            self._refuse("$[ ] is not known to every sh: use $(( )) beside values")
        elif following == "'" and frame.kind in _CODE:
            self._push(_Kind.DOLLAR_SINGLE, 2)
        else:
            self._take(2 if following and following in _SPECIAL_PARAMETER else 1)
