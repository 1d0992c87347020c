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
    from abreast import errors, sync, testing
    from abreast.assembly.names import open_model, open_run
    from abreast.assembly.plan_report import PlanReport
    from abreast.assembly.verbs.matrix import matrix
    from abreast.assembly.verbs.optimize import optimize
    from abreast.assembly.verbs.plan import plan
    from abreast.assembly.verbs.sample import dry_run_sample, sample
    from abreast.assembly.verbs.workflow import workflow
    from abreast.core.events import Event
    from abreast.core.item import Item
    from abreast.core.outcome import Cancelled, Done, Failed, Outcome
    from abreast.core.usage import Usage
    from abreast.jobs.candidates.author import ProposalTask
    from abreast.jobs.candidates.report import OptimizeResult
    from abreast.jobs.matrix.result import StudyResult
    from abreast.jobs.matrix.tools import BlockingStrategyModel, StrategyModel
    from abreast.jobs.plan.work.assignment import Assignment
    from abreast.jobs.sample import checks, strategies
    from abreast.jobs.sample.draw_context import current_draw
    from abreast.jobs.sample.results import SampleAttempt, SampleResult
    from abreast.jobs.workflow.job import FlowResult
    from abreast.jobs.workflow.tools import StepContext
    from abreast.limits.budget import Budget
    from abreast.limits.pool import Pool
    from abreast.limits.rate import Rate
    from abreast.limits.shared.shared_limits import SharedLimits
    from abreast.limits.slots import Slots
    from abreast.models.port import Message, Model, Reply, Request
    from abreast.run.calls.model import Caller
    from abreast.run.current import CurrentItem, current
    from abreast.run.map.outcomes import Map
    from abreast.run.retry import Retry
    from abreast.run.run import Run
    from abreast.store.port import Store
    from abreast.sync import map

__version__ = VERSION

__all__ = [
    "Assignment",
    "BlockingStrategyModel",
    "Budget",
    "Caller",
    "Cancelled",
    "CurrentItem",
    "Done",
    "Event",
    "Failed",
    "FlowResult",
    "Item",
    "Map",
    "Message",
    "Model",
    "OptimizeResult",
    "Outcome",
    "PlanReport",
    "Pool",
    "ProposalTask",
    "Rate",
    "Reply",
    "Request",
    "Retry",
    "Run",
    "SampleAttempt",
    "SampleResult",
    "SharedLimits",
    "Slots",
    "StepContext",
    "Store",
    "StrategyModel",
    "StudyResult",
    "Usage",
    "checks",
    "current",
    "current_draw",
    "dry_run_sample",
    "errors",
    "map",
    "matrix",
    "open_model",
    "open_run",
    "optimize",
    "plan",
    "sample",
    "strategies",
    "sync",
    "testing",
    "workflow",
]

# Each name is imported at its first use, so that the command line's help and a worker's start do
# not import the rest.
_MODULE_OF = {
    "Assignment": "abreast.jobs.plan.work.assignment",
    "BlockingStrategyModel": "abreast.jobs.matrix.tools",
    "Budget": "abreast.limits.budget",
    "Caller": "abreast.run.calls.model",
    "Cancelled": "abreast.core.outcome",
    "CurrentItem": "abreast.run.current",
    "Done": "abreast.core.outcome",
    "Event": "abreast.core.events",
    "Failed": "abreast.core.outcome",
    "FlowResult": "abreast.jobs.workflow.job",
    "Item": "abreast.core.item",
    "Map": "abreast.run.map.outcomes",
    "Message": "abreast.models.port",
    "Model": "abreast.models.port",
    "OptimizeResult": "abreast.jobs.candidates.report",
    "Outcome": "abreast.core.outcome",
    "PlanReport": "abreast.assembly.plan_report",
    "Pool": "abreast.limits.pool",
    "ProposalTask": "abreast.jobs.candidates.author",
    "Rate": "abreast.limits.rate",
    "Reply": "abreast.models.port",
    "Request": "abreast.models.port",
    "Retry": "abreast.run.retry",
    "Run": "abreast.run.run",
    "SampleAttempt": "abreast.jobs.sample.results",
    "SampleResult": "abreast.jobs.sample.results",
    "SharedLimits": "abreast.limits.shared.shared_limits",
    "Slots": "abreast.limits.slots",
    "StepContext": "abreast.jobs.workflow.tools",
    "Store": "abreast.store.port",
    "StrategyModel": "abreast.jobs.matrix.tools",
    "StudyResult": "abreast.jobs.matrix.result",
    "Usage": "abreast.core.usage",
    "current": "abreast.run.current",
    "current_draw": "abreast.jobs.sample.draw_context",
    "dry_run_sample": "abreast.assembly.verbs.sample",
    "map": "abreast.sync",
    "matrix": "abreast.assembly.verbs.matrix",
    "open_model": "abreast.assembly.names",
    "open_run": "abreast.assembly.names",
    "optimize": "abreast.assembly.verbs.optimize",
    "plan": "abreast.assembly.verbs.plan",
    "sample": "abreast.assembly.verbs.sample",
    "workflow": "abreast.assembly.verbs.workflow",
}

# Names that are modules.
_MODULES = {
    "checks": "abreast.jobs.sample.checks",
    "errors": "abreast.errors",
    "strategies": "abreast.jobs.sample.strategies",
    "sync": "abreast.sync",
    "testing": "abreast.testing",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_MODULES[name])
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'abreast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
