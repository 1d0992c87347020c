"""Prompts on the terminal: for missing inputs, and for the decision at a gate."""

import sys
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Final

import click

from abreast.cli.errors import one_line
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.visible import visible
from abreast.executors.tasks import LocalExecutor
from abreast.jobs.workflow.spec import WorkflowInput
from abreast.jobs.workflow.tools import GateQuestion

_MAX_FILE_LINES: Final = 200  # of a file that a gate shows


def can_prompt() -> bool:
    """Whether stdin and stderr are terminals, so that a prompt can be answered."""
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stderr is not None
        and sys.stderr.isatty()
    )


def ask_for_input(one: WorkflowInput) -> str:
    """Prompt for the value of an input that was not given."""
    words = one.prompt or one.name
    choices = f" ({', '.join(map(str, one.enum))})" if one.enum else ""
    return str(click.prompt(f"{one_line(words)}{choices}", err=True, hide_input=one.secret))


def decide_on_terminal(
    line: LiveLine | None,
) -> Callable[[GateQuestion], Awaitable[str | None]]:
    """A function that prompts for a gate's decision in a thread; other steps go on."""

    async def decide(question: GateQuestion) -> str | None:
        if line is not None:
            line.end()
        bound = LocalExecutor().bind(_ask_on_terminal, 1)
        try:
            return await bound.async_call(question)
        finally:
            await bound.close(0.0)

    return decide


def _ask_on_terminal(question: GateQuestion) -> str:
    lines = [f"\n{one_line(question.step)}: {question.message}"]
    if question.show_file:
        lines += [f"  {text}" for text in _file_lines(question.show_file)]
    lines += [f"  [{number}] {option}" for number, option in enumerate(question.options, 1)]
    click.echo(visible("\n".join(lines)), err=True)
    while True:
        try:
            answer = input().strip()
        except EOFError:  # the terminal was closed: take the cautious answer
            return next(
                (one for one in question.options if one.lower() in ("reject", "abort")),
                question.options[-1],
            )
        if answer.isdecimal() and 1 <= int(answer) <= len(question.options):
            return question.options[int(answer) - 1]
        found = next((one for one in question.options if one.lower() == answer.lower()), None)
        if found is not None:
            return found
        click.echo(
            f"write a number from 1 to {len(question.options)}, or one of the words", err=True
        )


def _file_lines(path: str) -> list[str]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            lines = [one_line(text) for text in islice(file, _MAX_FILE_LINES + 1)]
    except (OSError, ValueError) as error:
        return [f"({path} can't be read: {one_line(str(error))})"]
    return [*lines[:_MAX_FILE_LINES], "..."] if len(lines) > _MAX_FILE_LINES else lines
