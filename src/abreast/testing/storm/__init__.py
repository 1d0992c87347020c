"""A local model provider for tests: exact limits, faults on demand, and a log of every request.

As an example:

    async with open_storm(rpm=600, latency=0.5) as storm:
        ...     # calls to storm.url

`World` is the same without a socket, for virtual time. `python -m abreast.testing.storm --help`
runs it from a shell.
"""

from abreast.testing.storm.faults import BATCH_FAULTS, FAULTS, StormFault
from abreast.testing.storm.log import BilledTokens, LogEntry, Stats
from abreast.testing.storm.open import Storm, open_storm
from abreast.testing.storm.process import StormProcess, start_process
from abreast.testing.storm.settings import Settings, SettingsStep
from abreast.testing.storm.world import StormVerdict, World, WorldRequest

__all__ = [
    "BATCH_FAULTS",
    "FAULTS",
    "BilledTokens",
    "LogEntry",
    "Settings",
    "SettingsStep",
    "Stats",
    "Storm",
    "StormFault",
    "StormProcess",
    "StormVerdict",
    "World",
    "WorldRequest",
    "open_storm",
    "start_process",
]
