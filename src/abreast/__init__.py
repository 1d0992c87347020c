"""abreast runs many calls side by side: bounded, durable, reproducible.

Given the same replies, concurrency changes only the time, never the answer.

    async with abreast.open_run("summaries", store="runs.db") as run:
        async for outcome in run.map(summarise, documents, width=16):
            print(outcome.key, outcome.value if outcome.ok else outcome.error)

    for outcome in abreast.map(summarise, documents, width=16):     # the same without async
        ...
"""

from abreast.core.item import Item
from abreast.core.outcome import Cancelled, Done, Failed
from abreast.core.version import VERSION
from abreast.doors import map
from abreast.limits.budget import Budget
from abreast.limits.pool import Pool
from abreast.limits.rate import Rate
from abreast.limits.slots import Slots
from abreast.run.current import current
from abreast.run.retry import Retry
from abreast.wiring import open_run

__version__ = VERSION

__all__ = [
    "Budget", "Cancelled", "Done", "Failed", "Item", "Pool", "Rate", "Retry", "Slots", "current", "map", "open_run",
]  # fmt: skip
