"""A request for a run: what the flags of all jobs share, read once."""

from collections.abc import Mapping
from typing import Any

from abreast.cli import options
from abreast.cli.config import SEED, Config
from abreast.cli.errors import UsageError, refusing
from abreast.cli.stores import LAST, StoreChoice
from abreast.core.frozen import record
from abreast.jobs.files import units
from abreast.run.map.options import check_name
from abreast.run.run import Resume
from abreast.store.port import RunRow, Store


@record(frozen=True, slots=True)
class OutputOptions:
    """--json, --quiet, --verbose."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False


@record(frozen=True, slots=True)
class RunRequest:
    """Where a run is recorded, what is printed, its name, and whether it is new or resumed."""

    choice: StoreChoice
    view: OutputOptions
    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    dry_run: bool = False
    check_only: bool = False
    resume: Resume = "never"
    run_id: str | None = None
    retry_keys: tuple[str, ...] = ()
    store: Store | None = None
    """The store if it is open already; None for the driver to open it."""
    wait: bool = False
    """Whether to wait for the end of an agent's usage limit."""

    @property
    def opened(self) -> Store:
        """The open store of a resume."""
        if self.store is None:
            raise RuntimeError("a run is resumed in an open store")
        return self.store


def new_request(config: Config, name: str, given: Mapping[str, Any]) -> RunRequest:
    """The request for a new run, from the flags of a command.

    Raises `UsageError` for a name that a run can't have.
    """
    if name == LAST:
        raise UsageError(f"--name: {LAST!r} stands for the newest run; choose another name")
    with refusing("--name"):
        check_name(name)
    return RunRequest(
        StoreChoice(config, given["store"]),
        output_options(given),
        name,
        seed=config.get(SEED, given["seed"]),
        tags=given["tags"],
        dry_run=bool(given.get("dry_run")),
        check_only=bool(given.get("check_only")),
        wait=bool(given.get("wait")),
    )


def check_wait(agent: str | None, *, wait: bool) -> None:
    """Raise `UsageError` for --wait without an agent."""
    if wait and agent is None:
        raise UsageError("--wait is for --agent: it waits for the end of an agent's limit")


def output_options(given: Mapping[str, Any]) -> OutputOptions:
    """The output options among a command's flags."""
    return OutputOptions(given["as_json"], given["quiet"], options.is_verbose())


def read_number(flag: str, given: object, *, least: int = 1) -> int | None:
    """The whole number of a flag; None if it isn't given, `UsageError` if it is none."""
    with refusing(flag):
        return None if given is None else units.number(given, least=least)


def recorded_facts(row: RunRow, key: str) -> dict[str, Any]:
    """The facts of a run's manifest under `key`; `UsageError` if another version wrote others."""
    facts: Any = row.manifest.get(key)
    if not isinstance(facts, dict):
        raise unknown_version(row)
    return facts


def unknown_version(row: RunRow) -> UsageError:
    """The error for a manifest that this version can't read."""
    return UsageError(
        f"{row.id} was made by another version of abreast, and this one doesn't know all of it"
    )
