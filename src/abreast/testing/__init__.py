"""For your tests, and ours: time that only you move, gates, a store in memory, crashes and storms on demand."""

from typing import TYPE_CHECKING

from abreast.models.scripted import Scripted as ScriptedModel
from abreast.store.memory import MemoryStore
from abreast.testing.clock import ManualClock
from abreast.testing.crash import crash_at
from abreast.testing.gate import Gate

if TYPE_CHECKING:
    from abreast.testing.storm.open import open_storm

__all__ = ["Gate", "ManualClock", "MemoryStore", "ScriptedModel", "crash_at", "open_storm"]


def __getattr__(name: str) -> object:
    # Only those who want a storm pay for its modules.
    if name == "open_storm":
        from abreast.testing.storm.open import open_storm

        return open_storm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
