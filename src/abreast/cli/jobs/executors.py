"""`--executor`: where the work of a job is done."""

from abreast.cli.errors import UsageError
from abreast.core.errors import AbreastError


def check_executor(name: str) -> None:
    """Connect to the cluster, if the executor has one; `UsageError` if that can't be."""
    if name in {"local", "process"}:
        return
    from abreast.executors.names import connect_executor

    try:
        connect_executor(name)
    except (ValueError, AbreastError) as error:
        raise UsageError(f"--executor: {error}") from None
