"""The input fields that a template reads and that are missing, found before any call is made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from abreast.jobs.files.expressions import ExpressionText, find_blocks
from abreast.jobs.files.grammar import Expression
from abreast.jobs.files.terms import ChoiceTerm, FilterTerm, ItemTerm, Literal, Path, Term

Keys: TypeAlias = tuple[str, ...]

ROOT: Final = "input"
_MAX_NAMES: Final = 3  # inputs listed by name; the others are counted


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that a template reads and that some inputs lack."""

    line: int
    """The line in the template's text, from 0."""
    keys: Keys
    lacking: tuple[str, ...]
    """The inputs without it."""
    of: int
    """How many inputs there are."""

    def __str__(self) -> str:
        written = ".".join(self.keys)
        if self.keys[0] != ROOT:
            return (
                f"there is no {self.keys[0]!r} for {{{{ {written} }}}}; "
                f"fields of an input are {ROOT}.NAME"
            )
        if len(self.lacking) == self.of:
            return f"no input has the field of {{{{ {written} }}}}"
        named = ", ".join(self.lacking[:_MAX_NAMES])
        more = (
            f" and {len(self.lacking) - _MAX_NAMES} more" if len(self.lacking) > _MAX_NAMES else ""
        )
        return (
            f"the field of {{{{ {written} }}}} is missing in {named}{more}; where it may be, write "
            f"{{{{ {written} | default('') }}}}"
        )


def missing_fields(
    template: ExpressionText, inputs: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[Missing]:
    """The names that a template reads without a default and that some inputs lack, each once."""
    blocks = [template.text.count("\n", 0, block.start) for block in find_blocks(template.text)]
    parts = [part for part in template.parts if isinstance(part, Expression)]
    found: dict[Keys, Missing] = {}
    for line, part in zip(blocks, parts, strict=True):
        for keys in _required_keys(part.term):
            lacking = tuple(name for name, value in inputs if not _has({ROOT: value}, keys))
            if lacking:
                found.setdefault(keys, Missing(line, keys, lacking, len(inputs)))
    return list(found.values())


def _required_keys(term: Term) -> Iterator[Keys]:
    """The paths that must exist: not those with a default, nor those that a condition tests."""
    keys = _keys(term)
    if keys is not None:
        yield keys
    elif isinstance(term, FilterTerm) and term.name == "default":
        for argument in term.arguments:
            yield from _required_keys(argument)
    elif isinstance(term, ChoiceTerm):
        tested = set(_required_keys(term.test))
        for side in (term.then, term.other):
            yield from (keys for keys in _required_keys(side) if keys not in tested)
    else:
        for part in term.parts():
            yield from _required_keys(part)


def _keys(term: Term) -> Keys | None:
    """The path of a term that is written out, such as `input.a` or `input["a"]`; else None."""
    if isinstance(term, ItemTerm) and isinstance(term.key, Literal):
        before = _keys(term.of) if isinstance(term.key.held, str) else None
        return None if before is None else (*before, term.key.held)
    return term.keys if isinstance(term, Path) else None


def _has(value: Any, keys: Keys) -> bool:  # noqa: ANN401 - whatever an input holds
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True
