"""Leads the imports of Python files to the files that define what they import.

    from shop import Cart         # shop/cart.py, not shop/__init__.py, which imports it from there
    import shop                   # with shop.Cart in the code: shop/cart.py

It follows the imports of packages (`__init__.py`), also under another name and by `import *`. What
another module imports for itself is not followed: who imports it from there depends on that module.
Where a name is made at run time, or none of a package's names is used, the package itself is
imported. Uses within f-strings are not seen.
"""

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

from abreast.jobs.plan.decompose.import_scanner import Statement, read_text, without_strings
from abreast.jobs.plan.decompose.languages.python_modules import Modules, join

INITS: Final = ("__init__.py", "__init__.pyi")
_ALL: Final = re.compile(rb"^__all__\b[^\n]*", re.MULTILINE)
_ALL_LIST: Final = re.compile(
    rb"^__all__[ \t]*(?::[^=\n]*)?\+?=[ \t]*(\[[^\]]*\]|\([^)]*\))", re.MULTILINE
)
# A definition, an assignment, the beginning of a block, or any other line that is not indented.
_LINE: Final = re.compile(
    r"""^([ \t]*)(?:
      (?:async[ \t]+)?(?:def|class)[ \t]+(\w+)
    | (\w+(?:[ \t]*[,=][ \t]*\w+)*)[ \t]*(?::[^=\n]*)?=(?!=)
    | (if|elif|else|try|except|finally|with|for|while|match|case)\b
    | (?<=\n)\w)""",
    re.MULTILINE | re.VERBOSE,
)
_WORD: Final = re.compile(r"\w+")


_Names: TypeAlias = tuple[str, str | None]
_Uses: TypeAlias = Mapping[str, tuple[str, ...]]
_Files: TypeAlias = set[str | None]


class Found(NamedTuple):
    """The file that a name leads to; its place too, if the name is a module."""

    file: str | None
    place: str | None = None


def package_names(statements: Iterable[Statement], packages: Collection[str]) -> Iterator[str]:
    """The names, as the code spells them, that may be bound to packages with these last names."""
    for each in statements:
        for name, other in each.names:
            before, _, last = name.rpartition(".")
            if not before:
                if last in packages:
                    yield other or last
            elif other:
                if last in packages:
                    yield other
            elif last in packages or name.partition(".")[0] in packages:
                yield name.partition(".")[0]


