"""Moves modules and renames what they define, by the table in redesign.txt, in all files of the repository.

A line of the table is `old.module new.module Old=New Other=Another`: the module moves, its tests
move with it, and every import, dotted name and path that names it is rewritten; then the names that
it defines are renamed in it and in every file that imports them. `python scripts/redesign.py
--check` only tells what would move.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("redesign.txt")
CODE = ("src", "tests", "benchmarks", "scripts", "examples", "docs", "corpus")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".sql", ".js", ".html", ".cfg", ".ini"}
QUOTED_TYPE = re.compile(
    r'"[A-Za-z][A-Za-z_\[\], |.]*"'
)  # an annotation or alias that names a later class
LEFT_ALONE = (
    "CHANGELOG.md",
    "scripts/redesign.py",
    "scripts/redesign.txt",
    "tests/fixtures/recorded/",
)


@dataclass(frozen=True)
class Move:
    """One line of the table; module names are without the leading `abreast.`."""

    old: str
    new: str
    names: dict[str, str]


def read_table() -> list[Move]:
    """All moves, in the order of the table."""
    moves = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        if words and words[0] != "package":
            old, new, *names = words
            moves.append(
                Move(old, old if new == "=" else new, dict(name.split("=") for name in names))
            )
    return moves


def make_packages() -> None:
    """Write `__init__.py` of new packages, with the sentence of the table.

    And those of directories of tests.
    """
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("package "):
            _, name, sentence = line.split(maxsplit=2)
            path = ROOT / package_of(name) / "__init__.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'"""{sentence}"""\n', encoding="utf-8")
            git("add", str(path))
    for path in (ROOT / "tests").rglob("test_*.py"):
        init = path.with_name("__init__.py")
        if not init.exists() and path.parent != ROOT / "tests":
            init.touch()
            git("add", str(init))


def path_of(module: str) -> Path:
    """The file of a module of the package."""
    return Path("src/abreast", *module.split(".")).with_suffix(".py")


def package_of(module: str) -> Path:
    """The directory of a package."""
    return Path("src/abreast", *module.split("."))


def module_at(path: Path) -> str:
    """The module of a file of the package."""
    return ".".join(path.with_suffix("").parts[2:]).removesuffix(".__init__")


def test_of(module: str) -> Path:
    """Where the tests of a module are."""
    *folders, name = module.split(".")
    return Path("tests", *folders, f"test_{name}.py")


def git(*words: str) -> str:
    """Run git in the repository."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def files() -> Iterator[Path]:
    """Every text file that may name a module."""
    for name in git("ls-files").splitlines():
        path = Path(name)
        if path.suffix in TEXT or path.name in {"Makefile", "Dockerfile"}:
            if not name.startswith(LEFT_ALONE) and (ROOT / path).is_file():
                yield path


def move_files(moves: list[Move]) -> dict[str, str]:
    """Move modules and their tests; return the moved paths of tests."""
    tests: dict[str, str] = {}
    pairs: list[tuple[Path, Path]] = []
    for move in moves:
        if move.old == move.new:
            continue
        old, new = path_of(move.old), path_of(move.new)
        if (ROOT / package_of(move.old)).is_dir() and not (ROOT / old).exists():
            old, new = package_of(move.old), package_of(move.new)
        pairs.append((old, new))
        if (ROOT / test_of(move.old)).exists():
            pairs.append((test_of(move.old), test_of(move.new)))
            tests[str(test_of(move.old))] = str(test_of(move.new))
    # Through a second name, since a module may take the place that another one leaves.
    for old, _ in pairs:
        git("mv", str(old), f"{old}.moving")
    for old, new in pairs:
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", f"{old}.moving", str(new))
    return tests


def dotted_pattern(moves: list[Move]) -> re.Pattern[str]:
    """Any old module by its dotted name or its path."""
    olds = sorted((move.old for move in moves if move.old != move.new), key=len, reverse=True)
    dotted = "|".join(re.escape(f"abreast.{old}") for old in olds)
    paths = "|".join(
        re.escape("abreast/" + old.replace(".", "/")) + r"(?=\.py\b|/)" for old in olds
    )
    return re.compile(rf"(?<![\w.@])(?:{dotted})(?![\w])|(?<![\w-])(?:src/)?(?:{paths})")


