"""Read how much memory a contender takes: in all, and for each item in flight."""

import asyncio
import resource
import sys
from pathlib import Path


def rss_bytes() -> int:
    """Return the resident memory of this process now (where there is no /proc: its peak)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Flight:
    """Items that all wait until the last of them is in flight, when the memory is read."""

    def __init__(self, n: int) -> None:
        """Remember the memory before the first item; make it inside a running loop."""
        self._n = n
        self._before = rss_bytes()
        self._started = 0
        self._full = asyncio.Event()
        self.bytes_per_item = 0.0

    async def item(self, index: int) -> object:
        """Wait for all the others; the last one to come reads the memory."""
        self._started += 1
        if self._started == self._n:
            self.bytes_per_item = (rss_bytes() - self._before) / self._n
            self._full.set()
        await self._full.wait()
        return index
