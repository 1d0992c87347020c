"""The errors of core: each says what it is for, and can be pickled."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core import errors
from abreast.core.errors import AbreastError, ItemsFailed, RecordedError, WorkerDied


def all_errors() -> list[type[AbreastError]]:
    return [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, AbreastError)
    ]


def an_error(kind: type[AbreastError]) -> AbreastError:
    if kind is RecordedError:
        return RecordedError("KeyError", "'x'", "Traceback ...")
    if kind is ItemsFailed:
        return ItemsFailed("two items failed", (RecordedError("A", "a"), RecordedError("B", "b")))
    return kind("what happened")


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_says_what_it_is_for_and_is_an_exception_of_ours(kind):
    assert kind.__doc__
    assert issubclass(kind, AbreastError)


@pytest.mark.parametrize("kind", all_errors())
@pytest.mark.parametrize("travel", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_every_error_arrives_in_another_process_as_it_was(kind, travel):
    error = an_error(kind)
    arrived = travel(error)
    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_an_error_of_many_items_says_its_message_and_keeps_them_all():
    failures = (OSError("a"), ValueError("b"))
    error = ItemsFailed("two items failed", failures)
    assert str(error) == "two items failed"
    assert error.errors == failures


@given(kind=st.text(min_size=1), message=st.text(), trace=st.text())
def test_a_recorded_error_reads_as_the_last_line_of_a_traceback(kind, message, trace):
    error = RecordedError(kind, message, trace)
    assert str(error) == (f"{kind}: {message}" if message else kind)
    assert (error.kind, error.message, error.trace) == (kind, message, trace)


TEXTS = st.sampled_from(["", "a", "b"])


@given(one=st.tuples(TEXTS, TEXTS, TEXTS), other=st.tuples(TEXTS, TEXTS, TEXTS))
def test_recorded_errors_are_equal_when_their_texts_are(one, other):
    assert (RecordedError(*one) == RecordedError(*other)) == (one == other)
    if one == other:
        assert hash(RecordedError(*one)) == hash(RecordedError(*other))
    assert RecordedError(*one) != one


def test_a_worker_that_died_may_be_replaced():
    assert WorkerDied.retryable
