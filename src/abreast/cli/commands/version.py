"""`abreast version`: prints the version."""

import platform
import sqlite3

import click

from abreast.cli import options
from abreast.cli.terminal.tables import say, say_json
from abreast.core.version import VERSION


@click.command("version")
@options.as_json
@options.verbose
def command(*, as_json: bool) -> None:
    """Print the version."""
    facts = {
        "abreast": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    say_json(facts) if as_json else say(f"abreast {VERSION}")
