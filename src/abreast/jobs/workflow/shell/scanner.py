"""Finds where in a shell script a value is: bare, in quotes, in a here-document, in a formula.

In every case a value is inserted as the expansion of a variable, which no shell reads as code
again. So a mistake here can split a value into words, or print the name of the variable; it can't
run it. The places where a shell does read an expansion again (formulas, names of variables) are
refused, or take whole numbers only.

Values in single quotes, here-documents and `$(( ))` take 40 of the 620 statements of this package:
to refuse them, the scanner would have to find the same beginnings and ends.
"""

import re
from typing import Final

from abreast.jobs.files.expressions import Block
from abreast.jobs.files.grammar import parse_expression
from abreast.jobs.workflow.shell.commands import reads_input_as_code, reads_word_as_code, refusal
from abreast.jobs.workflow.shell.scanner_state import (
    CODE,
    MARK,
    NAMES,
    Context,
    ContextKind,
    HereDocument,
    ScannerState,
    ScriptInvalid,
    ValueForm,
    ValueSlot,
)

__all__ = ["Scanner", "ScriptInvalid", "ValueForm", "ValueSlot"]

_SPECIAL_PARAMETER: Final = "#$?!@*-0123456789"
_RUNS: Final = {
    ContextKind.DOUBLE: re.compile(r'[^\\"`${]+'),
    ContextKind.SINGLE: re.compile(r"[^'{`]+"),
    ContextKind.DOLLAR_SINGLE: re.compile(r"[^'{\\]+"),
    ContextKind.BRACES: re.compile(r"[^\\'\"`${}]+"),
    ContextKind.FORMULA: re.compile(r"[^\\`${()]+"),
    ContextKind.HERE: re.compile(r"[^\\`${]+"),
}
_CODE_RUN: Final = re.compile(r"[^\\'\"`$#<>\s;&|(){]+")

_HERE_WORD: Final = re.compile(r"[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\[^\n]|[^\s;&|<>()'\"\\`])+)")
_MAX_PENDING: Final = 20  # here-documents that begin on one line


