"""Which variables of the environment go with work to another machine."""

import os
import re
from collections.abc import Mapping
from typing import Final

NODE_VARIABLES: Final = (
    "ABREAST_AGENT",
    "ABREAST_CACHE",
    "CUDA_VISIBLE_DEVICES",
    "HOSTNAME",
    "NVIDIA_VISIBLE_DEVICES",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
)
"""Variables of the environment that are about a machine: work sees those of its node."""
# Variables of the driver's machine that mean nothing elsewhere, and keys of the cluster.
_NOT_SENT: Final = re.compile(r"RAY_.*|SSH_.*|" + "|".join(NODE_VARIABLES))


def sent_variables(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of the driver that work on another machine gets."""
    return {name: value for name, value in given.items() if not _NOT_SENT.fullmatch(name)}


def with_node_variables(sent: Mapping[str, str]) -> dict[str, str]:
    """On a node: the variables that were sent, and those of the node."""
    own = {name: os.environ[name] for name in NODE_VARIABLES if name in os.environ}
    return {**own, **sent}
