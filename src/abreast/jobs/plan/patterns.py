"""Patterns of paths: `docs/` a directory with all in it, `*.md` at any depth, `src/*/tests`.

    PathPattern.read("docs/").matches("src/docs/index.md")     # True

A pattern without a `/` in it, or with one only at its end, is compared with names at any depth;
others are compared with whole paths, and in these `*` also stands for `/`; in git's own files it
does not, but `**` does.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from abreast.jobs.plan.errors import PlanInvalid

_WILDCARDS: Final = re.compile(r"[*?\[]")
_SEGMENTS: Final = re.compile(
    r"\A\*\*/|/\*\*/|/\*\*\Z|\*+|\?|\[!?\]?[^]]*\]|\\.|[^*?[\\/]+|.", re.DOTALL
)
_WILD: Final = {"**/": "(?:.*/)?", "/**/": "/(?:.*/)?", "/**": "/.*", "?": "[^/]"}


def is_pattern(text: str) -> bool:
    """Whether a text has wildcards."""
    return _WILDCARDS.search(text) is not None


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern for paths from the root."""

    text: str
    expression: re.Pattern[str]

    @classmethod
    def read(cls, text: str, *, beneath: str = "", git: bool = False) -> Self:
        """Read a pattern, of paths beneath a directory; as git reads it, if `git`.

        Raises `PlanInvalid` if it is none.
        """
        body = text.strip().removeprefix("./")
        if not body.strip("/"):
            raise PlanInvalid(f"{text!r} is not a pattern of paths")
        if body.startswith("!"):
            raise PlanInvalid(f"{text!r}: patterns are not negated; use include and exclude")
        anchored = "/" in body.rstrip("/")
        many = ".*" if anchored and not git else "[^/]*"  # a name has no slash
        made = "".join(_regex(token, many) for token in _SEGMENTS.findall(body.strip("/")))
        end = "/.*" if body.endswith("/") else "(?:/.*)?"
        start = re.escape(f"{beneath}/") if beneath else ""
        try:
            found = re.compile(start + ("" if anchored else "(?:.*/)?") + made + end, re.DOTALL)
        except re.error:
            raise PlanInvalid(f"{text!r} is not a pattern of paths") from None
        return cls(text, found)

    def matches(self, path: str) -> bool:
        """Whether it matches a path, or a directory above it."""
        return self.expression.fullmatch(path) is not None


def _regex(token: str, many: str) -> str:
    if token in _WILD:
        return _WILD[token]
    if token.startswith("*"):
        return many
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
        return f"[^/{inner[1:]}]" if inner.startswith(("!", "^")) else f"[{inner}]"
    return re.escape(token.removeprefix("\\"))
