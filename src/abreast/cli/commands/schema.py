"""`abreast schema`: prints the JSON Schema of a job file, for completion and checks in editors."""

import json

import click

from abreast.cli import options
from abreast.cli.jobs.table import JOBS, find_name
from abreast.cli.terminal.tables import say


@click.command("schema")
@options.verbose
@click.argument("kind", type=click.Choice([name for name, job in JOBS.items() if job.schema]))
def command(*, kind: str) -> None:
    """Print the JSON Schema of a workflow's or a plan's file.

    \b
      abreast schema workflow > workflow.schema.json
      # and in the file's first line: # yaml-language-server: $schema=workflow.schema.json
    """  # noqa: D301 - click wants the character itself
    say(json.dumps(find_name(JOBS[kind].schema or "")(), indent=2))
