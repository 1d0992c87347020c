"""Prefect: a task mapped over the items, its results persisted, on a thread pool as wide as asked.

Its own server.
"""
# mypy: disable-error-code="import-not-found,untyped-decorator"

import os
from typing import Any

from benchmarks.contenders.meter import Lap, Load, large, run


def play(load: Load, lap: Lap) -> list[object]:
    """Play W."""
    os.environ |= {
        "PREFECT_HOME": str(load.scratch.parent / "prefect"),
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    from prefect import flow, task
    from prefect.task_runners import ThreadPoolTaskRunner

    @task(persist_result=True)
    def one(index: int) -> dict[str, object]:
        return large(index)

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=load.width))
    def fan(count: int) -> list[Any]:
        return [future.result() for future in one.map(range(count))]

    with lap:
        return list(fan(load.n))


if __name__ == "__main__":
    run({"W": play}, package="prefect")
