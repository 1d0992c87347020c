"""Writes a plan as a file that people edit."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from abreast.jobs.plan.spec import Plan, PlanNode
from abreast.worktrees.merge.names import folders_above

_MIN_FOLDER: Final = 2  # files of a directory that is written as one entry
_HEAD: Final = """\
# Parts of a plan. Edit them, then: abreast plan run THIS_FILE --command '...'
# Merge or split parts, rename them, reorder them, move files from one to another.
# files: a file, a directory/ with all beneath it, or a pattern such as "*.md". A file that is
#   named counts more than a pattern, a pattern more than a directory, a directory more than those
#   above it: to move a file, name it in another part.
# id: keep it when you rename a part; a new part needs only name and files.
# instructions: what this part is told besides the prompt.  after: [the parts that it waits for].
# Beside parts: exclude: [patterns], and the work: command, call or prompt (abreast schema plan).
"""


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan as a file to edit: the options beside its parts, and what each part waits for."""

    plan: Plan
    options: Mapping[str, Any]
    needs: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        plan: Plan,
        options: Mapping[str, Any],
        needs: Mapping[str, Sequence[str]] | None = None,
    ) -> Self:
        """The file of a plan; options that are None are left out."""
        given = {word: value for word, value in options.items() if value not in (None, (), [])}
        return cls(plan, given, needs or {})

    def text(self) -> str:
        """The file's text."""
        lines = [_HEAD + "plan:"]
        lines += [f"  {word}: {_scalar(value)}" for word, value in self.options.items()]
        lines.append("  parts:")
        files_of = written_files(self.plan)
        for leaf in self.plan.leaves:
            lines += [f"    - id: {leaf.id}", f"      name: {_scalar(_writable(leaf.scope))}"]
            files = "file" if len(leaf.files) == 1 else "files"
            lines.append(f"      files:  # {len(leaf.files):,} {files}, {leaf.tokens:,} tokens")
            lines += [f"        - {_scalar(entry)}" for entry in files_of[leaf.id]]
            if leaf.instructions:
                lines.append("      instructions: |")
                lines += [f"        {line}".rstrip() for line in leaf.instructions.splitlines()]
            if self.needs.get(leaf.id):
                lines.append(f"      after: {_scalar(list(self.needs[leaf.id]))}")
        return "\n".join(lines) + "\n"


def written_files(plan: Plan) -> dict[str, list[str]]:
    """The files of each leaf as the file of a plan has them, by its id."""
    whole = _whole_folders(plan)
    return {leaf.id: _entries(leaf, whole) for leaf in plan.leaves}


def _whole_folders(plan: Plan) -> dict[str, str]:
    """The directories whose files all belong to one leaf, and that leaf."""
    found: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for path in plan.left_out:
        found |= dict.fromkeys(folders_above(path), "")
    for leaf in plan.leaves:
        for path in leaf.files:
            for folder in folders_above(path):
                counts[folder] += 1
                if found.setdefault(folder, leaf.id) != leaf.id:
                    found[folder] = ""
    return {
        folder: leaf for folder, leaf in found.items() if counts[folder] >= _MIN_FOLDER and leaf
    }


def _entries(leaf: PlanNode, whole: Mapping[str, str]) -> list[str]:
    """The files of a leaf, with directories that are its own as one entry."""
    found: dict[str, None] = {}
    for path in leaf.files:
        own = [folder for folder in folders_above(path) if whole.get(folder) == leaf.id]
        found[f"{own[-1]}/" if own else _writable(path)] = None
    return [*found]


def _writable(path: str) -> str:
    """The path, with a wildcard for each character that YAML can't hold."""
    return "".join("?" if "\ud800" <= one <= "\udfff" else one for one in path)


_PLAIN: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*")
_NOT_TEXT: Final = re.compile(
    r"[0-9.+-]+(e[0-9]+)?|true|false|null|yes|no|on|off|[yn]|0[xo][0-9a-f_]+", re.IGNORECASE
)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    return json.dumps(value, ensure_ascii=False) if not _has_controls(value) else json.dumps(value)


def _has_controls(value: object) -> bool:
    return isinstance(value, str) and not value.isprintable()
