"""Makes imports load the slot's files instead of those of the main tree they were copied from.

An editable install leads to the main tree, by a path or by a finder of its own. This finder asks
the others, and loads what they find there from the same place in the slot, if the slot has it.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import cast

# importlib.abc imports tempfile, zipfile and more, which nothing else here needs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader


Execute = Callable[[ModuleType, Callable[[], None]], None]
"""Is called with a module and what executes it."""


# By file of a module, which is asked for several times for some hundred modules: its real path. A
# warmed parent fills this in for the libraries, so that its forks need not ask the file system.
_real_files: dict[str, str] = {}


class Places:
    """The main tree, and the slot that mirrors it."""

    def __init__(self, top: str, slot: str, removed: Sequence[str] = ()) -> None:
        """`removed` are files of the main tree that a candidate removes: paths from its top."""
        self._top, self.slot = os.path.realpath(top), os.path.realpath(slot)
        self._removed = {os.path.join(self._top, one) for one in removed}

    def mirrored(self, path: str) -> str | None:
        """Return the same place in the slot, if `path` is in the main tree and the slot has it."""
        real = os.path.realpath(path)
        # The slot may be inside the main tree.
        if not (real + os.sep).startswith(self._top + os.sep) or self.holds(real):
            return None
        place = os.path.join(self.slot, os.path.relpath(real, self._top))
        return place if os.path.exists(place) else None

    def removes(self, path: str) -> bool:
        """Whether it is a file of the main tree that the candidate removes."""
        return bool(self._removed) and os.path.realpath(path) in self._removed

    def holds(self, path: str) -> bool:
        """Whether the path is in the slot."""
        return os.path.realpath(path).startswith(self.slot + os.sep)

    def belongs(self, path: str) -> bool:
        """Whether the path is a file of the project: in the slot, or one that it mirrors."""
        return self.holds(path) or self.mirrored(path) is not None

    def owns(self, module: ModuleType) -> bool:
        """Whether a module is from the slot."""
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            return False
        if file not in _real_files:
            _real_files[file] = os.path.realpath(file)
        return _real_files[file].startswith(self.slot + os.sep)

    def inside(self, path: str) -> str:
        """Return the path relative to the slot, if it is in the slot."""
        real = os.path.realpath(path)
        return os.path.relpath(real, self.slot) if self.holds(real) else real


def import_root(file: str) -> str:
    """Return the directory from which a file is imported: above all of its packages."""
    place = os.path.dirname(file)
    while os.path.exists(os.path.join(place, "__init__.py")):
        place = os.path.dirname(place)
    return place


def module_name(file: str) -> str:
    """Return the name under which a file is imported from that directory."""
    return (
        os.path.relpath(file, import_root(file))
        .removesuffix(".py")
        .replace(os.sep, ".")
        .removesuffix(".__init__")
    )


def is_importable(name: str, path: Sequence[str]) -> bool:
    """Whether a top-level module of that name comes with Python, or is in one of the places."""
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    return PathFinder.find_spec(name, list(path)) is not None


def set_path(target: str) -> None:
    """Set `sys.path` as `python -m pytest` has it, with the target's import root."""
    sys.path[:] = [os.getcwd(), import_root(target), *(path for path in sys.path[1:] if path)]


class SlotFinder:
    """Comes before all other finders, and calls `around` to execute the target's module.

    And `around_others`, if it is given, to execute the modules of `others`, paths of files.
    """

    def __init__(
        self,
        places: Places,
        target: str,
        around: Execute,
        *,
        others: Sequence[str] = (),
        around_others: Execute | None = None,
    ) -> None:
        self._places = places
        self._around = {os.path.realpath(one): around_others for one in others}
        self._around[os.path.realpath(target)] = around

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find, loaded from the slot."""
        for finder in sys.meta_path:
            ask = getattr(finder, "find_spec", None)
            if finder is self or ask is None:
                continue
            if (spec := cast("ModuleSpec | None", ask(name, path, target))) is not None:
                if spec.has_location and spec.origin and self._places.removes(spec.origin):
                    continue  # only the main tree still has it
                return self._with_hook(self._relocate(name, spec))
        return None

    def _relocate(self, name: str, spec: ModuleSpec) -> ModuleSpec:
        place = self._places.mirrored(spec.origin) if spec.has_location and spec.origin else None
        if place is None:
            # A namespace package has nothing but a path.
            if spec.submodule_search_locations and spec.origin is None:
                spec.submodule_search_locations = [
                    self._places.mirrored(one) or one for one in spec.submodule_search_locations
                ]
            return spec
        locations = (
            [os.path.dirname(place)] if spec.submodule_search_locations is not None else None
        )
        return (
            importlib.util.spec_from_file_location(
                name, place, submodule_search_locations=locations
            )
            or spec
        )

    def _with_hook(self, spec: ModuleSpec) -> ModuleSpec:
        if spec.has_location and spec.origin and spec.loader:
            around = self._around.get(os.path.realpath(spec.origin))
            if around is not None:
                spec.loader = cast("Loader", _Loader(spec.loader, around))
        return spec


class _Loader:
    def __init__(self, inner: "Loader", around: Execute) -> None:
        self._inner, self._around = inner, around

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._around(module, lambda: self._inner.exec_module(module))