def rewrite_dotted(text: str, pattern: re.Pattern[str], known: dict[str, str]) -> str:
    """Every dotted name and path of a moved module."""

    def replaced(found: re.Match[str]) -> str:
        word = found.group()
        if "/" in word:
            lead = "src/" if word.startswith("src/") else ""
            inner = word.removeprefix("src/").removeprefix("abreast/").replace("/", ".")
            return f"{lead}abreast/{known[inner].replace('.', '/')}"
        return f"abreast.{known[word.removeprefix('abreast.')]}"

    return pattern.sub(replaced, text)


def split_package_imports(text: str, known: dict[str, str]) -> str:
    """`from abreast.package import module` for modules that leave that package: one import each."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for node in sorted(ast.walk(tree), key=lambda one: -getattr(one, "lineno", 0)):
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            continue
        if not (node.module == "abreast" or node.module.startswith("abreast.")):
            continue
        inner = node.module.removeprefix("abreast").removeprefix(".")
        stay, leave = [], []
        for alias in node.names:
            full = f"{inner}.{alias.name}".removeprefix(".")
            (leave if full in known else stay).append((alias, full))
        if not leave:
            continue
        indent = lines[node.lineno - 1][: node.col_offset]
        made = []
        if stay:
            words = ", ".join(
                f"{one.name} as {one.asname}" if one.asname else one.name for one, _ in stay
            )
            made.append(f"{indent}from {node.module} import {words}\n")
        for alias, full in leave:
            package, _, name = f"abreast.{known[full]}".rpartition(".")
            local = alias.asname or alias.name
            said = name if local == name else f"{name} as {local}"
            made.append(
                f"{indent}from @{package} import {said}\n"
            )  # the @ keeps it from being rewritten again
        lines[node.lineno - 1 : node.end_lineno] = made
    return "".join(lines)


def deepen(text: str, levels: int) -> str:
    """`Path(__file__).parents[n]` of a file that is moved so many levels down."""
    pattern = r"(__file__\)(?:\.resolve\(\))?\.parents\[)(\d)\]"
    return re.sub(pattern, lambda found: f"{found[1]}{int(found[2]) + levels}]", text)


# --- names


def rename_in(text: str, renamed: dict[str, str], of_modules: dict[str, dict[str, str]]) -> str:
    """Rename tokens: `renamed` are plain names, `of_modules` maps a local module name to renamed attributes."""
    if not renamed and not of_modules:
        return text
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    for at, token in enumerate(tokens):
        if token.type != tokenize.NAME:
            if token.type in (tokenize.STRING, tokenize.COMMENT) and "`" in token.string:
                new = re.sub(
                    r"`([A-Za-z_][\w.]*)(\(?\)?)`",
                    lambda found: (
                        "`"
                        + ".".join(
                            renamed.get(part, part) if number == 0 else part
                            for number, part in enumerate(found[1].split("."))
                        )
                        + found[2]
                        + "`"
                    ),
                    token.string,
                )
                if new != token.string:
                    edits.append((token.start, token.end, new))
            elif token.type == tokenize.STRING and QUOTED_TYPE.fullmatch(token.string):
                new = re.sub(
                    r"[A-Z]\w*", lambda found: renamed.get(found[0], found[0]), token.string
                )
                if new != token.string:
                    edits.append((token.start, token.end, new))
            continue
        before = tokens[at - 1].string if at else ""
        if before == ".":
            owner = tokens[at - 2].string if at > 1 else ""
            if (
                owner in of_modules
                and token.string in of_modules[owner]
                and (at < 3 or tokens[at - 3].string != ".")
            ):
                edits.append((token.start, token.end, of_modules[owner][token.string]))
            continue
        is_method = before == "def" and token.line[:1].isspace()
        if token.string in renamed and not is_method and not is_keyword_argument(tokens, at):
            edits.append((token.start, token.end, renamed[token.string]))
    lines = text.splitlines(keepends=True)
    for (row, start), (last, end), new in reversed(edits):
        if row == last:
            line = lines[row - 1]
            lines[row - 1] = line[:start] + new + line[end:]
        else:
            first, tail = lines[row - 1][:start], lines[last - 1][end:]
            lines[row - 1 : last] = (first + new + tail).splitlines(keepends=True)
    return "".join(lines)


def is_keyword_argument(tokens: list[tokenize.TokenInfo], at: int) -> bool:
    """Whether a name stands before `=` within brackets: `f(name=1)`."""
    following = next((one.string for one in tokens[at + 1 :] if one.type != tokenize.NL), "")
    previous = next((one.string for one in reversed(tokens[:at]) if one.type != tokenize.NL), "")
    return following == "=" and previous in ("(", ",")


def imported_names(
    text: str, names: dict[str, dict[str, str]]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """What of the renamed names a file imports: by plain name, and by the module's local name."""
    renamed: dict[str, str] = {}
    of_modules: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("abreast"):
            inner = node.module.removeprefix("abreast").removeprefix(".")
            for alias in node.names:
                new = names.get(inner, {}).get(alias.name)
                if new:
                    renamed[alias.name] = new
                full = f"{inner}.{alias.name}".removeprefix(".")
                if full in names:
                    of_modules[alias.asname or alias.name] = names[full]
    return renamed, of_modules


