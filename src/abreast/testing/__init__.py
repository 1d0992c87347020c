"""Tools for tests: a manual clock, gates, an in-memory store, crashes and a test provider."""

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
    # The modules of the storm are imported only when it is used.
    if name == "open_storm":
        from abreast.testing.storm.open import open_storm

        return open_storm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
