"""What has to be equal on all machines of a cluster: Python, abreast and its code."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from functools import cache
from pathlib import Path

from abreast.core.version import VERSION
from abreast.executors.ray.protocol import NodeFacts
from abreast.executors.sources import NodeDiffers

_PACKAGE = Path(__file__).parents[2]


def node_facts(node: str = "") -> NodeFacts:
    """The facts of this process; `node` is Ray's name for the machine."""
    return NodeFacts(
        platform.python_version(), VERSION, _code_digest(), socket.gethostname(), node, os.getpid()
    )


def check_facts(here: NodeFacts, there: NodeFacts) -> None:
    """Raise `NodeDiffers` if work can't travel between two machines."""
    for name, ours, theirs in (
        ("Python", here.python, there.python),
        ("abreast", here.abreast, there.abreast),
    ):
        if ours != theirs:
            raise NodeDiffers(
                f"the node {there.host} has {name} {theirs}, and the driver has {ours}: "
                "install the same version on both"
            )
    if here.code != there.code:
        raise NodeDiffers(
            f"the node {there.host} has another state of abreast {there.abreast} than the driver: "
            "install the same one on both"
        )


@cache
def _code_digest() -> str:
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        found.update(path.relative_to(_PACKAGE).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()
