"""Learned limits: what a governor learned about a provider's limits, stored on disk.

There is one small file for each lane, account and address. The governor starts from its contents;
headers and rejections correct them. A file that can't be read or parsed is ignored.
"""

import hashlib
import json
import logging
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final, cast

from abreast.core.clock import SYSTEM_CLOCK
from abreast.limits.governor.governor import Dimension, KnownLimits
from abreast.system.file_names import file_name
from abreast.system.paths import replace_file, state_directory

VERSION: Final = 1
_DIMENSIONS: Final = ("requests", "tokens", "input", "output")
_log = logging.getLogger("abreast")


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known about a lane, and when it was written, in seconds of the wall clock."""

    known: KnownLimits
    at: float

    def spoken(self) -> str:
        """A short text such as `600 rpm, 8 at once`."""
        words = {"requests": "rpm", "tokens": "tpm", "input": "input tpm", "output": "output tpm"}
        rates = [f"{rate:,.0f} {words[name]}" for name, rate in self.known.rates.items()]
        return ", ".join([*rates, *([f"{self.known.flying} at once"] if self.known.flying else [])])


class LearnedLimits:
    """The file with the learned limits of one lane."""

    def __init__(
        self, lane: str, address: str | None, key: str | None, folder: Path | None = None
    ) -> None:
        """`key` distinguishes accounts.

        Only a short digest of it is in the file's name, and nothing of it in the file.
        """
        account = hashlib.blake2b(
            f"{address}\0{key}".encode(), digest_size=6, person=b"abreast-lane"
        ).hexdigest()
        self.path = (folder or state_directory() / "lanes") / f"{file_name(lane)}-{account}.json"

    def read(self) -> Learned | None:
        """What was learned; None if there is no file or, with a warning, if it is not valid."""
        try:
            text = self.path.read_text("utf-8")
        except OSError:
            return None
        except UnicodeDecodeError:
            text = ""
        try:
            return _parse(json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            _log.warning("what was learned in %s is not used: %s", self.path, error)
            return None

    def write(self, known: KnownLimits) -> None:
        """Replace the file atomically; a failure is logged as a warning."""
        if known.flying is None and not known.rates:
            return
        facts = {
            "version": VERSION,
            "at": SYSTEM_CLOCK.wall(),
            "flying": known.flying,
            "rates": dict(known.rates),
        }
        try:
            replace_file(self.path, json.dumps(facts) + "\n")
        except OSError as error:
            _log.warning("what was learned can't be kept in %s: %s", self.path, error)


def _parse(facts: dict[str, Any]) -> Learned:
    if facts["version"] != VERSION:
        raise ValueError(f"it is of version {facts['version']}, and this is {VERSION}")
    flying = facts["flying"]
    if flying is not None and (type(flying) is not int or flying < 1):
        raise ValueError(f"{flying!r} can't be in flight")
    rates: dict[Dimension, float] = {}
    for name, rate in facts["rates"].items():
        if name not in _DIMENSIONS or not isfinite(rate) or rate <= 0:
            raise ValueError(f"{rate!r} is no rate of {name}")
        rates[cast("Dimension", name)] = float(rate)
    return Learned(KnownLimits(flying, rates), float(facts["at"]))
