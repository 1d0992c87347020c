"""`abreast models`: lists the lanes, their keys and limits, and fetches the embedded model."""

import sys
from typing import Any

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import FAILED, UsageError, tell
from abreast.cli.jobs.model_options import configured_lanes
from abreast.cli.terminal.tables import say, say_json, say_table
from abreast.core.errors import CallFailed
from abreast.models.embedded.weights import KNOWN, fetch, is_present
from abreast.models.lanes import LaneSettings, split_name
from abreast.models.port import full_name
from abreast.system.paths import cache_directory


@click.group("models", invoke_without_command=True)
@options.common
@click.pass_context
def command(context: click.Context, *, store: str | None, as_json: bool) -> None:  # noqa: ARG001 - of all commands
    """List the lanes that models are asked on: their address, key and limits.

    A model is named lane/model, such as openai/gpt-4o-mini or local/smollm2. Others are declared in
    abreast.toml:

    \b
      [lanes.mine]
      base_url = "http://127.0.0.1:8000/v1"
      api_key_env = "MY_KEY"
      width = 16
      rpm = 600
    """  # noqa: D301 - click wants the character itself
    if context.invoked_subcommand is not None:
        return
    rows = [
        _facts(lane)
        for lane in configured_lanes(Config.load()).values()
        if lane.name not in ("scripted", "replay")
    ]
    if as_json:
        for row in rows:
            say_json(row)
    else:
        head = ("LANE", "KEY", "WIDTH", "RPM", "TPM", "LEARNED", "WHERE")
        say_table(
            head,
            [[_cell_text(row, name.lower()) for name in head] for row in rows],
        )
        for row in rows:
            if row["refused"]:
                say(f"{row['lane']} learned from refusals: {row['refused']}")


@command.command("get")
@click.argument("name", metavar="MODEL", default="local/smollm2")
@options.quiet
@options.common
def get(*, name: str, quiet: bool, store: str | None, as_json: bool) -> int:  # noqa: ARG001 - of all commands
    """Fetch the weights of an embedded model into the cache, once.

    The default is local/smollm2. The download can be cut off and taken up again. What arrives is
    checked by its hash.
    """
    name = full_name(name)
    split_name(name, configured_lanes(Config.load()))
    if name not in KNOWN:
        raise UsageError(f"{name} is nothing to fetch; there is {', '.join(KNOWN)}")
    weights = KNOWN[name]
    before = is_present(weights)
    try:
        path = fetch(weights, progress=None if quiet or as_json else _progress_printer())
    except CallFailed as error:
        tell(str(error))
        return FAILED
    if as_json:
        say_json({"model": name, "path": str(path), "fetched": not before})
    elif not quiet:
        tell(f"{name} {'was here already' if before else 'is here'}: {path}")
    return 0


def _progress_printer() -> Any:  # noqa: ANN401 - a callback of the fetch
    """A callback that shows progress on one line of a terminal, elsewhere a line per stage."""
    live, last_stage = sys.stderr.isatty(), [""]

    def show(done: int, total: int, stage: str) -> None:
        if live:
            end = "\n" if done >= total else ""
            sys.stderr.write(f"\r\x1b[2K{stage}: {done / 1e6:.0f} of {total / 1e6:.0f} MB{end}")
            sys.stderr.flush()
        elif stage != last_stage[0]:
            last_stage[0] = stage
            tell(stage)

    return show


def _facts(lane: LaneSettings) -> dict[str, Any]:
    return {
        "lane": lane.name,
        "kind": lane.protocol,
        "key": _key(lane),
        "width": lane.width,
        "adaptive": lane.adaptive,
        "shared": lane.shared,
        "budget": lane.budget,
        "rpm": lane.rpm,
        "tpm": lane.tpm,
        "learned": _learned_text(lane),
        "refused": _refused_text(lane),
        "where": _where(lane),
        "from": lane.place,
    }


def _learned_text(lane: LaneSettings) -> str | None:
    """The limits of the provider that calls on the lane have learned."""
    if not lane.adaptive:
        return None
    from abreast.run.calls.learned_limits import LearnedLimits

    found = LearnedLimits(lane.name, lane.address, lane.account).read()
    return found.spoken() if found is not None else None


def _refused_text(lane: LaneSettings) -> str | None:
    """What models on the lane refused, and is no longer sent to them."""
    from abreast.run.calls.learned_forms import LearnedForms

    return LearnedForms(lane.name, lane.base_url).spoken() or None


def _key(lane: LaneSettings) -> str:
    wanted = [lane.api_key_env or lane.api_key_file or ""] if lane.lacks_key else []
    if wanted := wanted + lane.variables:
        return f"missing: {', '.join(wanted)}"
    if lane.key:
        return "present"
    return "by a command" if lane.api_key_command else "not needed"


def _where(lane: LaneSettings) -> str:
    if lane.kind == "local":
        here = [name for name, weights in KNOWN.items() if is_present(weights)]
        return (
            f"this process; {', '.join(here)} in {cache_directory()}"
            if here
            else "this process; abreast models get"
        )
    return (_address_text(lane) if lane.has_models else None) or "no models; for steps of workflows"


def _address_text(lane: LaneSettings) -> str | None:
    """The address; as it is configured if variables that it needs are not set."""
    return lane.base_url if lane.variables else lane.address


def _cell_text(row: dict[str, Any], name: str) -> object:
    value = row[name]
    if name == "width" and (row["adaptive"] or row["shared"]):
        value = "found out" if row["adaptive"] else f"{row[name]}, shared"
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else value
