"""The `abreast` command: imports only the subcommand called, and maps errors to exit codes."""

import gc
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from errno import EBADF, EDQUOT, EFBIG, EIO, ENAMETOOLONG, ENOSPC, EPIPE
from pathlib import Path
from typing import Final, NoReturn

import click
from click.shell_completion import shell_complete

from abreast.cli.errors import (
    FAILED,
    INTERRUPTED,
    PIPE_CLOSED,
    USAGE,
    UsageError,
    explain,
    os_error_text,
    tell,
    tell_unexpected,
)
from abreast.cli.options import COMPLETION, Root
from abreast.core.errors import AbreastError
from abreast.core.version import VERSION

# Each with the sentence that `abreast --help` shows, so that help imports none of the modules.
_COMMANDS: Final = {
    "map": "Run a command, call a function or ask a model, for every line of the input, "
    "side by side.",
    "ask": "Ask a model one question.",
    "sample": "Draw from a model, check and repair, until one draw passes.",
    "run": "Run a job file: a workflow, a sample, a matrix, candidates, a plan.",
    "matrix": "Run models x strategies x inputs x repeats; score, report, compare.",
    "optimize": "Try candidates for a faster function: the same behaviour, measured alone, "
    "as a patch.",
    "verify": "Say whether a patch behaves as before and is faster.",
    "plan": "Divide a repository into subplans, run them in worktrees, merge.",
    "serve": "Give the model calls of other programs lanes, budgets and a record.",
    "env": "Print the variables by which programs find `abreast serve`.",
    "runs": "List the runs.",
    "show": "Show a run, or one of its items.",
    "watch": "Watch a run as it goes.",
    "ui": "Show runs, lanes and items as a page in the browser.",
    "resume": "Go on with a run that did not end.",
    "retry": "Run the failed items of a run again.",
    "cancel": "Ask the driver of a run to stop.",
    "export": "Write the results of a run as JSON lines, CSV, Parquet or one page.",
    "rm": "Remove runs and all that is recorded of them.",
    "prune": "Remove old runs.",
    "store": "Check a store for damage, recover, back up and copy what it holds.",
    "models": "List the lanes of models, their keys and limits; fetch the embedded model.",
    "cache": "List and clear the replies that are kept for equal requests.",
    "doctor": "Say what is here, what is missing, and where each setting comes from.",
    "demo": "See it work.",
    "schema": "Print the JSON Schema of a job file, for editors.",
    "completion": "Print the script that lets a shell complete abreast's commands.",
    "version": "Print the version.",
}


_COMMANDS_FOLDER: Final = Path(__file__).with_name("commands")
_NAME_SHOWN: Final = 60  # characters of a name that is too long
_OUTPUT_ERRNOS: Final = (
    EPIPE,
    ENOSPC,
    EDQUOT,
    EFBIG,
    EIO,
    EBADF,
)  # an error that names a file is reported where that file was opened


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        """The commands whose modules exist."""
        return [name for name in _COMMANDS if (_COMMANDS_FOLDER / f"{name}.py").exists()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return the command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"abreast.cli.commands.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first; an error for an unknown one suggests a close name."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], names, 1)
            hint = f"did you mean {close[0]}?" if close else "`abreast --help` lists them"
            raise UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self.list_commands(ctx)])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, message="abreast %(version)s")
def cli() -> None:
    """Run many commands, calls and model requests side by side: bounded, durable, reproducible.

    Given the same replies, concurrency changes only the time, never the answer.
    """


def main() -> NoReturn:
    """Run the `abreast` command, and exit."""
    sys.argv[0] = "abreast"  # runs record it as the name of their driver, however it was started
    code = run(sys.argv[1:])
    # A last collection at exit would take a tenth as long as the whole start.
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; an error is printed as one sentence on stderr."""
    _reserve_standard_streams()
    warnings.showwarning = _print_warning
    root = Root()
    try:
        if completion := os.environ.get(COMPLETION):
            return shell_complete(cli, {}, "abreast", COMPLETION, completion)
        # Not `cli.main`, which has its own exit code for a closed pipe.
        with cli.make_context("abreast", list(arguments), obj=root) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except BaseException as error:  # noqa: BLE001 - every error is mapped to an exit code here
        return _exit_code_of(error, verbose=root.verbose)
    return result if isinstance(result, int) else 0


def _exit_code_of(error: BaseException, *, verbose: bool) -> int:
    if isinstance(error, OSError) and error.errno == ENAMETOOLONG:
        # A long text stands where a file is named: wherever that is looked for, it is not there.
        name = os.fsdecode(error.filename or "")
        error = UsageError(
            f"there is no file with a name as long as that of {name[:_NAME_SHOWN]}..."
        )
    if isinstance(error, (AbreastError, UsageError, click.ClickException)):
        sentence, code = _sentence_and_code(error)
        if sentence:
            tell(sentence)
        if verbose and error.__cause__ is not None:
            tell_unexpected(error.__cause__, verbose=True)
        return code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRNOS:
        # To /dev/null, so that the interpreter's flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno == EPIPE:
            return PIPE_CLOSED
        tell(f"the output can't be written: {os_error_text(error)}")
        return FAILED
    tell_unexpected(error, verbose=verbose)
    return FAILED


def _sentence_and_code(error: AbreastError | UsageError | click.ClickException) -> tuple[str, int]:
    if isinstance(error, AbreastError):
        return explain(error)
    return (
        (str(error), error.code)
        if isinstance(error, UsageError)
        else (_usage_sentence(error), USAGE)
    )


def _usage_sentence(error: click.ClickException) -> str:
    sentence = error.format_message().rstrip(".")
    sentence = sentence[:1].lower() + sentence[1:]
    where = (
        error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "abreast"
    )
    return f"{sentence}; see {where} --help"


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    tell(f"warning: {message}")


def _reserve_standard_streams() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr, and send each line at once.

    Otherwise a store could get the file descriptor 1, and output would overwrite it; and a pipe
    would get the address of a server, and what is done so far, only when all has ended.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
