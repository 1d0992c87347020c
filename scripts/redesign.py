"""Moves modules and renames what they define, by a table: redesign.txt, then redesign_names.txt.

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
FIRST_TABLE = Path(__file__).with_name("redesign.txt")
CODE = ("src", "tests", "benchmarks", "scripts", "examples", "docs", "corpus")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".sql", ".js", ".html", ".cfg", ".ini"}
QUOTED_TYPE = re.compile(
    r'"[A-Za-z][A-Za-z_\[\], |.]*"'
)  # an annotation or alias that names a later class
LEFT_ALONE = (
    "CHANGELOG.md",
    "scripts/redesign.py",
    "scripts/redesign.txt",
    "scripts/redesign_names.txt",
    "tests/fixtures/recorded/",
)


@dataclass(frozen=True)
class Move:
    """One line of the table; module names are without the leading `abreast.`."""

    old: str
    new: str
    names: dict[str, str]


def read_table(table: Path) -> list[Move]:
    """All moves, in the order of the table."""
    moves = []
    for line in table.read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        if words and words[0] != "package":
            old, new, *names = words
            moves.append(
                Move(old, old if new == "=" else new, dict(name.split("=") for name in names))
            )
    return moves


def make_packages(table: Path) -> None:
    """Write `__init__.py` of new packages, with the sentence of the table.

    And those of directories of tests.
    """
    for line in table.read_text(encoding="utf-8").splitlines():
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
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def files() -> Iterator[Path]:
    """Every text file that may name a module."""
    for name in git("ls-files").splitlines():
        path = Path(name)
        is_text = path.suffix in TEXT or path.name in {"Makefile", "Dockerfile"}
        if is_text and not name.startswith(LEFT_ALONE) and (ROOT / path).is_file():
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
    if not olds:
        return re.compile(r"(?!)")  # matches nothing
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
    """Rename tokens.

    `renamed` are plain names; `of_modules` has, by a module's local name, its renamed attributes.
    """
    if not renamed and not of_modules:
        return text
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for at in reversed(range(len(tokens))):
        token = tokens[at]
        if token.type == tokenize.NAME:
            new = new_name(tokens, at, renamed, of_modules)
        else:
            new = new_text(token, renamed)
        if new != token.string:
            (row, start), (last, end) = token.start, token.end
            whole = lines[row - 1][:start] + new + lines[last - 1][end:]
            lines[row - 1 : last] = whole.splitlines(keepends=True)
    return "".join(lines)


def new_name(
    tokens: list[tokenize.TokenInfo],
    at: int,
    renamed: dict[str, str],
    of_modules: dict[str, dict[str, str]],
) -> str:
    """What a name becomes: an attribute of a module, or a name of its own that is no method."""
    name = tokens[at].string
    before = [token.string for token in tokens[max(0, at - 3) : at]]
    if before[-1:] == ["."]:
        owner = before[-2] if before[:-2][-1:] != ["."] else ""
        return of_modules.get(owner, {}).get(name, name)
    is_method = before[-1:] == ["def"] and tokens[at].line[:1].isspace()
    return name if is_method or is_keyword_argument(tokens, at) else renamed.get(name, name)


def new_text(token: tokenize.TokenInfo, renamed: dict[str, str]) -> str:
    """What a string or comment becomes: names in backticks, and types in quotes."""
    if token.type not in (tokenize.STRING, tokenize.COMMENT):
        return token.string
    if QUOTED_TYPE.fullmatch(token.string):
        return re.sub(r"[A-Z]\w*", lambda found: renamed.get(found[0], found[0]), token.string)
    return re.sub(
        r"`([A-Za-z_]\w*)(?=[\w.()]*`)",
        lambda found: f"`{renamed.get(found[1], found[1])}",
        token.string,
    )


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
    """The table of stored types: the names in stores stay, and `_MOVED` gets the new places."""
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


def check(moves: list[Move]) -> None:
    """Whether all modules are there, and none takes the place of another. Raises SystemExit."""
    for move in moves:
        if not (ROOT / path_of(move.old)).exists() and not (ROOT / package_of(move.old)).is_dir():
            raise SystemExit(f"{move.old} is not there")
    places = [move.new for move in moves if move.old != move.new]
    if len(set(places)) != len(places):
        raise SystemExit("two modules would have one name")


def rewrite_places(moves: list[Move], tests: dict[str, str]) -> dict[Path, str]:
    """Every file with the new places of modules and tests in it."""
    known = {move.old: move.new for move in moves if move.old != move.new}
    pattern = dotted_pattern(moves)
    words = dict(tests)
    words |= {dotted(old): dotted(new) for old, new in tests.items()}
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    of_tests = re.compile(rf"(?:{'|'.join(longest_first) or '(?!)'})(?!\w)")
    levels = {new: new.count("/") - old.count("/") for old, new in tests.items()}
    texts = {}
    for path in files():
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.name == "type_names.py" and path.parts[0] == "src":
            texts[path] = move_stored_types(text, moves)
            continue
        if path.suffix == ".py":
            text = deepen(split_package_imports(text, known), levels.get(str(path), 0))
        text = rewrite_dotted(text, pattern, known).replace("from @abreast", "from abreast")
        texts[path] = of_tests.sub(lambda found: words[found.group()], text)
    return texts


def dotted(path: str) -> str:
    """The module of a path of a test."""
    return path.removesuffix(".py").replace("/", ".")


def rewrite_names(texts: dict[Path, str], names: dict[str, dict[str, str]]) -> dict[Path, str]:
    """Every file with the new names in it; `names` has those of each module."""
    code = {path: text for path, text in texts.items() if path.suffix == ".py"}
    ours = {path: module_at(path) for path in code if path.parts[:2] == ("src", "abreast")}
    for path, module in ours.items():  # names that a module imports, and others import from it
        own = names.setdefault(module, {})
        for name, new in imported_names(code[path], names)[0].items():
            own.setdefault(name, new)
    found = dict(texts)
    for path, text in code.items():
        renamed, of_modules = imported_names(text, names)
        renamed |= names.get(ours.get(path, ""), {})
        found[path] = rename_in(text, renamed, of_modules)
    return found


def main() -> None:
    """Do it all, or only tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", type=Path, default=FIRST_TABLE, help="which table")
    parser.add_argument("--check", action="store_true", help="only tell what would move")
    options = parser.parse_args()
    moves = read_table(options.table)
    check(moves)
    if options.check:
        for move in moves:
            renamed = " ".join(f"{old}={new}" for old, new in move.names.items())
            print(f"{move.old:40} {move.new:40} {renamed}".rstrip())
        return
    tests = move_files(moves)
    make_packages(options.table)
    texts = rewrite_places(moves, tests)
    for path, text in rewrite_names(texts, {move.new: dict(move.names) for move in moves}).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
