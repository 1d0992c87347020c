"""Markdown pages as scripts: what a reader would paste, in the order of the page.

- A block of `sh` is run. All of a page run in one shell, in one new directory.
- A block of `python`, `toml`, `json` or `yaml` that begins with `# name` is first written to the
  file of that name.
- A block of `text` right after one of `sh` is what it prints. A line `...` in it stands for any
  number of lines, and what differs from day to day (times, dates, seeds) may differ.

Blocks of any other kind (`console`, `markdown`) are for reading.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 280  # seconds, a little less than a test that is listed in tests/slow.txt may take

_FILE = re.compile(r"# (?P<name>[\w-]+\.\w+)\n")
_HEADING = re.compile(r"#{1,6} +(?P<text>.*)")
_DAILY = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?"), "MOMENT"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "TIME"),
    (
        re.compile(r"(?<=[ :])\d+(\.\d+)?(e-\d+)?(?=/s|,\"queued\"|,\"waited\"|,\"backoff\"|})"),
        "NUMBER",
    ),
    (re.compile(r"(?<=^seed {6})\d+|(?<=\"seed\":)\d+"), "SEED"),
    (re.compile(r" {2,}"), "  "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    heading: str
    language: str
    text: str
    expected: str | None = None

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def file(self):
        """The file that it is the content of, if it names one."""
        named = _FILE.match(self.text)
        return (
            named["name"] if named and self.language in ("python", "toml", "json", "yaml") else None
        )

    @property
    def script(self):
        """What is pasted."""
        if self.file:
            return f"cat > {self.file} <<'END OF FILE'\n{self.text}END OF FILE\n"
        return self.text


def blocks_of(page):
    """The fenced blocks of a page, in order."""
    heading, found, inside, gap = "", [], None, True
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), start=1):
        if inside is None:
            if line.startswith("```"):
                inside = (number, line.strip("`").partition(" ")[0], [])
            elif line:
                gap = True
                heading = named["text"] if (named := _HEADING.fullmatch(line)) else heading
        elif line == "```":
            start, language, lines = inside
            text = "".join(f"{each}\n" for each in lines)
            if language == "text" and found and found[-1].language == "sh" and not gap:
                before = found.pop()
                found.append(Block(page, before.line, heading, "sh", before.text, text))
            else:
                found.append(Block(page, start, heading, language, text))
            inside, gap = None, False
        else:
            inside[2].append(line)
    assert inside is None, f"{page}: the block of line {inside[0]} has no end"
    return found


def run(blocks, folder, forks):
    """Run what can be run of a page in the folder.

    What each block printed. The test fails where a block does. What it calls of abreast is forked
    from these processes.
    """
    script, outputs = ["set -eu -o pipefail\n"], []
    for number, block in enumerate(
        block for block in blocks if block.language == "sh" or block.file
    ):
        output = folder.parent / f"{folder.name}-{number}.out"
        outputs.append((block, output))
        script.append(f"exec > {output} 2>&1\n{block.script}")
    told = environment(folder)
    typed = "".join(block.text for block in blocks if block.language == "sh")
    line = forks.suiting(["matrix" if "abreast matrix" in typed else "map"]).line
    fork_commands(folder.parent / "tools", line)
    ended = subprocess.run(
        [shell(), "-c", "".join(script)],
        cwd=folder,
        env=told,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        pass_fds=(line,),
    )
    said = [
        (block, output.read_text("utf-8", "replace"))
        for block, output in outputs
        if output.exists()
    ]
    if ended.returncode:
        block, last = said[-1]
        if "abreast optimize" in block.text and " undecided" in last:
            pytest.xfail(f"{block.place}: this machine is too busy to time candidates")
        pytest.fail(
            f"{block.place}: exit code {ended.returncode}\n{block.text}\n{last}", pytrace=False
        )
    return said


def shell():
    return shutil.which("bash") or pytest.skip("bash is not installed")


def environment(folder):
    """The environment of a reader's shell.

    This abreast and this Python come first on the PATH, `timeout` is one that waits longer, and no
    settings of the test run are in it.
    """
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "timeout").write_text(
        f'exec {sys.executable} {Path(__file__).with_name("timeout.py")} "$@"\n', "utf-8"
    )
    (tools / "timeout").chmod(0o755)
    ours = (
        "ABREAST_",
        "CI",
        "COVERAGE_",
    )  # measuring takes half of the time, and reaches nothing that other tests don't
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join((str(tools), str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**inherited, "PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "100"}


def fork_commands(tools, line):
    """Have `abreast` and `python FILE.py` forked there: they are most of what pages start.

    By themselves where the page sets PYTHONPATH, which is read when an interpreter starts.
    """
    path = os.environ.get("PYTHONPATH", "")
    by_fork = f'exec "{sys.executable}" -I -S "{Path(__file__).with_name("forked.py")}" {line}'
    ours = Path(sys.executable).with_name("abreast")
    commands = {
        "abreast": f"""
            test "${{PYTHONPATH-}}" = "{path}" || exec "{ours}" "$@"
            {by_fork} "{ours}" "$@"
        """,
        "python": f"""
            case "$1" in
                *.py) program=$1; shift; {by_fork} "$PWD/$program" "$@" ;;
                *) exec "{sys.executable}" "$@" ;;
            esac
        """,
    }
    for name, script in commands.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}", "utf-8")
        (tools / name).chmod(0o755)


def project(folder):
    """A new directory that is a project of its own, so that no store above it is found."""
    folder.mkdir(parents=True)
    (folder / "abreast.toml").touch()
    return folder


def differs(block, said):
    """How what a block printed differs from what the page says; nothing if it doesn't."""
    wanted = [_plain(line) for line in block.expected.splitlines()]
    got = [_plain(line) for line in said.splitlines()]
    if _matches(wanted, got):
        return ""
    return f"{block.place} says\n{block.expected}\nand it printed\n{said}"


def _plain(line):
    for pattern, word in _DAILY:
        line = pattern.sub(word, line)
    return line.rstrip()


def _matches(wanted, got):
    if not wanted:
        return not got
    if wanted[0] == "...":
        return any(_matches(wanted[1:], got[at:]) for at in range(len(got) + 1))
    return bool(got) and wanted[0] == got[0] and _matches(wanted[1:], got[1:])
