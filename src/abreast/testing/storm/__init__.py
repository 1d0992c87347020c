"""A model provider that rages on this machine: exact limits, faults on demand, and a log of the truth.

async with open_storm(rpm=600, latency=0.5) as storm:
    ...     # calls to storm.url

`World` is the same without a socket, for virtual time. `python -m abreast.testing.storm --help` runs it from a shell.
"""

from abreast.testing.storm.door import Storm, open_storm
from abreast.testing.storm.faults import FAULTS, Fault
from abreast.testing.storm.ledger import Entry, Stats
from abreast.testing.storm.process import StormProcess, start_process
from abreast.testing.storm.settings import Settings, Step
from abreast.testing.storm.world import Request, Verdict, World

__all__ = [
    "FAULTS",
    "Entry",
    "Fault",
    "Request",
    "Settings",
    "Stats",
    "Step",
    "Storm",
    "StormProcess",
    "Verdict",
    "World",
    "open_storm",
    "start_process",
]
