"""`abreast env`: prints the variables by which programs find a running `abreast serve`."""

import os
import shlex

import click

from abreast.cli.commands.serve import DEFAULT_PORT
from abreast.cli.errors import UsageError, refusing
from abreast.cli.terminal.tables import say, say_json
from abreast.jobs.files import units
from abreast.serve.address import find_address


@click.command("env")
@click.option(
    "--port",
    metavar="N",
    default=str(DEFAULT_PORT),
    help=f"The port of the server.  [{DEFAULT_PORT}]",
)
@click.option(
    "--client", metavar="NAME", default="", help="Count calls of this shell under this name."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def command(*, port: str, client: str, as_json: bool) -> None:
    """Print the variables by which programs find `abreast serve`, for a shell.

    \b
      eval "$(abreast env)"

    The key in them is the server's token: it is of use on this machine alone.
    """  # noqa: D301 - click wants the character itself
    with refusing("--port"):
        number = units.number(port, least=1)
    found = find_address(number)
    if found is None:
        raise UsageError(
            f"no `abreast serve` listens on port {number} here; start one, or name its port"
        )
    variables = found.variables(os.environ, client)
    if as_json:
        say_json(variables)
    else:
        for name, value in variables.items():
            say(f"export {name}={shlex.quote(value)}")
