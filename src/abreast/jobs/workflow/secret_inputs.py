"""Secret inputs: expressions see a mask.

Only a step that does something gets the value, and what it gives is masked.

So no path, digest, condition or output can hold one, and a run that goes on with another value of a
secret finds all that is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from abreast.jobs.workflow.spec import WorkflowInput
from abreast.jobs.workflow.steps.records import Record

MASK: Final = "***"


class SealedInputs(dict[str, Any]):
    """Inputs as expressions see them. `secrets` are the values behind the masks.

    An empty one is no secret.
    """

    def __init__(self, inputs: Sequence[WorkflowInput], values: Mapping[str, Any]) -> None:
        """`values` of the declared `inputs`."""
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
        """The values themselves."""
        return {**self, **self.secrets}


class Secrets:
    """Masks texts wherever they stand: in texts, lists, mappings, records and errors."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Iterable[str]) -> None:
        """The longest first, as one may hold another."""
        self._texts = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._texts)

    def hide(self, value: Any) -> Any:  # noqa: ANN401 - JSON's types
        """The value with every secret in it masked; a number that reads as one too."""
        if isinstance(value, str):
            for text in self._texts:
                value = value.replace(text, MASK)
            return value
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            make = getattr(
                value, "_make", type(value)
            )  # of a named tuple, which takes its fields apart
            return make([self.hide(one) for one in value])
        if is_dataclass(value) and not isinstance(value, type):
            facts = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
            return replace(value, **{name: self.hide(one) for name, one in facts.items()})
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return MASK if is_number and str(value) in self._texts else value

    def hide_record(self, record: Record) -> Record:
        """A step's result, masked."""
        return replace(record, output=self.hide(record.output), error=self.hide(record.error))

    def hide_error(self, error: BaseException) -> BaseException:
        """The error with masked words, and those that led to it.

        Another one if that can't be done.
        """
        for one in _chain(error):
            one.args = tuple(
                self.hide(word) if isinstance(word, str) else word for word in one.args
            )
        if not any(map(self._tells, _chain(error))):
            return error
        return RuntimeError(self.hide(f"{type(error).__name__}: {error}"))

    def _tells(self, error: BaseException) -> bool:
        words = f"{error}{error!r}{getattr(error, '__notes__', '')}"
        return any(text in words for text in self._texts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that led to it."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [before for before in (one.__cause__, one.__context__) if before is not None]