class Scanner(ScannerState):
    """Scans a script once.

    `pieces` are its text and the slots in it; `warnings` are what may not be meant.
    """

    def scan(self) -> None:
        """Find every slot; ScriptInvalid where no value can be."""
        while True:
            frame = self._stack[-1]
            limit = next(
                (one.here.end for one in reversed(self._stack) if one.here), len(self._text)
            )
            if self._at >= limit:
                if frame.here:
                    self._leave_here(frame.here)
                    continue
                if limit < len(self._text):
                    self._refuse(
                        f"{NAMES.get(frame.kind, 'a bracket')} is not closed in this here-document",
                        frame.start,
                    )
                break
            if block := self._blocks.get(self._at):
                self._block(block)
            elif frame.kind in CODE:
                self._code(frame)
            else:
                self._quoted(frame)
        self._end_command(self._stack[-1])
        if open_quotes := [one for one in self._stack if one.kind in NAMES]:
            self._refuse(
                f"{NAMES[open_quotes[0].kind]} is opened here and never closed",
                open_quotes[0].start,
            )

    def _block(self, block: Block) -> None:
        expression = parse_expression(block.inner, block.start + 2, raw_allowed=True)
        form = ValueForm.RAW if expression.raw else self._form()
        owner = self._owner()
        if form is not ValueForm.RAW:
            self._check(block.start, owner)
        for frame in self._stack:
            frame.holds = True
        if owner:
            owner.own.append(block.start)
            owner.passed.append(block.start)
            owner.word = (owner.word or "") + MARK
        self.pieces.append(ValueSlot(block.start, block.inner, expression, form))
        self._at = block.end

    def _form(self) -> ValueForm:
        kind = self._stack[-1].kind
        if self._is_in(ContextKind.DOLLAR_SINGLE):
            self._refuse("a value can't stand in $'...', which not every sh knows: use \"...\"")
        if self._is_in(ContextKind.BRACES):
            self._refuse(
                "a value can't stand in ${...}: put it into a variable first, as in x={{ ... }}"
            )
        if any(frame.formula for frame in self._stack):
            self._refuse(
                "a value can't stand in ((...)), which not every sh knows: use $(( )) or [ ]"
            )
        forms = {ContextKind.FORMULA: ValueForm.NUMBER, ContextKind.SINGLE: ValueForm.SINGLE}
        return forms.get(kind, ValueForm.BARE if kind in CODE else ValueForm.DOUBLE)

    def _check(self, at: int, owner: Context | None) -> None:
        if owner and owner.target and owner.doubled:
            # bash expands the word after >& twice.
            self._refuse(
                "a value can't stand after >& or <&: write > and the name of a file, or a number"
            )
        if owner and owner.is_subscript():
            self._refuse(
                "a value can't stand in the brackets of an array: bash reads it as a formula"
            )
        if owner and not owner.target and (why := refusal(owner.words, owner.word or "")):
            self._refuse(why)
        program = next(
            (found for frame in self._stack if (found := self._code_reader(frame))), None
        )
        if program:
            self._warn(
                at,
                f"{program} reads this value as code: "
                "hand it over as an argument or a variable instead",
            )
        if owner and owner.expects_a_command():
            self._warn(
                at,
                "the value is the name of the command here, one word: "
                "use | raw for text that is code",
            )
        if self._stack[-1].kind is not ContextKind.FORMULA and self._is_in(ContextKind.FORMULA):
            self._warn(at, "what comes of this value is read as a formula")

    def _code_reader(self, frame: Context) -> str | None:
        if frame.here:
            return reads_input_as_code(frame.here.words)
        return reads_word_as_code(frame.words) if frame.kind in CODE and not frame.target else None

    def _code(self, frame: Context) -> None:
        if run := _CODE_RUN.match(self._text, self._at):
            self._take(len(run[0]))
            return
        letter = self._text[self._at]
        steps = {
            "\\": self._escape,
            "'": self._open_quote,
            '"': self._open_quote,
            "`": self._backtick,
            "$": self._dollar,
            "#": self._hash,
            "\n": self._newline,
            "<": self._redirect,
            ">": self._redirect,
            ";": self._operator,
            "&": self._operator,
            "|": self._operator,
            "(": self._open,
            ")": self._close,
        }
        if letter in steps:
            steps[letter](frame)
        elif letter.isspace():
            self._end_word(frame)
            self._take(word=False)
        else:
            self._take()

    def _escape(self, frame: Context) -> None:
        if self._at + 1 in self._blocks:
            self._refuse("a backslash stands right before the value: leave it out, or write \\\\")
        if self._next_is("\\\n"):
            self._take(2, word=False)
            return
        frame.quoted = True
        self._take(2)

    def _open_quote(self, frame: Context) -> None:
        frame.quoted, frame.word = True, frame.word or ""
        is_single = self._next_is("'")
        start = self._at
        self._take(word=False)
        self._nest(Context(ContextKind.SINGLE if is_single else ContextKind.DOUBLE, start))

    def _hash(self, frame: Context) -> None:
        if frame.word is not None:
            self._take()
            return
        while self._at < len(self._text) and self._text[self._at] != "\n":
            if self._text[self._at] == "`" and self._is_in(ContextKind.BACKTICKS):
                return
            if block := self._blocks.get(self._at):
                self.pieces.append(" ".join(self._text[block.start : block.end].splitlines()))
                self._at = block.end
            else:
                self._take(word=False)

    def _redirect(self, frame: Context) -> None:
        if (
            self._next_is("<<")
            and not self._next_is("<<<")
            and not any(one.formula for one in self._stack)
        ):
            self._here(frame)
            return
        self._end_word(frame)
        start = self._at
        while (
            self._at < len(self._text)
            and self._text[self._at] in "<>&|"
            and self._at not in self._blocks
        ):
            self._take(word=False)
        frame.doubled = "&" in self._text[start : self._at]
        frame.target = not self._next_is("(")

    def _operator(self, frame: Context) -> None:
        sign = self._text[self._at]
        if self._next_is("&>"):
            self._end_word(frame)
            self._take(word=False)
            return
        is_pipe = sign == "|" and not self._next_is("||")
        self._end_command(frame, piped=is_pipe)
        frame = self._stack[-1]
        if (
            frame.kind is ContextKind.CASE
            and sign == ";"
            and self._text[self._at + 1 : self._at + 2] in {";", "&"}
        ):
            frame.pattern = True
        doubled = self._text[self._at + 1 : self._at + 2] == sign
        self._take(2 if doubled else 1, word=False)

    def _open(self, frame: Context) -> None:
        is_formula = self._next_is("((") and not frame.words and frame.word is None
        self._end_word(frame)
        start = self._at
        self._take(word=False)
        if frame.kind is not ContextKind.CASE or frame.pattern is False:
            self._nest(Context(ContextKind.PARENTHESES, start, formula=is_formula))

    def _close(self, frame: Context) -> None:
        self._end_command(frame)
        frame = self._stack[-1]
        self._take(word=False)
        if frame.kind is ContextKind.CASE:
            frame.pattern = False
        elif frame.kind in {ContextKind.PARENTHESES, ContextKind.SUBSTITUTION}:
            self._pop()

    def _pop(self) -> None:
        frame = self._stack.pop()
        if owner := self._owner():
            owner.own += frame.passed
            if frame.kind is ContextKind.PARENTHESES:
                # `f()` is the beginning of a function, and what follows is a command.
                owner.words = [] if self._text[frame.start : self._at] == "()" else ["()"]

    def _newline(self, frame: Context) -> None:
        self._end_command(frame)
        self._take(word=False)
        if self._pending:
            if any(here.level != self._level() for here in self._pending):
                self._refuse(
                    "a here-document begins in one $( ) and goes on in another: "
                    "give it lines of its own"
                )
            self._enter_here()

    def _quoted(self, frame: Context) -> None:
        limit = frame.here.end if frame.here else len(self._text)
        if run := _RUNS[frame.kind].match(self._text, self._at, limit):
            self._take(len(run[0]))
            return
        letter = self._text[self._at]
        if letter == "{":
            self._take()
        elif frame.kind in {ContextKind.SINGLE, ContextKind.DOLLAR_SINGLE}:
            self._in_single(letter)
        elif letter in "\\$`":
            {"\\": self._escape, "$": self._dollar, "`": self._backtick}[letter](frame)
        elif frame.kind is ContextKind.FORMULA:
            self._in_formula(frame, letter)
        elif frame.kind is ContextKind.BRACES and letter != "}":
            self._in_braces(letter)
        else:
            self._stack.pop()
            self._take(word=letter != '"')

    def _in_braces(self, letter: str) -> None:
        if letter == '"':
            self._push(ContextKind.DOUBLE, 1)
        elif self._stack[-2].kind in CODE:
            self._push(ContextKind.SINGLE, 1)
        else:
            self._take()  # inside double quotes a single quote is an ordinary character

    def _in_single(self, letter: str) -> None:
        if letter == "`" and self._is_in(ContextKind.BACKTICKS):
            self._refuse("a backtick stands in single quotes within backticks: use $( )")
        if letter == "\\":
            self._refuse(
                "a backslash stands in $'...', which not every sh reads alike: "
                'use "..." beside values'
            )
        if letter == "'":
            self._stack.pop()
            self._take(word=False)
        else:
            self._take()

    def _in_formula(self, frame: Context, letter: str) -> None:
        frame.depth += 1 if letter == "(" else -1
        self._take()
        if frame.depth > 0:
            return
        if not self._next_is(")"):
            if frame.holds:
                self._refuse(
                    "$(( is not closed by )): write $( ( with a space if it is a command",
                    frame.start,
                )
            self._stack[-1] = Context(ContextKind.SUBSTITUTION, frame.start)
            return
        self._take()
        self._stack.pop()
        names = set(re.findall(r"[A-Za-z_]\w*", self._text[frame.start : self._at]))
        for name in sorted(names & self._assigned):
            self._warn(
                frame.start, f"{name} holds a value, which this formula reads as a formula too"
            )

    def _backtick(self, frame: Context) -> None:
        if not self._is_in(ContextKind.BACKTICKS):
            self._push(ContextKind.BACKTICKS, 1)
            return
        if frame.kind in CODE:
            self._end_command(frame)
        frame = self._stack[-1]
        if frame.kind is not ContextKind.BACKTICKS:
            self._refuse("backticks cross with other quotes: use $( )")
        if frame.holds and "\\" in self._text[frame.start : self._at]:
            self._refuse(
                "a backslash and a value stand in the same backticks: use $( )", frame.start
            )
        self._take(word=False)
        self._pop()

    def _dollar(self, frame: Context) -> None:
        if self._at + 1 in self._blocks:
            self._refuse("a $ stands right before the value: leave it out, or write \\$")
        following = self._text[self._at + 1 : self._at + 2]
        if self._next_is("$(("):
            self._push(ContextKind.FORMULA, 3).depth = 1
        elif following == "(":
            self._push(ContextKind.SUBSTITUTION, 2)
        elif following == "{":
            self._push(ContextKind.BRACES, 2)
        elif following == "[":
            self._refuse("$[ ] is not known to every sh: use $(( )) beside values")
        elif following == "'" and frame.kind in CODE:
            self._push(ContextKind.DOLLAR_SINGLE, 2)
        else:
            self._take(2 if following and following in _SPECIAL_PARAMETER else 1)

    # --- here-documents ---------------------------------------------------------------------------

    def _here(self, frame: Context) -> None:
        self._end_word(frame)
        if self._is_in(ContextKind.BACKTICKS):
            self._refuse("a here-document can't stand in backticks beside values: use $( )")
        if len(self._pending) > _MAX_PENDING:
            self._refuse("too many here-documents begin on one line")
        tabs = self._next_is("<<-")
        self._take(3 if tabs else 2, word=False)
        found = _HERE_WORD.match(self._text, self._at)
        if found is None or any(found.start() <= at < found.end() for at in self._blocks):
            self._refuse(
                "a here-document needs a word that ends it, and a value can't be that word"
            )
        word = re.sub(r"\\(.)|['\"]", r"\1", found[1])
        self.pieces += [found[0][: -len(found[1])], found[1]]
        self._at = found.end()
        quoted = word != found[1]
        self._pending.append(
            HereDocument(len(self.pieces) - 1, word, quoted, tabs, self._level(), frame.words)
        )

    def _enter_here(self) -> None:
        """Begin the body of the next here-document.

        Its end is found before anything in it is read.
        """
        here = self._pending.pop(0)
        here.end, here.after = self._find_end(here)
        if here.quoted:
            self._quoted_here(here)
            self._leave_here(here)
            return
        self._nest(Context(ContextKind.HERE, self._at, here=here))

    def _find_end(self, here: HereDocument) -> tuple[int, int]:
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
        """Return the end of the line; a line break inside a block does not end it."""
        at = start
        while at < len(self._text) and self._text[at] != "\n":
            block = self._blocks.get(at)
            at = block.end if block else at + 1
        return at

    def _quoted_here(self, here: HereDocument) -> None:
        """Take the body of a quoted here-document.

        If it has a value, it becomes an unquoted one with the same text.
        """
        blocks = [block for at, block in self._blocks.items() if self._at <= at < here.end]
        if not blocks:
            self._take(here.end - self._at, word=False)
            return
        if not re.fullmatch(r"[\w.-]+", here.word):
            self._refuse(
                "a here-document with a value in it needs a word of letters to end it, "
                "such as 'EOF'"
            )
        self.pieces[here.piece] = here.word
        self._nest(Context(ContextKind.HERE, self._at, here=here))
        for block in blocks:
            self._take_escaped(block.start)
            self._block(block)
            if isinstance(slot := self.pieces[-1], ValueSlot) and slot.form is ValueForm.RAW:
                self._refuse("raw can't stand in a quoted here-document: leave it out", block.start)
        self._take_escaped(here.end)
        self._stack.pop()

    def _take_escaped(self, end: int) -> None:
        self.pieces.append(re.sub(r"[\\$`]", r"\\\g<0>", self._text[self._at : end]))
        self._at = end

    def _leave_here(self, here: HereDocument) -> None:
        if self._stack[-1].here is here:
            self._stack.pop()
        self._take(here.after - self._at, word=False)
        if self._pending and self._at < len(self._text):
            self._take(word=False)
            self._enter_here()
