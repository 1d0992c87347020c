"""Reads a job file: its text, its YAML nodes, and the flags of `abreast run`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from abreast.cli.errors import UsageError, os_error_text, refusing
from abreast.core.errors import WorkflowInvalid
from abreast.core.frozen import record
from abreast.jobs.files.problems import Problems
from abreast.jobs.files.yaml_nodes import YamlNode, read_yaml

MAX_FILE_BYTES: Final = 5 << 20


@record(frozen=True, slots=True)
class JobFile:
    """A job file, and the flags that were given with it."""

    file: str
    text: str
    node: YamlNode
    flags: Mapping[str, Any]

    def facts(self, key: str, needs: str) -> dict[str, Any]:
        """The mapping under a top-level key; `UsageError` with what it `needs` if it is none."""
        found = self.node.plain()[key]
        if not isinstance(found, dict):
            raise UsageError(f"{self.file}: {key} must be a mapping, with {needs} in it")
        return found


def read_text(file: str) -> str:
    """A job file's text; raises `UsageError` if it can't be read."""
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} can't be read ({os_error_text(error)})") from None
    if len(found) > MAX_FILE_BYTES:
        raise UsageError(
            f"{file} has more than {MAX_FILE_BYTES >> 20} MiB, which no job file needs"
        )
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8; convert it") from None


def read_node(text: str, file: str) -> YamlNode | None:
    """The file's mapping; None if it holds something else, `UsageError` if it is no YAML."""
    report = Problems(file)
    node = read_yaml(text, report)
    with refusing("", WorkflowInvalid):
        report.settled()
    return node if node is not None and node.kind == "mapping" else None
