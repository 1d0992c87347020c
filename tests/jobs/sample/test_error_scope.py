"""What each error concerns: every class of the library is in exactly one place of the table."""

import inspect

import pytest

from abreast.core import errors
from abreast.core.errors import (
    AbreastError,
    CallFailed,
    CheckBroken,
    KeyRefused,
    RecordedError,
    Refused,
)
from abreast.jobs.sample.results import concern_of, error_from, error_text

TABLE = {
    "Refused": "draw",
    "ReplyBroken": "draw",
    "ReplyInvalid": "draw",
    "ServerFault": "branch",
    "ConnectionLost": "branch",
    "ReplyTimeout": "branch",
    "Throttled": "branch",
    "TooLong": "branch",
    "Unavailable": "branch",
    "CallFailed": "sample",
    "BatchMissed": "sample",
    "KeyRefused": "sample",
    "NoSuchModel": "sample",
    "NotRecorded": "sample",
    "QuotaSpent": "sample",
    "RequestRefused": "sample",
}
ALL = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, AbreastError)
]


def made(kind):
    """An error of that type, with the further arguments that it takes."""
    return kind.__new__(kind, "told")


def test_every_error_of_a_call_is_in_the_table():
    assert {kind.__name__ for kind in ALL if issubclass(kind, CallFailed)} == TABLE.keys()


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_concerns_whom_the_table_says_and_all_draws_if_it_is_not_there(kind):
    assert concern_of(made(kind)) == TABLE.get(kind.__name__, "sample")


@pytest.mark.parametrize(
    "error",
    [KeyError("a"), ValueError("b"), TimeoutError(), OSError("c"), RecordedError("x.Y", "")],
)
def test_what_is_not_known_concerns_every_draw(error):
    assert concern_of(error) == "sample"


def test_an_error_of_ones_own_concerns_what_its_base_does():
    class Blocked(Refused):
        """By a filter of the user's."""

    assert concern_of(Blocked("no")) == "draw"


@pytest.mark.parametrize(
    "error", [KeyRefused("who: are you"), CheckBroken("the check 'a' raised"), Refused("")]
)
def test_an_error_of_abreast_is_of_its_type_again(error):
    again = error_from(error_text(error))
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize(
    "text", ["KeyError: 'a'", "somewhere.Odd: x", "abreast.core.errors.Problem: x", "nothing", ""]
)
def test_what_is_not_abreasts_own_is_read_back_as_text(text):
    again = error_from(text)
    assert isinstance(again, RecordedError)
    assert str(again) == text
    assert concern_of(again) == "sample"