def move_stored_types(text: str, moves: list[Move]) -> str:
    """The table of stored types: what stores hold stays as it is, and where each type stands now is written anew."""
    first, moved = (
        dict(re.findall(r'^    "(abreast:[\w.]+)": "([\w.:]+)",$', part, re.MULTILINE))
        for part in text.split("\n_MOVED: ")
    )
    modules = {f"abreast.{move.old}": move for move in moves}
    homes = {}
    for name, home in {**first, **moved}.items():
        module, _, cls = home.partition(":")
        move = modules.get(module)
        new = f"abreast.{move.new}:{move.names.get(cls, cls)}" if move else home
        if new != first[name]:
            homes[name] = new
    lines = "".join(f'    "{name}": "{home}",\n' for name, home in homes.items())
    return re.sub(
        r"(\n_MOVED: [^\n]*\{\n).*?(^\}$)",
        lambda found: found[1] + lines + found[2],
        text,
        flags=re.DOTALL | re.MULTILINE,
    )


def main() -> None:
    """Do it all, or only tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell what would move")
    options = parser.parse_args()
    moves = read_table()
    known = {move.old: move.new for move in moves if move.old != move.new}
    for move in moves:
        old, package = ROOT / path_of(move.old), ROOT / package_of(move.old)
        if not old.exists() and not package.is_dir():
            raise SystemExit(f"{move.old} is not there")
    if len(set(known.values())) != len(known):
        raise SystemExit("two modules would have one name")
    if options.check:
        for move in moves:
            print(
                f"{move.old:40} {move.new:40} {' '.join(f'{a}={b}' for a, b in move.names.items())}"
            )
        return
    pattern = dotted_pattern(moves)
    names = {move.new: move.names for move in moves if move.names}
    tests = move_files(moves)
    make_packages()
    olds = sorted(tests, key=len, reverse=True)
    test_words = [re.escape(one) for old in olds for one in (old, old[:-3].replace("/", "."))]
    test_pattern = re.compile(rf"(?:{'|'.join(test_words) or '$^'})(?!\w)")
    test_names = {
        **tests,
        **{a[:-3].replace("/", "."): b[:-3].replace("/", ".") for a, b in tests.items()},
    }
    texts: dict[Path, tuple[str, str]] = {}
    for path in files():
        text = before = (ROOT / path).read_text(encoding="utf-8")
        if path.name == "type_names.py" and path.parts[0] == "src":
            (ROOT / path).write_text(move_stored_types(text, moves), encoding="utf-8")
            continue
        if path.suffix == ".py":
            text = split_package_imports(text, known)
        text = rewrite_dotted(text, pattern, known).replace("from @abreast", "from abreast")
        texts[path] = before, test_pattern.sub(lambda found: test_names[found.group()], text)
    for path, (
        _,
        text,
    ) in texts.items():  # names that a module only imports, and others import from it
        if path.parts[:2] == ("src", "abreast") and path.suffix == ".py":
            own = names.setdefault(module_at(path), {})
            for name, new in imported_names(text, names)[0].items():
                own.setdefault(name, new)
    deeper = {new: new.count("/") - old.count("/") for old, new in tests.items()}
    for path, (before, text) in texts.items():
        if path.suffix == ".py":
            text = deepen(text, deeper.get(str(path), 0))
            renamed, of_modules = imported_names(text, names)
            parts = path.with_suffix("").parts
            if parts[:2] == ("src", "abreast"):
                renamed |= names.get(module_at(path), {})
            text = rename_in(text, renamed, of_modules)
        if text != before:
            (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
