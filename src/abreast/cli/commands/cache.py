"""`abreast cache`: lists and clears the cached replies."""

import math

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import refusing, tell
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.tables import iso_time, local_time, say_json, say_table
from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.files import units


@click.group("cache", invoke_without_command=True)
@options.common
@click.pass_context
def command(context: click.Context, *, store: str | None, as_json: bool) -> None:
    """List the replies that `--cache` has kept, by model; `abreast cache clear` forgets them."""
    if context.invoked_subcommand is not None:
        return
    with StoreChoice(Config.load(), store).look() as opened:
        kept = [] if opened is None else opened.replies()
    if as_json:
        for one in kept:
            say_json(
                {
                    "model": one.model,
                    "replies": one.count,
                    "characters": one.characters,
                    "oldest": iso_time(one.oldest),
                    "newest": iso_time(one.newest),
                }
            )
    else:
        rows = [
            (
                one.model,
                one.count,
                one.characters,
                local_time(one.oldest),
                local_time(one.newest),
            )
            for one in kept
        ]
        say_table(("MODEL", "REPLIES", "CHARACTERS", "OLDEST", "NEWEST"), rows)


@command.command("clear")
@click.option("--model", "-m", metavar="NAME", help="Only the replies of this model.")
@click.option(
    "--older-than", metavar="TIME", help="Only those kept longer ago than this: 30d, 12h."
)
@options.quiet
@options.common
def clear(
    *, model: str | None, older_than: str | None, quiet: bool, store: str | None, as_json: bool
) -> None:
    """Forget replies; all of them, unless options select some."""
    with refusing("--older-than"):
        before = (
            math.inf if older_than is None else SYSTEM_CLOCK.wall() - units.duration(older_than)
        )
    with StoreChoice(Config.load(), store).look() as opened:
        gone = 0 if opened is None else opened.forget_replies(before, model)
    if as_json:
        say_json({"forgotten": gone})
    elif not quiet:
        tell(f"forgot {gone} replies")
