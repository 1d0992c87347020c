"""The part of the scanner for here-documents: where they end, and values in them."""

import re
from abc import ABC, abstractmethod
from typing import Final

from abreast.jobs.files.expressions import Block
from abreast.jobs.workflow.shell.scanner_state import (
    Context,
    ContextKind,
    HereDocument,
    ScannerState,
    ValueForm,
    ValueSlot,
)

_HERE_WORD: Final = re.compile(r"[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\[^\n]|[^\s;&|<>()'\"\\`])+)")
_MAX_PENDING: Final = 20  # here-documents that begin on one line


class HereDocuments(ScannerState, ABC):
    """Enters and leaves here-documents."""

    @abstractmethod
    def _block(self, block: Block) -> None:
        """Put a slot in place of a block."""

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
