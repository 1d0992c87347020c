"""A control group whose processes share a limit of memory, if this process may make one."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_NUMBERS: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A group beneath the one of this process; of version 1 or 2."""

    folder: Path

    @classmethod
    def make(cls, most: int) -> MemoryGroup | None:
        """A group for so many bytes; None if there can be none."""
        own = _own_folder()
        if own is None:
            return None
        folder = own / f"chaos-{os.getpid()}-{next(_NUMBERS)}"
        try:
            folder.mkdir()
            name = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
            (folder / name).write_text(str(most))
        except OSError:
            with suppress(OSError):
                folder.rmdir()
            return None
        return cls(folder)

    def add(self, pid: int) -> None:
        """Put a process into it; those that it starts later are in it too."""
        with suppress(OSError):
            (self.folder / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """How many processes were killed for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                for line in (self.folder / name).read_text().splitlines():
                    word, _, count = line.partition(" ")
                    if word == "oom_kill":
                        return int(count)
        return 0

    def remove(self) -> None:
        """Remove it; its processes must have ended."""
        with suppress(OSError):
            self.folder.rmdir()


def _own_folder() -> Path | None:
    """Where groups with a limit of memory can be made."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _first_of(_ROOT / "memory" / path.lstrip("/"), _ROOT / "memory")
        if not controllers and (_ROOT / "cgroup.controllers").exists():
            return _first_of(_ROOT / path.lstrip("/"))
    return None


def _first_of(*folders: Path) -> Path | None:
    return next((one for one in folders if (one / "cgroup.procs").exists()), None)
