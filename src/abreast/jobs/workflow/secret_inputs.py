"""Secret inputs: expressions see a mask instead of the value.

Only an action gets the value, and its output is masked. So no path, digest, condition or output can
hold a secret, and a run that is resumed with another value of a secret finds all recorded results.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from abreast.jobs.workflow.spec import WorkflowInput
from abreast.jobs.workflow.steps.records import Record

MASK: Final = "***"


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
        """Sort the texts, the longest first, as one may contain another."""
        self._texts = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))

    def __bool__(self) -> bool:
        """Return whether there is any secret."""
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
            make = getattr(value, "_make", type(value))
            return make([self.hide(one) for one in value])
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
        if not any(map(self._shows_secret, _chain(error))):
            return error
        return RuntimeError(self.hide(f"{type(error).__name__}: {error}"))

    def _shows_secret(self, error: BaseException) -> bool:
        words = f"{error}{error!r}{getattr(error, '__notes__', '')}"
        return any(text in words for text in self._texts)


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
