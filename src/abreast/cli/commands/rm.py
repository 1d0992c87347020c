"""`abreast rm`: removes runs."""

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import tell
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say_json


@click.command("rm")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@options.dry_run
@options.quiet
@options.common
def command(
    *, runs: tuple[str, ...], dry_run: bool, quiet: bool, store: str | None, as_json: bool
) -> None:
    """Remove each RUN and all that is recorded of it. A run that is being driven is left alone."""
    with StoreChoice(Config.load(), store).existing() as opened:
        for run_id in {row.id: row for row in [find_run(opened, run) for run in runs]}:
            if not dry_run:
                opened.remove(run_id)
            if as_json:
                say_json({"run": run_id, "removed": not dry_run})
            elif not quiet:
                tell(f"{'would remove' if dry_run else 'removed'} {run_id}")
