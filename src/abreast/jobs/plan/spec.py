"""A plan: a tree of nodes that divide the files of a repository, each with its reason."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from abreast.jobs.plan.errors import PlanInvalid

ROOT: Final = "root"
"""The id of the node that has all files."""
SUBPLANS: Final = "subplans"
"""The name of the map that runs the subplans."""
_ROUND_NAME: Final = re.compile(rf"{SUBPLANS}(?:-([2-9]|[1-9]\d+))?")


def round_name(number: int) -> str:
    """The name of the map that runs the subplans of a round."""
    return SUBPLANS if number == 1 else f"{SUBPLANS}-{number}"


def round_of(map_name: str) -> int | None:
    """The number of the round that a map runs; None if it is another map."""
    found = _ROUND_NAME.fullmatch(map_name)
    return None if found is None else int(found[1] or 1)


# Hexadecimal digits: with 48 bits, two of 10,000 nodes collide once in five million plans.
_DIGEST_DIGITS: Final = 12
_SLUG_CHARACTERS: Final = 24
_NOT_IN_SLUG: Final = re.compile(r"[^a-z0-9]+")


class Reason(StrEnum):
    """Why a leaf is not divided (the first five), or how an inner node is (the others)."""

    MAX_DEPTH = "max_depth"
    MIN_FILES = "min_files"
    NO_PROGRESS = "no_progress"
    FITS = "fits"
    GIVEN = "given"
    """A person or a model has put it together."""

    DIRECTORIES = "directories"
    IMPORTS = "imports"
    COMMUNITIES = "communities"
    NAMES = "names"


LEAF_REASONS: Final = frozenset(
    {Reason.MAX_DEPTH, Reason.MIN_FILES, Reason.NO_PROGRESS, Reason.FITS, Reason.GIVEN}
)


class NodeKind(StrEnum):
    """What the files of a node have in common."""

    DIRECTORY = "directory"
    """All files beneath a directory."""
    FILES = "files"
    """The files in a directory itself, not in those beneath it."""
    CLUSTER = "cluster"
    """Files that belong together, of one directory unless they are within bounds of tokens."""
    HUBS = "hubs"
    """Files of one directory that many others of it import; they get one common writer."""
    GROUP = "group"
    """Parts within bounds of tokens that are mostly in one directory."""
    PART = "part"
    """Files that a person or a model has put together."""


@dataclass(frozen=True, slots=True)
class Options:
    """How far to divide.

    A node of at most `min_files` files, or at `max_depth` (the root has 0), stays whole.
    `max_files` and `max_tokens` are a leaf's budget, none by default: a node within it stays whole,
    a node above it is divided wherever it can be. With `min_tokens`, parts are made by imports,
    across directories: each has at least so many tokens, where that is possible.
    """

    max_depth: int = 8
    min_files: int = 10
    max_files: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None

    def __post_init__(self) -> None:
        least = {"max_depth": 0, "min_files": 1, "max_files": 1, "max_tokens": 1, "min_tokens": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is None and name in {"max_files", "max_tokens", "min_tokens"}:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise PlanInvalid(
                    f"{name} is {value!r}: it must be a whole number of at least {low}"
                )
        if self.min_tokens is not None and 2 * self.min_tokens > (self.max_tokens or 0):
            raise PlanInvalid("min_tokens needs a max_tokens that is at least twice as large")

    @property
    def budgeted(self) -> bool:
        """Whether leaves have a budget."""
        return self.max_files is not None or self.max_tokens is not None

    def over(self, files: int, tokens: int) -> bool:
        """Whether that many files and tokens are above the budget."""
        return (self.max_files is not None and files > self.max_files) or (
            self.max_tokens is not None and tokens > self.max_tokens
        )


def node_id(*facts: str, slug: str | None = None) -> str:
    """A readable part and a digest of the node's facts.

    It has letters, digits and hyphens, so that it can be a branch or a path.
    """
    digest = hashlib.sha256("\0".join(facts).encode(errors="surrogatepass")).hexdigest()[
        :_DIGEST_DIGITS
    ]
    path = facts[1] if slug is None else slug
    short = _NOT_IN_SLUG.sub("-", "/".join(path.split("/")[-2:]).lower()).strip("-")
    return f"{short[-_SLUG_CHARACTERS:].strip('-') or 'top'}-{digest}"


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A part of the repository: `files` are all files beneath it, sorted.

    A leaf is a subplan, and owns its files.
    """

    id: str
    parent: str | None
    children: tuple[str, ...]
    depth: int
    files: tuple[str, ...]
    tokens: int
    reason: Reason
    over_budget: bool
    """Whether it is a leaf above the budget that could not be divided further."""
    kind: NodeKind
    scope: str
    """A readable name.

    `src/core/` is a directory, `src/core/*` the files in it, `src/core/{a.py, ..}` some of these.
    """
    instructions: str = ""
    """What this part is told, besides what all are told."""

    @property
    def leaf(self) -> bool:
        """Whether it is a subplan."""
        return not self.children


@dataclass(frozen=True, slots=True)
class Plan:
    """A tree of nodes, the root first and every node before its children.

    `steps` is the number of divisions that were tried.
    """

    nodes: tuple[PlanNode, ...]
    options: Options
    steps: int
    notes: tuple[str, ...] = ()
    """What was left out or could not be read."""
    left_out: tuple[str, ...] = ()
    """Files that belong to no leaf, and that none may write."""
    _by_id: dict[str, PlanNode] = field(init=False, repr=False, compare=False)
    _owners: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {node.id: node for node in self.nodes})
        object.__setattr__(
            self, "_owners", {path: leaf.id for leaf in self.leaves for path in leaf.files}
        )
        if len(self._by_id) != len(self.nodes):
            raise PlanInvalid("two nodes of the plan have the same id")

    @property
    def root(self) -> PlanNode:
        """The node of all files."""
        return self.nodes[0]

    @property
    def leaves(self) -> tuple[PlanNode, ...]:
        """The subplans, in the order of the tree, which is the order of their results."""
        return tuple(node for node in self.nodes if node.leaf)

    @property
    def max_depth_reached(self) -> int:
        """The depth of the deepest leaf."""
        return max(node.depth for node in self.nodes)

    def node(self, name: str) -> PlanNode:
        """The node of an id; raises `KeyError` if there is none."""
        return self._by_id[name]

    def children(self, node: PlanNode) -> Iterator[PlanNode]:
        """The children of a node."""
        return (self._by_id[child] for child in node.children)

    def walk(self) -> Iterator[PlanNode]:
        """All nodes, each before its children, and these in their order: as a tree is printed."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed([*self.children(node)])

    def owner(self, path: str) -> str | None:
        """The id of the leaf that has a file; None if no leaf has it."""
        return self._owners.get(path)
