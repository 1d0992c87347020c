"""`abreast completion`: prints the script that lets a shell complete abreast's commands."""

import click
from click.shell_completion import get_completion_class

from abreast.cli import options
from abreast.cli.errors import UsageError
from abreast.cli.terminal.tables import say, say_json

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", metavar="SHELL")
@options.as_json
@options.verbose
def command(*, shell: str, as_json: bool) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
      bash:  eval "$(abreast completion bash)"
      zsh:   eval "$(abreast completion zsh)"
      fish:  abreast completion fish | source
    """  # noqa: D301 - click wants the character itself
    found = get_completion_class(shell) if shell in SHELLS else None
    if found is None:
        raise UsageError(f"there is no completion for {shell!r}; there is for {', '.join(SHELLS)}")
    script = found(
        click.get_current_context().find_root().command, {}, "abreast", options.COMPLETION
    ).source()
    say_json({"shell": shell, "script": script}) if as_json else say(script)
