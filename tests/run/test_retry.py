"""Retries: how often, after how long, and for which errors."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core import errors
from abreast.core.errors import TimedOut, WorkerDied
from abreast.run.retry import Retry, classify

SEEDS = st.integers(0, 2**63 - 1)
PATHS = st.sampled_from(["run/map/0000", "run/map/0001", "other"])


class Busy(Exception):
    """What a server says that wants to be asked later."""

    def __init__(self, retry_after: object) -> None:
        super().__init__("busy")
        self.retry_after = retry_after


class SaysItself(Exception):
    def __init__(self, retryable: bool) -> None:
        super().__init__("said")
        self.retryable = retryable


@given(retries=st.integers(0, 10), attempt=st.integers(1, 15), seed=SEEDS, path=PATHS)
def test_there_are_as_many_attempts_as_one_and_the_retries(retries, attempt, seed, path):
    delay = Retry(retries).delay(OSError(), attempt, seed, path)
    assert (delay is not None) == (attempt <= retries)


@given(
    attempt=st.integers(1, 2000),
    seed=SEEDS,
    path=PATHS,
    base=st.floats(0, 10),
    more=st.floats(0, 1000),
)
def test_a_backoff_is_somewhere_below_a_ceiling_that_doubles_up_to_the_cap(
    attempt, seed, path, base, more
):
    retry = Retry(2000, base=base, cap=base + more)
    delay = retry.delay(OSError(), attempt, seed, path)
    assert delay is not None
    assert 0 <= delay <= min(retry.cap, base * 2.0 ** min(attempt - 1, 1000))


@given(attempt=st.integers(1, 5), seed=SEEDS, path=PATHS)
def test_a_repeated_run_waits_alike_and_other_items_and_attempts_wait_differently(
    attempt, seed, path
):
    retry = Retry(5, base=1.0, cap=1.0)
    delay = retry.delay(OSError(), attempt, seed, path)
    assert delay == retry.delay(ValueError(), attempt, seed, path)
    assert delay != retry.delay(OSError(), attempt % 5 + 1, seed, path)
    assert delay != retry.delay(OSError(), attempt, seed + 1, path)
    assert delay != retry.delay(OSError(), attempt, seed, f"{path}/beneath")


def test_the_jitter_is_full():
    delays = [Retry(1, base=1.0).delay(OSError(), 1, 7, f"item {number}") for number in range(200)]
    assert min(delays) < 0.05
    assert max(delays) > 0.95


@given(after=st.floats(0, 1e6), seed=SEEDS)
def test_an_error_that_says_how_long_to_wait_is_waited_for_at_least_that_long(after, seed):
    plain = Retry(1).delay(OSError(), 1, seed, "path")
    assert Retry(1).delay(Busy(after), 1, seed, "path") == max(after, plain)


@pytest.mark.parametrize("after", [None, "soon", math.nan, -5.0])
def test_what_says_no_time_changes_no_time(after):
    assert Retry(1).delay(Busy(after), 1, 7, "path") == Retry(1).delay(OSError(), 1, 7, "path")


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), BrokenPipeError(), TimedOut(), WorkerDied()]
)
def test_what_passes_by_itself_is_retryable(error):
    assert classify(error) == "retryable"


@pytest.mark.parametrize(
    "error", [TypeError(), KeyError("x"), ZeroDivisionError(), ImportError(), SystemExit(1)]
)
def test_a_bug_is_fatal_and_never_tried_again(error):
    assert classify(error) == "fatal"
    assert Retry(5).delay(error, 1, 7, "path") is None


@pytest.mark.parametrize(
    "error", [ValueError(), OSError(), RuntimeError(), errors.RecordedError("X", "x")]
)
def test_what_nobody_knows_is_tried_again(error):
    assert classify(error) == "unknown"
    assert Retry(5).delay(error, 1, 7, "path") is not None


@pytest.mark.parametrize(
    "kind",
    [
        errors.Halted,
        errors.CancelRequested,
        errors.BudgetSpent,
        errors.KeyReused,
        errors.ItemChanged,
        errors.OutcomeUnknown,
        errors.WouldBlock,
        errors.CannotStore,
    ],
)
def test_what_would_be_the_same_again_is_fatal(kind):
    assert classify(kind("why")) == "fatal"


def test_an_error_may_say_itself_whether_to_try_again():
    assert classify(SaysItself(retryable=True)) == "retryable"
    assert classify(SaysItself(retryable=False)) == "fatal"


def test_the_classification_may_be_ones_own():
    retry = Retry(
        1, classify=lambda error: "fatal" if isinstance(error, ValueError) else "retryable"
    )
    assert retry.delay(ValueError(), 1, 7, "path") is None
    assert retry.delay(TypeError(), 1, 7, "path") is not None


def test_retry_has_one_form():
    assert Retry.of(None) is None
    assert Retry.of(0) is None
    assert Retry.of(2) == Retry(2)
    given = Retry(1, base=0.1)
    assert Retry.of(given) is given


@pytest.mark.parametrize("retry", [-1, 2.5, True, False, math.nan, "3"])
def test_a_number_of_retries_is_whole(retry):
    with pytest.raises(ValueError, match="retry must be"):
        Retry.of(retry)
    with pytest.raises(ValueError, match="retries must be"):
        Retry(retry)


@pytest.mark.parametrize(("base", "cap"), [(-1, 60), (2, 1), (math.nan, 60), (0.5, math.nan)])
def test_numbers_that_make_no_backoff_are_refused(base, cap):
    with pytest.raises(ValueError, match="0 <= base <= cap"):
        Retry(1, base=base, cap=cap)
