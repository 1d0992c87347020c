"""Checks, strategies and scores that are plain functions or async, and checks that are texts."""

import threading
from functools import partial

import pytest

import abreast
from abreast.core.errors import CheckBroken
from abreast.jobs.sample.check_texts import as_checks
from abreast.jobs.sample.results import CheckVerdict
from abreast.jobs.sample.strategies import BestOf, Rejection, Turn, Vote
from abreast.models.port import Message
from abreast.models.scripted import Scripted
from tests.jobs.sample.drawing import Table, at, passes
from tests.jobs.sample.test_corners import model_of

LOOP = threading.main_thread()


def is_on_loop():
    return threading.current_thread() is LOOP


async def drawn(table, **options):
    return await abreast.sample("Say.", model=model_of(table), **options)


async def no(text):
    return False


class AsyncCheck:
    """An object that is called like an async function."""

    async def __call__(self, text):
        return False


class OwnCheck:
    """A check of the user's own, whose `run` is plain."""

    name, shown, costs = "own", None, False

    def __init__(self):
        self.on_loop = []

    def run(self, draft):
        self.on_loop.append(is_on_loop())
        return CheckVerdict("own", ok=draft.text.startswith("good"))


def looks_plain(text):
    return no(text)


@pytest.mark.parametrize(
    "check", [no, partial(no), AsyncCheck(), looks_plain], ids=["def", "partial", "object", "plain"]
)
async def test_an_async_check_is_awaited_whatever_its_form(check):
    result = await drawn(Table(at((0, 0))), checks=[check])
    assert (result.ok, result.counts.completed) == (False, 1)


async def test_plain_checks_run_in_threads_and_async_ones_on_the_loop():
    seen = {}

    def plain(text):
        seen["plain"] = is_on_loop()
        return True

    async def later(text):
        seen["async"] = is_on_loop()
        return True

    own = OwnCheck()
    result = await drawn(Table(at((0, 0))), checks=[plain, later, own])
    assert result.ok
    assert (seen, own.on_loop) == ({"plain": False, "async": True}, [False])


async def test_a_strategy_may_be_a_function_plain_or_async():
    seen = []

    def plain(question, history):
        seen.append(is_on_loop())
        return question.text if history.last is None else f"not {history.last.text}"

    async def later(question, history):
        seen.append(is_on_loop())
        return [{"role": "user", "content": "listed"}]

    table = Table(at((0, 1)))
    assert (await drawn(table, checks=[passes], depth=2, strategy=plain)).ok
    assert [one.messages[0].content for one in table.requests] == ["Say.", "not bad 0.0"]
    table = Table(at((0, 0)))
    assert (await drawn(table, checks=[passes], strategy=later)).ok
    assert table.requests[0].messages == (Message("user", "listed"),)
    assert seen == [False, False, True]
    with pytest.raises(TypeError, match="must return a text, messages or a Turn, not 3"):
        await drawn(Table(at()), strategy=lambda question, history: 3)
    with pytest.raises(TypeError, match="a strategy is a name, one of"):
        await drawn(Table(at()), strategy=3)
    with pytest.raises(TypeError, match="a strategy is a name, one of"):
        await drawn(Table(at()), strategy=dict)


class Own(Rejection):
    """A strategy whose methods are async."""

    async def next(self, question, history):
        return Turn(question.turns("own"))

    async def select(self, attempts):
        return attempts[-1]


async def test_the_methods_of_an_own_strategy_may_be_async():
    table = Table(at())
    result = await drawn(table, checks=[passes], depth=2, strategy=Own())
    assert (result.text, table.requests[0].messages[0].content) == ("bad 0.1", "own")
    model = model_of(table)
    assert abreast.dry_run_sample("Say.", model=model, strategy=Own()).worst_requests == 1


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_scores_of_best_of_are_plain_or_async(kind):
    seen = []

    def plain(attempt):
        seen.append(is_on_loop())
        return attempt.branch % 3

    async def later(attempt):
        return plain(attempt)

    table = Table(lambda branch, number: f"good {branch}")
    strategy = BestOf(plain if kind == "plain" else later)
    result = await drawn(table, checks=[passes], breadth=4, strategy=strategy)
    assert (result.text, seen) == ("good 2", [kind == "async"] * 4)


def test_a_vote_compares_with_plain_functions():
    with pytest.raises(TypeError, match="same and risk of a Vote must be plain functions"):
        Vote(same=no)


# --- checks that are texts


def upper(text):
    return text.isupper()


async def test_checks_are_texts_as_on_the_command_line():
    judge = '{"reason": "rude", "meets": false}'
    table = Table(at((0, 0)))
    result = await drawn(
        table,
        checks=["max-words 2", "hidden regex ^good", "judge: is it polite?"],
        judge=Scripted(lambda _: judge),
    )
    assert [(one.check, one.ok) for one in result.attempts[0].verdicts] == [
        ("at most 2 words", True),
        ("matches ^good", True),
        ("judged: is it polite?", False),
    ]
    assert table.requests[0].messages[0].content.startswith("Say.\nUse at most 2 words.")


async def test_a_text_may_name_a_function_or_a_schema(tmp_path):
    (tmp_path / "s.json").write_text('{"type": "object"}')
    made = as_checks([f"call {__name__}:upper", f"schema {tmp_path}/s.json"])
    assert made[0].fn is upper
    result = await drawn(Table(at((0, 0))), checks=made)
    assert not result.ok


@pytest.mark.parametrize(
    ("checks", "error", "says"),
    [
        (["max-word 20"], ValueError, "there is no check 'max-word'; did you mean 'max-words'?"),
        (["max-words many"], ValueError, "needs a whole number of at least 1"),
        (["call no.where:fn"], ValueError, "the check 'call no.where:fn' has no function"),
        (["call json:nothing"], ValueError, "the check 'call json:nothing' has no function"),
        (["schema no.json"], ValueError, "the schema no.json can't be read"),
        ("max-words 20", TypeError, r"checks must be a list, such as \['max-words 20'\]"),
        (upper, TypeError, "checks must be a list"),
        (["json", "json"], ValueError, "two checks are called 'is JSON'"),
    ],
)
async def test_a_wrong_check_is_one_sentence(checks, error, says):
    table = Table(at())
    with pytest.raises(error, match=says):
        await drawn(table, checks=checks)
    assert table.asked == []


async def test_an_async_check_that_raises_is_a_fault_of_the_check():
    async def raises(text):
        raise KeyError("x")

    with pytest.raises(CheckBroken, match="raised KeyError"):
        await drawn(Table(at()), checks=[raises])
