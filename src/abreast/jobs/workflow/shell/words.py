"""The part of the scanner that splits a shell script into words and commands."""

from __future__ import annotations

import re
from typing import Final

from abreast.jobs.workflow.shell.commands import reads_input_as_code
from abreast.jobs.workflow.shell.scanner_state import MARK, Context, ContextKind, ScannerState

_BEFORE_COMMANDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done"}
)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)\+?=")


class Words(ScannerState):
    """Ends words and commands, and tracks which word is the command's name."""

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