def attribute_uses(text: str, spelled: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What is used of each name: `{"nx": ("Graph", "utils.pairwise")}`, outside of strings."""
    names = {name for name in spelled if f"{name}." in text}
    if not names:
        return {}
    code = without_strings(text)
    return {name: tuple(sorted(set(_attributes(name).findall(code)))) for name in names}


@lru_cache(maxsize=1_000)
def _attributes(name: str) -> re.Pattern[str]:
    """What follows a name, not in an import; the name comes first, so that the search can jump."""
    plain = re.escape(name)
    before = rf"(?<![\w.]{plain})(?<!from {plain})(?<!import {plain})"
    return re.compile(rf"{plain}{before}\.(\w+(?:\.\w+)*)")


@dataclass(slots=True)
class Definitions:
    """Finds the files that define what the files of one tree import."""

    modules: Modules
    statements: Mapping[str, Sequence[Statement]]
    uses: Mapping[str, _Uses]
    """For each file what `attribute_uses` found in it."""
    read: Callable[[str], bytes]
    """Returns the content of a file."""
    _found: dict[tuple[str, str], Found] = field(default_factory=dict)
    _starred: dict[str, dict[str, Found]] = field(default_factory=dict)
    _bindings: dict[str, Mapping[str, tuple[Statement, str]]] = field(default_factory=dict)
    _files: dict[str | None, Found] = field(default_factory=dict)
    _defined: dict[str, frozenset[str]] = field(default_factory=dict)

    def imported(self, path: str) -> tuple[set[str], set[str]]:
        """The files that define what a file imports, and those that its imports pass through."""
        ends: _Files = set()
        through: _Files = set()
        uses = self.uses.get(path, {})
        for each in self.statements[path]:
            if each.level is None:
                for name, other in each.names:
                    self._add_module(path, (name, other), uses, ends, through)
            elif (base := self.modules.base(path, each)) is not None:
                whole = self.modules.file(base)
                if whole is not None and not whole.endswith(INITS):
                    ends.add(whole)  # whatever its names are
                    continue
                for name, other in each.names:
                    self._add_name(base, (name, other), uses, ends, through)
        through -= ends
        ends.discard(None)
        through.discard(None)
        return cast("set[str]", ends), cast("set[str]", through)

    def _add_module(
        self, path: str, names: _Names, uses: _Uses, ends: _Files, through: _Files
    ) -> None:
        """Add what `import a.b` leads to: what is used of it, or else its file."""
        name, other = names
        place = self.modules.place(path, name)
        if place is None:
            return
        whole = self.modules.file(place)
        first, _, rest = name.partition(".")
        if other or not rest:
            through.add(whole)
            ends |= self._used(place, uses.get(other or name, ()))
            return
        chains = uses.get(first, ())
        top = self.modules.place(path, first)
        if top is not None and chains:
            through |= {whole, self.modules.file(top)}
            ends |= self._used(top, chains)
        if not any(f"{chain}.".startswith(f"{rest}.") for chain in chains):
            ends.add(whole)

    def _add_name(
        self, base: str, names: _Names, uses: _Uses, ends: _Files, through: _Files
    ) -> None:
        """Add what a name of `from base import name` leads to; the base is a package."""
        name, other = names
        whole = self.modules.file(base)
        if name == "*":
            ends.add(whole)
            return
        found = self.find(base, name)
        if found.place is None:
            ends.add(found.file)
            through.add(whole)
            return
        through.add(found.file)
        ends |= self._used(found.place, uses.get(other or name, ()))
        if found.place != join(base, name):
            through.add(whole)

    def _used(self, place: str, chains: Sequence[str]) -> _Files:
        """The files of what is used of a module; its own if nothing is."""
        if not chains:
            return {self.modules.file(place)}
        whole = Found(self.modules.file(place), place)
        found: _Files = set()
        for chain in chains:
            end = whole
            for name in chain.split("."):
                if end.place is None:
                    break  # an attribute of an object
                end = self.find(end.place, name)
            found.add(end.file or whole.file)
        return found

    def find(self, place: str, name: str) -> Found:
        """Where a name of a module is defined; the module itself if that can't be told."""
        key = (place, name)
        known = self._found.get(key)
        if known is None:
            own = self.modules.file(place)
            # The module itself while it is searched, for names that are imported in a circle.
            known = self._itself(own)
            if own is None or own.endswith(INITS):
                self._found[key] = known
                known = self._found[key] = self._find(place, own, name)
        return known

    def _itself(self, own: str | None) -> Found:
        """One object for all names of a file."""
        known = self._files.get(own)
        if known is None:
            known = self._files[own] = Found(own)
        return known

    def _find(self, place: str, own: str | None, name: str) -> Found:
        inside = join(place, name)
        if self.modules.has(inside) and (own is None or name not in self._definitions(own)):
            return Found(self.modules.file(inside), inside)
        if own is None:
            return self._itself(None)
        bound = self._bound(own)
        binding = bound.get(name)
        if binding is not None and name not in self._definitions(own):
            return self._follow(own, *binding) or self._itself(own)
        stars = self._stars(own) if binding is None and "*" in bound else {}
        return stars.get(name) or self._itself(own)

    def _bound(self, path: str) -> Mapping[str, tuple[Statement, str]]:
        """What the imports of a file bind, each with its statement and the name in there."""
        known = self._bindings.get(path)
        if known is None:
            known = self._bindings[path] = {
                bound: (each, name)
                for each in self.statements.get(path, ())
                for bound, name in each.bindings()
            }
        return known

    def _follow(self, path: str, statement: Statement, name: str) -> Found | None:
        """Where a name is defined that a statement imports; None if it is not in this tree."""
        if statement.level is None:
            place = self.modules.place(path, name)
            found = None if place is None else Found(self.modules.file(place), place)
        else:
            base = self.modules.base(path, statement)
            found = None if base is None else self.find(base, name)
        return found if found is not None and found.file else None

    def _stars(self, path: str) -> dict[str, Found]:
        """What a file has by `import *`; of two modules with a name, the last has it."""
        known = self._starred.get(path)
        if known is None:
            known = self._starred[path] = {}  # filled below: a circle sees what is there by then
            for each in self.statements.get(path, ()):
                if each.is_star:
                    base = self.modules.base(path, each)
                    if base is not None and self.modules.file(base):
                        known |= self._exports(base)
        return known

    def _exports(self, place: str) -> dict[str, Found]:
        """What `from place import *` gives."""
        path = self.modules.file(place) or ""
        names: Iterable[str] | None = _listed(self._content(path))
        if names is None:
            every = {
                *self._definitions(path),
                *self._bound(path),
                *self._stars(path),
                *self._submodules(place, path),
            }
            names = sorted(name for name in every if not name.startswith(("_", "*")))
        return {name: self.find(place, name) for name in names}

    def _submodules(self, place: str, path: str) -> set[str]:
        """The modules of a package that its `__init__` imports: these are names of it, too."""
        bases = (
            self.modules.base(path, each) or ""
            for each in self.statements.get(path, ())
            if each.level is not None
        )
        return {
            base.removeprefix(f"{place}/").partition("/")[0]
            for base in bases
            if base.startswith(f"{place}/")
        }

    def _definitions(self, path: str) -> frozenset[str]:
        """The names that a module defines itself."""
        if path not in self._defined:
            self._defined[path] = frozenset(
                _defined_names(without_strings(read_text(self._content(path)) or ""))
            )
        return self._defined[path]

    def _content(self, path: str) -> bytes:
        try:
            return self.read(path)
        except OSError:
            return b""


def _listed(source: bytes) -> list[str] | None:
    """The names in `__all__`; None without one, or if it isn't made of plain lists."""
    lists = _ALL_LIST.findall(source)
    if not lists or len(lists) != len(_ALL.findall(source)):
        return None
    try:
        found = [name for each in lists for name in ast.literal_eval(each.decode())]
    except (ValueError, SyntaxError):
        return None
    return [name for name in found if isinstance(name, str)]


def _defined_names(code: str) -> Iterator[str]:
    """The names of definitions and assignments at the top of a module, and in its blocks."""
    inner = sys.maxsize  # lines indented further belong to a function, a class or a call
    for line in _LINE.finditer(code):
        indent = len(line[1])
        if indent > inner:
            continue
        inner = sys.maxsize if line[4] else indent
        if line[2]:
            yield line[2]
        elif line[3]:
            yield from _WORD.findall(line[3])
