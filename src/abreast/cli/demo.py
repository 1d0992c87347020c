"""`abreast demo`: a real run to look at, and what to try next."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from abreast.cli import options
from abreast.cli.children import Groups
from abreast.cli.command import CommandWork
from abreast.cli.config import Config
from abreast.cli.demo_crash import crash
from abreast.cli.errors import one_line
from abreast.cli.job import INPUT, ITEMS, KIND, MapJob
from abreast.cli.lanes import Chart
from abreast.cli.results import row_of, sentence_of
from abreast.cli.stores import StoreChoice
from abreast.cli.tables import say, say_json
from abreast.cli.watch import canvas_of, make_console, show
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import ITEM_SETTLED, Event
from abreast.core.outcome import Outcome
from abreast.executors.commands import Commands
from abreast.limits.slots import Slots
from abreast.run.retry import Retry
from abreast.store.port import Store
from abreast.wiring import open_run

if TYPE_CHECKING:
    from rich.console import Console

_NAME: Final = "demo"
_WIDTH: Final = 4
_LANES: Final = {"quick": 3, "slow": 1}
_SAYING: Final = (
    "Given the same replies, concurrency changes only the time, never the answer. "
    "A run that was killed and resumed returns the same again."
)
