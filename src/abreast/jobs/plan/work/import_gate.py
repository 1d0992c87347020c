"""Static checks after a merge: subplans that are right by themselves may not fit together.

    faults = ImportGate(snapshots).faults(merged.tree, paths)   # syntax errors, unresolved imports
    leaves = await blame(changes, breaks)       # the fewest changes that break it: one, or a pair

Only new faults count: one that the source tree has already is not a subplan's. Nothing is run to
find these; commands that a user gives are run by `checks.py`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.languages.python_modules import Modules
from abreast.jobs.plan.decompose.module_facts import Module, ModuleFacts, read_module
from abreast.worktrees.merge.snapshots import LINK, Snapshots

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ImportFault:
    """A fault in a file; `text` has no line number, because lines move."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class BlamedFault:
    """A fault, and the leaves that cause it: one, or several together."""

    fault: ImportFault
    leaves: tuple[str, ...]

    def __str__(self) -> str:
        several = " together; none of them does it alone" if len(self.leaves) > 1 else ""
        return f"{self.fault}, by {' and '.join(self.leaves)}{several}"


@dataclass(frozen=True, slots=True)
class ImportGate:
    """Checks trees of one object database; each content is parsed once."""

    snapshots: Snapshots
    _modules: dict[str, Module] = field(default_factory=dict)

    def faults(self, tree: str, paths: Iterable[str]) -> frozenset[ImportFault]:
        """The faults of some files of a tree: syntax errors, and imports that do not resolve."""
        entries = self.snapshots.entries(tree)
        blobs = {
            path: entry.blob
            for path, entry in entries.items()
            if path.endswith(".py") and entry.mode != LINK
        }
        wanted = [path for path in sorted(set(paths)) if path in blobs]
        self._read(blobs[path] for path in wanted)
        modules = Modules(sorted(blobs), entries)
        modules.name_root(each for path in wanted for each in self._modules[blobs[path]].imports)

        def module_at(path: str) -> Module:
            self._read([blobs[path]])
            return self._modules[blobs[path]]

        facts = ModuleFacts(modules, module_at)
        found: set[ImportFault] = set()
        for path in wanted:
            module = self._modules[blobs[path]]
            if module.fault is not None:
                found.add(ImportFault(path, f"does not compile ({module.fault})"))
            found.update(ImportFault(path, text) for text in facts.unresolved(path, module))
        return frozenset(found)

    def _read(self, blobs: Iterable[str]) -> None:
        new = [blob for blob in blobs if blob not in self._modules]
        for blob, content in (self.snapshots.read_many(new) if new else {}).items():
            self._modules[blob] = read_module(content)


def importers(imports: Imports, changed: Iterable[str], *, all_of_them: bool = False) -> set[str]:
    """The changed files and the files that import one, with `all_of_them` also through others.

    A file that an import only passes through counts: it may pass the name on no more.
    """
    by: dict[str, list[str]] = {}
    for edges in (imports.edges, imports.through):
        for path, targets in edges.items():
            for to in targets:
                by.setdefault(to, []).append(path)
    found = set(changed)
    waiting = list(found)
    while waiting:
        for path in by.get(waiting.pop(), ()):
            if path not in found:
                found.add(path)
                if all_of_them:
                    waiting.append(path)
    return found


async def blame(
    changes: Sequence[T], breaks: Callable[[Sequence[T]], Awaitable[bool]]
) -> tuple[T, ...]:
    """The fewest of these changes that break something, in their order.

    Empty if it breaks without any. `breaks` says whether some of the changes, in their order, break
    it; it must be true of all of them. The search is by bisection: for a pair among hundreds it
    calls `breaks` some twenty times. It assumes that more changes do not repair what fewer broke.
    """
    guilty: list[int] = []
    end = len(changes)
    while not await breaks([changes[place] for place in sorted(guilty)]):
        low, high = 0, end  # with the first `high` it breaks; with the first `low` it may not
        while high - low > 1:
            middle = (low + high) // 2
            if await breaks([changes[place] for place in sorted({*range(middle), *guilty})]):
                high = middle
            else:
                low = middle
        if high == 0:
            break
        guilty.append(high - 1)
        end = high - 1
    return tuple(changes[place] for place in sorted(guilty))
