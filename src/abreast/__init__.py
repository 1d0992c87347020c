"""abreast runs many calls side by side: bounded, durable, reproducible.

Given the same replies, concurrency changes only the time, never the answer.

    async with abreast.open_run("summaries", store="runs.db") as run:
        async for outcome in run.map(summarise, documents, width=16):
            print(outcome.key, outcome.value if outcome.ok else outcome.error)

    for outcome in abreast.map(summarise, documents, width=16):     # the same without async
        ...
"""

from importlib import import_module
from typing import TYPE_CHECKING

from abreast.core.version import VERSION

if TYPE_CHECKING:
    from abreast.assembly.names import open_model, open_run
    from abreast.assembly.plan_report import PlanReport
    from abreast.assembly.verbs.optimize import optimize
    from abreast.assembly.verbs.plan import plan
    from abreast.assembly.verbs.sample import plan_sample, sample
    from abreast.assembly.verbs.workflow import workflow
    from abreast.core.item import Item
    from abreast.core.outcome import Cancelled, Done, Failed
    from abreast.jobs.candidates.author import ProposalTask
    from abreast.jobs.candidates.report import OptimizeResult
    from abreast.jobs.plan.work.assignment import Assignment
    from abreast.jobs.sample import checks, strategies
    from abreast.jobs.sample.draw_context import current_draw
    from abreast.limits.budget import Budget
    from abreast.limits.pool import Pool
    from abreast.limits.rate import Rate
    from abreast.limits.slots import Slots
    from abreast.run.current import current
    from abreast.run.retry import Retry
    from abreast.sync import map, sample_sync

__version__ = VERSION

__all__ = [
    "Assignment",
    "Budget",
    "Cancelled",
    "Done",
    "Failed",
    "Item",
    "OptimizeResult",
    "PlanReport",
    "Pool",
    "ProposalTask",
    "Rate",
    "Retry",
    "Slots",
    "checks",
    "current",
    "current_draw",
    "map",
    "open_model",
    "open_run",
    "optimize",
    "plan",
    "plan_sample",
    "sample",
    "sample_sync",
    "strategies",
    "workflow",
]

# Each name is imported at its first use, so that the command line's help and a worker's start do
# not import the rest.
_MODULE_OF = {
    "Assignment": "abreast.jobs.plan.work.assignment",
    "Budget": "abreast.limits.budget",
    "Cancelled": "abreast.core.outcome",
    "Done": "abreast.core.outcome",
    "Failed": "abreast.core.outcome",
    "Item": "abreast.core.item",
    "OptimizeResult": "abreast.jobs.candidates.report",
    "PlanReport": "abreast.assembly.plan_report",
    "Pool": "abreast.limits.pool",
    "ProposalTask": "abreast.jobs.candidates.author",
    "Rate": "abreast.limits.rate",
    "Retry": "abreast.run.retry",
    "Slots": "abreast.limits.slots",
    "current": "abreast.run.current",
    "current_draw": "abreast.jobs.sample.draw_context",
    "map": "abreast.sync",
    "open_model": "abreast.assembly.names",
    "open_run": "abreast.assembly.names",
    "optimize": "abreast.assembly.verbs.optimize",
    "plan": "abreast.assembly.verbs.plan",
    "plan_sample": "abreast.assembly.verbs.sample",
    "sample": "abreast.assembly.verbs.sample",
    "sample_sync": "abreast.sync",
    "workflow": "abreast.assembly.verbs.workflow",
}


def __getattr__(name: str) -> object:
    if name in ("checks", "strategies"):
        return import_module(f"abreast.jobs.sample.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'abreast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
