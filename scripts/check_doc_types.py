"""Check the Python of README.md, docs and examples with mypy --strict and with pyright.

A block is a program if it imports something or names its file (`# words.py`, or `cat > words.py`
in a block of `sh`); files can be imported by the other programs of their page. Any other block
continues the one before it. A block with `await` outside of a function is checked inside of one.
Blocks that import the libraries of `THEIRS`, which are not installed here, are for reading; so are
those that continue them.

    python scripts/check_doc_types.py                # everything
    python scripts/check_doc_types.py docs/sample.md # one page
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("build/doc_types")
PAGES = ("README.md", "docs/*.md", "docs/api/*.md", "docs/coming-from/*.md")
PROGRAMS = ("examples/*.py", "tests/docs/programs/*.py")
THEIRS = frozenset({"inspect_ai", "mellea"})

_FENCE = re.compile(r"```(\w*)")
_FILE = re.compile(r"# ([\w-]+)\.py\n")
_HEREDOC = re.compile(r"cat > (?:\.\./)*([\w/-]+)\.py <<'?(\w+)'?")
_IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
_IMPORTED = re.compile(r"^(import|from) (\w+)( import|$)", re.MULTILINE)


def _renamed(found: re.Match[str], modules: Mapping[str, str]) -> str:
    word, name, rest = found.groups()
    if name not in modules:
        return found[0]
    return f"{word} {modules[name]}{rest or f' as {name}'}"


@dataclass(frozen=True, slots=True)
class Program:
    """Python of a page, as it is checked."""

    page: str
    line: int
    """Of the fence, or of the command that writes it to a file."""
    text: str
    file: str | None = None
    """The name of its file on the page, without `.py`."""

    @property
    def module(self) -> str:
        """The module that it is checked as."""
        return f"{re.sub(r'[^a-z0-9]+', '_', self.page.lower())}_{self.line}"

    def source(self, modules: Mapping[str, str]) -> str:
        """Its text on the lines that it has on the page, in a function if it awaits something.

        `modules` has the modules that files of the page are checked as.
        """
        awaits = not _is_plain(self.text)
        text = _IMPORTED.sub(lambda found: _renamed(found, modules), self.text)
        lines = [f"    {line}" if line and awaits else line for line in text.splitlines()]
        head = ["async def main() -> None:"] if awaits else [""]
        return "\n".join([""] * (self.line - 1) + head + lines) + "\n"


def programs_of(page: str, text: str) -> Iterator[Program]:
    """The programs of a page."""
    open_one: Program | None = None
    theirs = False
    for language, start, lines in _blocks(text):
        if language == "sh":
            yield from _heredocs(page, start, lines)
        if language != "python":
            continue
        body = "".join(f"{line}\n" for line in lines)
        imported = set(_IMPORT.findall(body))
        if not imported and not _FILE.match(body) and (open_one is not None or theirs):
            if open_one is not None:
                gap = start - open_one.line - open_one.text.count("\n")
                text_so_far = open_one.text + "\n" * gap + body
                open_one = Program(page, open_one.line, text_so_far, open_one.file)
            continue
        if open_one is not None:
            yield open_one
        theirs = bool(imported & THEIRS)
        named = _FILE.match(body)
        open_one = None if theirs else Program(page, start, body, named and named[1])
    if open_one is not None:
        yield open_one


def _blocks(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Each fenced block: its language, the line of its fence, its lines."""
    inside: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None:
            if fence := _FENCE.match(line):
                inside = (fence[1], number, [])
        elif line == "```":
            yield inside
            inside = None
        else:
            inside[2].append(line)


def _heredocs(page: str, start: int, lines: Sequence[str]) -> Iterator[Program]:
    """The files of Python that a block of `sh` writes."""
    end, first, body, file = "", 0, "", ""
    for number, line in enumerate(lines, start + 1):
        if end and line == end:
            yield Program(page, first, body, file)
            end = ""
        elif end:
            body += f"{line}\n"
        elif begin := _HEREDOC.match(line):
            file, end, first, body = begin[1], begin[2], number, ""


def _is_plain(text: str) -> bool:
    """Whether it is Python as it stands, without `await` outside of a function."""
    try:
        compile(text, "block", "exec")
    except SyntaxError:
        compile(text, "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return False
    return True


def write(wanted: Sequence[str]) -> dict[str, str]:
    """Write the programs of the pages into the folder; the page of each file."""
    folder = ROOT / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    page_of = {}
    for page in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        name = page.relative_to(ROOT).as_posix()
        if wanted and name not in wanted:
            continue
        programs = list(programs_of(name, page.read_text("utf-8")))
        modules = {each.file: each.module for each in programs if each.file}
        for program in programs:
            file = f"{program.module}.py"
            (folder / file).write_text(program.source(modules), "utf-8")
            page_of[file] = name
    return page_of


def commands(files: Sequence[str]) -> list[list[str]]:
    """The two checkers, over the same files."""
    settings = {
        "include": [str(ROOT / file) for file in files],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    config = ROOT / FOLDER / "pyrightconfig.json"
    config.write_text(json.dumps(settings), "utf-8")
    tools = Path(sys.executable).parent
    pyright = [str(tools / "basedpyright"), "--pythonpath", sys.executable, "--level", "error"]
    return [
        [sys.executable, "-m", "mypy", "--no-error-summary", *files],
        [*pyright, "--project", str(config)],
    ]


def main(arguments: Sequence[str]) -> int:
    """Print what the checkers say, with the places on the pages; 1 if they say anything."""
    page_of = write(arguments)
    files = [f"{FOLDER}/{name}" for name in page_of]
    for pattern in PROGRAMS:
        names = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(pattern))]
        files += [name for name in names if not arguments or name in arguments]
    if not files:
        sys.exit(f"{' '.join(arguments)}: no Python to check there")
    failed = False
    for command in commands(files):
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "MYPYPATH": str(FOLDER)},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            failed = True
            said = (ended.stdout + ended.stderr).replace(f"{ROOT}/", "")
            place = re.compile(rf"{FOLDER}/({'|'.join(map(re.escape, page_of))})")
            print(place.sub(lambda found: page_of[found[1]], said) if page_of else said)
    if not failed:
        print(f"{len(page_of)} programs of pages, {len(files) - len(page_of)} others: typed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
