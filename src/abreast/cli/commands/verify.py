"""`abreast verify`: checks whether one patch behaves as before and is faster."""

from typing import Any

import click

from abreast.cli.commands.optimize import candidate_options


@click.command("verify")
@click.option(
    "--target", metavar="FILE::FUNCTION", required=True, help="The function that it makes faster."
)
@candidate_options
@click.argument("patch", metavar="PATCH")
def command(*, patch: str, target: str, **given: Any) -> int:
    """Say whether PATCH, a patch or a Python file, does what the code did before, and is faster.

    The exit code is 0 only if it behaves the same and is faster; with --behaviour-only, if it
    behaves the same. Your files are not touched.

    \b
      abreast verify faster.patch --target pkg/words.py::top --tests tests/test_words.py
      abreast verify tidy.patch --target pkg/words.py::top --tests tests --behaviour-only
    """  # noqa: D301 - click wants the character itself
    from abreast.cli.jobs.candidates.driver import drive_candidates

    return drive_candidates({"target": target, "patch": patch}, "verify", given)
