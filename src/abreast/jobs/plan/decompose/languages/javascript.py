"""Reads the imports of JavaScript and TypeScript.

`import`, `export ... from`, `require` and `import()` of a literal lead to files by relative paths,
by `paths` and `baseUrl` of the nearest `tsconfig.json`, and by the names of packages of the
repository. A name that a file only passes on, by `export ... from`, leads to the file that has it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import join, normpath
from typing import Any, Final

from abreast.jobs.plan.decompose.languages.reading import LanguageImports, SourceTree
from abreast.jobs.plan.decompose.languages.script_modules import ScriptModule, ScriptReader

ENDINGS: Final = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
_TYPES: Final = ".d.ts"
# What may be written for a file that is compiled: `./cart.js` for `cart.ts`.
_COMPILED: Final = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_JSON_COMMENT: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_JSON_COMMA: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')
_MAX_EXTENDS: Final = 5
_CONFIG: Final = re.compile(r"(?:ts|js)config(?:\.[\w-]+)*\.json")


def read_javascript(paths: Sequence[str], tree: SourceTree) -> LanguageImports:
    """Read every one of these files; those that can't be read are in `unread`."""
    modules: dict[str, ScriptModule] = {}
    unread: list[tuple[str, str]] = []
    reader = ScriptReader()
    for path in paths:
        try:
            modules[path] = reader.read(path, tree.read(path))
        except OSError as error:
            unread.append((path, str(error)))
    packages = _Packages(tree)
    for path in _with_stars(modules, packages):
        modules[path] = reader.read_whole(path, tree.read(path))
    exports = _Exports(modules, packages)
    edges: dict[str, tuple[str, ...]] = {}
    through: dict[str, tuple[str, ...]] = {}
    for path in modules:
        ends, passed = exports.imported(path)
        edges[path], through[path] = tuple(ends), tuple(passed - ends)
    return LanguageImports(edges, through, unread)


def _with_stars(modules: Mapping[str, ScriptModule], packages: "_Packages") -> set[str]:
    """The files for which it matters what they declare: those in an `export *`, on either side."""
    found = {path for path, module in modules.items() if module.stars}
    for path in tuple(found):
        targets = (packages.file(path, source) for source in modules[path].stars)
        found.update(target for target in targets if target is not None and target in modules)
    return found


@dataclass(slots=True)
class _Exports:
    """Leads imports to the files that have what they name."""

    modules: dict[str, ScriptModule]
    packages: "_Packages"
    _found: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def imported(self, path: str) -> tuple[set[str], set[str]]:
        """The files that have what a file imports, and those that its imports pass through."""
        ends: set[str] = set()
        passed: set[str] = set()
        for source, name in self.modules[path].imports:
            target = self.packages.file(path, source)
            if target is None:
                continue
            passed.add(target)
            module = self.modules.get(target)
            if module is not None and (module.passed_on or module.stars):
                target = self.find(target, name) or target
            ends.add(target)
        return ends, passed

    def find(self, path: str, name: str) -> str | None:
        """The file that has a name which a file exports; None if it doesn't export it."""
        module = self.modules.get(path)
        if name == "*" or module is None:
            return path
        key = (path, name)
        if key not in self._found:
            self._found[key] = None  # while it is searched: files may pass on each other's names
            self._found[key] = self._find(path, module, name)
        return self._found[key]

    def _find(self, path: str, module: ScriptModule, name: str) -> str | None:
        if name in module.exported:
            return path
        if name in module.passed_on:
            source, other = module.passed_on[name]
            target = self.packages.file(path, source)
            return path if target is None else self.find(target, other) or target
        for source in module.stars:
            target = self.packages.file(path, source)
            if target is not None and (found := self.find(target, name)) is not None:
                return found
        return None


