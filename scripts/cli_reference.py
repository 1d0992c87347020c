"""Write docs/cli.md from the help of every command; with --check only compare it."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from abreast.assembly.process_groups import RUN_VARIABLE
from abreast.cli import errors
from abreast.cli.config import SETTINGS, ConfigSetting
from abreast.cli.main import cli

DOCUMENT = Path("docs/cli.md")
WIDTH = 88  # columns of help, whatever the terminal

_OPENING = """\
# Command line

<!-- Written by scripts/cli_reference.py (`make reference`); `make check` compares it. -->

Results go to stdout, everything else to stderr. `--json` prints one object, or one per line. A run
is named by its id (`map-3`), by its name (then the newest run of that name is meant), or by `last`.
"""

_CODES: tuple[tuple[int, str], ...] = (
    (errors.DONE, "done"),
    (errors.FAILED, "some items failed, or something could not be done"),
    (errors.USAGE, "bad usage, or input that can't be used"),
    (errors.SPENT, "a budget is spent; the run can go on with a larger one"),
    (errors.CANCELLED, "the run was cancelled by `abreast cancel`"),
    (
        errors.INTERRUPTED,
        "interrupted by Ctrl-C; the run can go on (143 after SIGTERM, 129 after SIGHUP)",
    ),
    (errors.PIPE_CLOSED, "the reader of the output has gone, as `head` does"),
)

_MEANINGS: dict[str, str] = {
    "store": "where runs are recorded; a path in a file counts from that file's directory",
    "width": "how many run at once",
    "retries": "further attempts of a failing item",
    "timeout": "the time that an attempt may take",
    "budget": "what a run may use up",
    "seed": "the run's seed; drawn if there is none",
    "keep": "how much is kept of what an item writes to stdout, and to stderr",
    "patience": "seconds to wait for a store that another process has locked (no flag)",
    "model": "the model that is asked if none is named",
}

_PLACEHOLDERS: tuple[tuple[str, str], ...] = (
    ("{}", "the item: a line, or with `--jsonl` the whole value"),
    ("{.field}", "a field of a JSON item; `{.user.name}` and `{.tags.0}` reach further"),
    ("{#}", "the item's number, from 1"),
    ("{key}", "the item's key"),
    ("{attempt}", "the number of the attempt, from 1"),
    ("{seed}", "the item's own seed: the same in every run with the run's seed"),
    ("{.}", "of a path: all but its extension"),
    ("{/}", "of a path: its name"),
    ("{//}", "of a path: its directory"),
    ("{/.}", "of a path: its name without extension"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or check it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the page is out of date"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the project's root",
    )
    given = parser.parse_args(argv)
    page: Path = given.root / DOCUMENT
    text = reference()
    if not given.check:
        page.write_text(text, encoding="utf-8")
        return 0
    there = page.read_text("utf-8") if page.exists() else ""
    if there == text:
        return 0
    before, after = there.splitlines(), text.splitlines()
    changes = difflib.unified_diff(before, after, str(DOCUMENT), "as the help says", lineterm="")
    sys.stderr.write(
        "\n".join(changes) + f"\n{DOCUMENT} is out of date; write it again with: make reference\n"
    )
    return 1


def reference() -> str:
    """The whole page."""
    parts = [_OPENING]
    parts += (
        f"## {name}\n\n```text\n{text}\n```\n" for name, text in each_help(cli, "abreast", None)
    )
    parts += (_placeholders(), _exit_codes(), _settings())
    return "\n".join(parts)


def each_help(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    """The help of a command and of all beneath it, in the order in which help lists them."""
    # The second width is the widest that a command may ask for itself.
    context = click.Context(
        command,
        parent,
        name.rpartition(" ")[2],
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    with context.scope(cleanup=False):
        yield name, "\n".join(line.rstrip() for line in context.get_help().splitlines())
        if isinstance(command, click.Group):
            for beneath in command.list_commands(context):
                found = command.get_command(context, beneath)
                if found is not None and not found.hidden:
                    yield from each_help(found, f"{name} {beneath}", context)


def _exit_codes() -> str:
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in _CODES)
    return f"## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}"


def _settings() -> str:
    rows = "".join(
        f"| `{each.name}` | `{each.variable}` | {_default(each)} | {_MEANINGS[each.name]} |\n"
        for each in SETTINGS
    )
    return (
        "## Settings\n\nA flag wins over the environment, that over `abreast.toml`, that over\n"
        "`[tool.abreast]` in `pyproject.toml`, that over the default. `abreast doctor --config`\n"
        "shows where each value comes from.\n\n"
        f"| in a file | in the environment | default | is |\n|---|---|---|---|\n{rows}"
    )


def _default(setting: ConfigSetting[Any]) -> str:
    if setting.name == "store":
        return "`.abreast/abreast.db` of the project"
    if setting.name == "keep":
        return f"{setting.default >> 20} MiB"
    if isinstance(setting.default, str):
        return f"`{setting.default}`"
    return "none" if setting.default is None else f"{setting.default:g}"


def _placeholders() -> str:
    rows = "".join(f"| `{mark}` | {meaning} |\n" for mark, meaning in _PLACEHOLDERS)
    return (
        "## Placeholders\n\n"
        "In the arguments of a command, and in `--key` those that name the item.\n"
        "A value is one argument, whatever is in it. Any other braces stand for themselves.\n\n"
        f"| placeholder | is |\n|---|---|\n{rows}\n"
        f"A command finds the id of its run in its environment, as `{RUN_VARIABLE}`.\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
