"""A workflow's inputs: converts given values to the types that the file declares, hides secrets.

Expressions see a mask instead of a secret. Only an action gets the value, and its output is masked.
So no path, digest, condition or output can hold a secret, and a run that is resumed with another
value of a secret finds all recorded results.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from abreast.jobs.files.problems import shown
from abreast.jobs.workflow.spec import WorkflowInput
from abreast.jobs.workflow.steps.records import Record

MASK: Final = "***"
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def resolve_inputs(
    inputs: Sequence[WorkflowInput],
    given: Mapping[str, Any],
    ask: Callable[[WorkflowInput], str] | None = None,
) -> dict[str, Any]:
    """Return the value of every input: the given one, else its default, else the answer of `ask`.

    `ask` is called for required inputs only; pass it only where a user can answer. An input that is
    neither given nor required and has no default is left out. A ValueError has one line for each
    problem.

    >>> number = WorkflowInput("n", 1, type="number")
    >>> loud = WorkflowInput("loud", 2, has_default=True, default="no")
    >>> resolve_inputs([number, loud], {"n": "4"})
    {'n': 4, 'loud': 'no'}
    """
    names = [one.name for one in inputs]
    problems = [_unknown_input(name, names) for name in given if name not in names]
    found: dict[str, Any] = {}
    for one in inputs:
        try:
            if one.name in given:
                found[one.name] = coerce(one, given[one.name])
            elif one.has_default:
                found[one.name] = coerce(one, one.default)
            elif one.required and ask is not None and not problems:
                found[one.name] = coerce(one, ask(one))
            elif one.required:
                problems.append(f"the input {one.name!r} is required: pass --input {one.name}=...")
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return found


def coerce(one: WorkflowInput, given: Any) -> Any:  # noqa: ANN401 - any value of a file or caller
    """Convert a value to the type that the input declares; a ValueError says what it should be."""
    if one.secret:  # no message shows it
        if not isinstance(given, str) or (one.enum is not None and given not in one.enum):
            raise ValueError(
                f"the input {one.name!r}, which is secret, is not a text that it allows"
            )
        return given
    value = _CONVERTERS[one.type](one.name, given)
    exempt = one.name == "integration" and value == "auto"  # the project's own integration
    # True and 1 are equal in Python, and not here.
    kind = isinstance(value, bool)
    if one.enum is not None and not (
        exempt or any(value == choice and kind == isinstance(choice, bool) for choice in one.enum)
    ):
        choices = ", ".join(map(shown, one.enum))
        raise ValueError(f"the input {one.name!r} must be one of {choices}, not {shown(given)}")
    return value


def _to_text(name: str, given: object) -> str:
    if isinstance(given, str):
        return given
    raise ValueError(f"the input {name!r} must be a text, not {shown(given)}; put it in quotes")


def _to_number(name: str, given: object) -> int | float:
    """Convert to an int where it is whole, without going through a float.

    It may be an id of 20 digits, which a float can't hold.
    """
    try:
        if isinstance(given, str):
            try:
                return int(given)
            except ValueError:
                given = float(given)
        if isinstance(given, float) and math.isfinite(given):
            return int(given) if given.is_integer() else given
    except ValueError:
        pass
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise ValueError(f"the input {name!r} must be a number, not {shown(given)}")


def _to_boolean(name: str, given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = given.lower() if isinstance(given, str) else ""
    if word not in _BOOLEANS:
        raise ValueError(f"the input {name!r} must be true or false, not {shown(given)}")
    return _BOOLEANS[word]


_CONVERTERS: Final[dict[str, Callable[[str, object], Any]]] = {
    "string": _to_text,
    "number": _to_number,
    "boolean": _to_boolean,
}


def _unknown_input(name: str, names: Sequence[str]) -> str:
    there = f"there are {', '.join(names)}" if names else "the workflow takes none"
    close = get_close_matches(name, names, 1)
    return f"there is no input {name!r}; {f'did you mean {close[0]}?' if close else there}"


class SealedInputs(dict[str, Any]):
    """Inputs as expressions see them. `secrets` are the values behind the masks.

    An empty value is not masked.
    """

    def __init__(self, inputs: Sequence[WorkflowInput], values: Mapping[str, Any]) -> None:
        """Mask those of the `values` whose `inputs` are declared secret."""
        hidden = {one.name for one in inputs if one.secret}
        self.secrets = {
            name: str(value)
            for name, value in values.items()
            if name in hidden and value not in (None, "")
        }
        super().__init__(
            {name: MASK if name in self.secrets else value for name, value in values.items()}
        )

    @property
    def revealed(self) -> dict[str, Any]:
        """All inputs with their values, unmasked."""
        return {**self, **self.secrets}


class Secrets:
    """Masks secret texts inside texts, lists, mappings, records and errors."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Iterable[str]) -> None:
        # The longest first, as one may contain another.
        self._texts = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))

    def __bool__(self) -> bool:
        return bool(self._texts)

    def hide(self, value: Any) -> Any:  # noqa: ANN401 - JSON's types
        """Return the value with every secret masked, also a number that equals one as text."""
        if isinstance(value, str):
            for text in self._texts:
                value = value.replace(text, MASK)
            return value
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            # A named tuple's constructor takes each field as an argument; its `_make` takes a list.
            return getattr(value, "_make", type(value))([self.hide(one) for one in value])
        if is_dataclass(value) and not isinstance(value, type):
            facts = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
            return replace(value, **{name: self.hide(one) for name, one in facts.items()})
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return MASK if is_number and str(value) in self._texts else value

    def hide_record(self, record: Record) -> Record:
        """Return a step's result, masked."""
        return replace(record, output=self.hide(record.output), error=self.hide(record.error))

    def hide_error(self, error: BaseException) -> BaseException:
        """Mask the arguments of the error and of its causes, and return it.

        If a secret still shows, return a RuntimeError with the masked text instead.
        """
        for one in _chain(error):
            one.args = tuple(
                self.hide(word) if isinstance(word, str) else word for word in one.args
            )
        words = [f"{one}{one!r}{getattr(one, '__notes__', '')}" for one in _chain(error)]
        shows = any(text in word for word in words for text in self._texts)
        return RuntimeError(self.hide(f"{type(error).__name__}: {error}")) if shows else error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and its contexts, each once."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [before for before in (one.__cause__, one.__context__) if before is not None]
