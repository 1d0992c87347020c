"""For your tests, and ours: time that only you move, gates that hold items, a store in memory, crashes on demand."""

from abreast.store.memory import MemoryStore
from abreast.testing.clock import ManualClock
from abreast.testing.crash import crash_at
from abreast.testing.gate import Gate

__all__ = ["Gate", "ManualClock", "MemoryStore", "crash_at"]
