"""Replies of workers: what a function returned or raised, pickled for the driver."""

import asyncio
import contextlib
import pickle
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from abreast.core.errors import RecordedError, type_name

Dumps: TypeAlias = Callable[[object], bytes]


def dumps_by_reference(value: object) -> bytes:
    """Pickle a value; functions and classes are pickled as their names."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def dumps_by_value() -> Dumps:
    """A function that pickles like that one, but closures and what is in a script with their code.

    Raises ImportError without cloudpickle, which the extra `ray` installs.
    """
    import cloudpickle

    return cloudpickle.dumps  # type: ignore[no-any-return]


class _WithoutInit:
    """Pickles an exception so that it is rebuilt without `__init__`.

    `__init__` often takes other arguments than those in `args`.
    """

    def __init__(self, error: BaseException) -> None:
        self._parts = (type(error), error.args, vars(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, self._parts


def rebuild(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    """Rebuild an exception from its class, arguments and attributes."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def success_reply(result: object, item: str, dumps: Dumps = dumps_by_reference) -> bytes:
    """Return the reply for a function's result; a failure if that can't be pickled."""
    try:
        return dumps((True, result, ""))
    except Exception as error:  # noqa: BLE001 - a class may raise anything when it is pickled
        kind = type_name(type(result))
        return failure_reply(
            TypeError(f"the value of {item}, a {kind}, can't leave its process: {error}"),
            item,
            __file__,
        )


def failure_reply(
    error: BaseException, item: str, caller: str, dumps: Dumps = dumps_by_reference
) -> bytes:
    """Return the reply for `error`.

    It contains the exception itself if a copy keeps its type and message, otherwise its text. The
    first frames of its traceback are left out if they are in the file `caller`.
    """
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == caller:
        frames = frames.tb_next
    trace = "".join(traceback.format_exception(error.with_traceback(frames)))
    # KeyboardInterrupt and its like would stop the driver's loop instead of failing one item.
    if isinstance(error, (Exception, asyncio.CancelledError, SystemExit)):
        for form in (error, _WithoutInit(error)):
            with contextlib.suppress(Exception):
                reply = dumps((False, form, trace))
                copy = pickle.loads(reply)[1]  # noqa: S301 - pickled in the line above
                if type(copy) is type(error) and str(copy) == str(error):
                    return reply
    recorded = RecordedError(type_name(type(error)), _message(error), trace)
    recorded.add_note(
        f"{item} raised it in a worker process; "
        "the exception itself can't leave that process, its text can"
    )
    return dumps_by_reference((False, recorded, trace))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        return "(its message can't be had)"
