"""Knows which commands read their words or their input as code again."""

import re
from collections.abc import Sequence
from typing import Final

SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"})
_LANGUAGES: Final = frozenset(
    {"perl", "ruby", "node", "nodejs", "php", "lua", "Rscript", "osascript", "deno", "bun"}
)
_PYTHON: Final = re.compile(r"(python|pypy)[\d.]*")
_CODE_FLAG: Final = re.compile(r"-[A-Za-z]*[ceErp]|--eval|--command|--execute|-S")
_REMOTE: Final = frozenset({"ssh", "rsh", "mosh", "parallel", "watch"})
_DATABASES: Final = frozenset({"psql", "mysql", "mariadb", "sqlite3", "duckdb"})
_PROGRAMS: Final = frozenset({"awk", "gawk", "mawk", "nawk", "sed", "gsed", "jq", "yq"})
_FLAGS_WITH_VALUES: Final = {"-v": 1, "-F": 1, "-f": 1, "--arg": 2, "--argjson": 2}
_PREFIXES: Final = frozenset(
    {"command", "builtin", "exec", "sudo", "nohup", "time", "env", "nice", "doas"}
)

# Where bash reads a word as the name of a variable, `a[$(date)]` runs date.
_NAME_TAKERS: Final = frozenset(
    {
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "unset",
        "read",
        "getopts",
        "mapfile",
        "readarray",
    }
)
_READ_FLAGS: Final = frozenset({"-p", "-d", "-t", "-n", "-N", "-u", "-i"})


def _names(words: Sequence[str]) -> list[str]:
    """Return the words as program names, without directories and prefixes such as `sudo`."""
    names = [word.rpartition("/")[2] for word in words]
    while names and names[0] in _PREFIXES:
        names.pop(0)
    return names


def _is_interpreter(name: str) -> bool:
    return name in SHELLS or name in _LANGUAGES or _PYTHON.fullmatch(name) is not None


def refusal(words: Sequence[str], word: str) -> str | None:
    """Return why no value may be in the word after these; `word` is its beginning so far."""
    names = _names(words)
    first = names[0] if names else ""
    if first == "[[":
        return "[[ ]] reads some values as formulas: use [ ]"
    if first == "let":
        return "let reads its words as formulas: use $(( ))"
    if (
        first in _NAME_TAKERS
        and "=" not in word
        and not (first == "read" and names[-1] in _READ_FLAGS)
    ):
        return (
            f"{first} reads its words as names of variables, and a value must not name one: "
            "write the name out"
        )
    return (
        f"{first} {names[-1]} reads the next word as the name of a variable: write the name out"
        if first in {"printf", "test", "["} and names[-1] in {"-v", "-R"}
        else None
    )


def reads_word_as_code(words: Sequence[str]) -> str | None:
    """Return the program that reads the word after these as code, if there is one."""
    names = _names(words)
    if not names:
        return None
    first, last = names[0], names[-1]
    if first in {"eval", "trap"} | _REMOTE:
        return first
    if _CODE_FLAG.fullmatch(last):
        for name in reversed(names[:-1]):
            if _is_interpreter(name) or name in {"su", "env"} | _DATABASES:
                return f"{name} {last}"
    return first if first in _PROGRAMS and _is_next_the_program(names) else None


def _is_next_the_program(names: list[str]) -> bool:
    """Return whether all words so far are flags and their values."""
    skip = 0
    for name in names[1:]:
        if skip:
            skip -= 1
        elif name.startswith("-") and name != "-":
            skip = _FLAGS_WITH_VALUES.get(name, 0)
        else:
            return False
    return skip == 0


def reads_input_as_code(words: Sequence[str]) -> str | None:
    """Return the program of this command that reads its input as code, if there is one."""
    names = _names(words)
    if not names:
        return None
    first, rest = names[0], [name for name in names[1:] if not name.startswith("-")]
    if first in _REMOTE | _DATABASES:
        return first
    if first == "xargs":
        return next((f"xargs {name}" for name in rest if _is_interpreter(name)), None)
    reads = _is_interpreter(first) and (not rest or "-s" in names)
    return first if reads and not any(map(_CODE_FLAG.fullmatch, names)) else None