class _Packages:
    """Resolves what is written after `from`."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._named: dict[str, str] = {}  # the directories of the repository's packages
        self._configs: dict[str, list[str]] = {}
        self._mappings: dict[str, list[tuple[str, str, list[str]]]] = {}
        self._files: dict[str, dict[str, str | None]] = {}  # by directory
        for path in sorted(tree.paths, key=lambda path: (path.count("/"), path)):
            folder, _, name = path.rpartition("/")
            if name == "package.json":
                given = _json(tree.read_text(path)).get("name")
                if isinstance(given, str):
                    self._named.setdefault(given, folder)
            elif _CONFIG.fullmatch(name):
                self._configs.setdefault(folder, []).append(path)

    def file(self, path: str, source: str) -> str | None:
        """The file that `source` means in the file `path`; None if it is not of this tree."""
        folder = path.rpartition("/")[0]
        known = self._files.setdefault(folder, {})
        if source not in known:
            found = map(self._at, self._places(folder, source))
            known[source] = next(filter(None, found), None)
        return known[source]

    def _places(self, folder: str, source: str) -> Iterator[str]:
        """Where it may be, without an ending."""
        source = source.partition("?")[0]
        if source.startswith((".", "/")):
            yield join(folder, source) if source.startswith(".") else source[1:]
            return
        for base, pattern, targets in self._mapping(folder):
            before, star, after = pattern.partition("*")
            if source == pattern or (star and source.startswith(before) and source.endswith(after)):
                rest = source[len(before) : len(source) - len(after)] if star else ""
                yield from (join(base, target.replace("*", rest, 1)) for target in targets)
        parts = source.split("/")
        for count in (2, 1):
            name = "/".join(parts[:count])
            if len(parts) >= count and name in self._named:
                yield from self._in_package(self._named[name], "/".join(parts[count:]))

    def _in_package(self, folder: str, rest: str) -> Iterator[str]:
        if rest:
            yield from (join(folder, "src", rest), join(folder, rest))
            return
        given = _json(self._tree.read_text(join(folder, "package.json")))
        if isinstance(given.get("source"), str):
            yield join(folder, given["source"])
        yield join(folder, "src/index")  # the others may name what is compiled from it
        for key in ("types", "module", "main"):
            if isinstance(given.get(key), str):
                yield join(folder, given[key])
        yield from (join(folder, "index"), join(folder, "src/main"))

    def _at(self, place: str) -> str | None:
        """The file at a place, with one of the endings, or the index of a directory."""
        place = normpath(place)
        if place.startswith(".."):
            return None
        paths = self._tree.paths
        for one in _written(place):
            if one in paths:
                return one
        return None

    def _mapping(self, folder: str) -> list[tuple[str, str, list[str]]]:
        """The `paths` for files of a directory: of the nearest configuration that has any."""
        if folder not in self._mappings:
            found = [
                each
                for path in sorted(self._configs.get(folder, ()), key=len)
                for each in self._read_config(path)
            ]
            if not found and folder:
                found = self._mapping(folder.rpartition("/")[0])
            self._mappings[folder] = found
        return self._mappings[folder]

    def _read_config(self, path: str, depth: int = 0) -> list[tuple[str, str, list[str]]]:
        given = _json(self._tree.read_text(path))
        folder = path.rpartition("/")[0]
        options = given.get("compilerOptions")
        options = options if isinstance(options, dict) else {}
        base = join(folder, str(options.get("baseUrl", ".")))
        mapping = options.get("paths")
        found = [
            (base, pattern, [target for target in targets if isinstance(target, str)])
            for pattern, targets in (mapping if isinstance(mapping, dict) else {}).items()
            if isinstance(targets, list)
        ]
        if "baseUrl" in options:
            found.append((base, "*", ["*"]))
        extended = given.get("extends")
        if (
            not found
            and isinstance(extended, str)
            and extended.startswith(".")
            and depth < _MAX_EXTENDS
        ):
            above = normpath(join(folder, extended))
            return self._read_config(
                above if above.endswith(".json") else f"{above}.json", depth + 1
            )
        return found


def _written(place: str) -> Iterator[str]:
    """The files that a place may mean, as it is written in a source."""
    if place != ".":
        stem, dot, ending = place.rpartition(".")
        if place.endswith((*ENDINGS, ".json", ".vue", ".svelte")):
            yield place
        for one in _COMPILED.get(dot + ending, ()):
            yield stem + one
        for one in (*ENDINGS, _TYPES):
            yield place + one
    for one in (*ENDINGS, _TYPES):
        yield f"index{one}" if place == "." else f"{place}/index{one}"


def _json(text: str) -> dict[str, Any]:
    """An object of JSON with comments; empty if it is none."""
    plain = _JSON_COMMA.sub(r"\1", _JSON_COMMENT.sub(r"\1", text))
    try:
        found = json.loads(plain)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
