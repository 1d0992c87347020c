"""Reads snapshots from bytes, as a process reads those of another one."""

import json

from abreast.jobs.candidates.values.snapshot import from_plain


def unpack(data):
    """Return the snapshot in what `pack` wrote."""
    return from_plain(json.loads(data))
