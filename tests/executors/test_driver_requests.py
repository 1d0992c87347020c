"""What work in other processes asks of its driver, also when the work begins anew."""

import asyncio
import functools
import pickle

from abreast.executors.driver_requests import DriverRequests
from abreast.executors.worker_channel import NO_ANSWER

ASKED = []
ENDED = []


async def note(word):
    ASKED.append(word)
    return word.upper()


async def wait_for_ever(word):
    ASKED.append(word)
    try:
        await asyncio.Event().wait()
    finally:
        ENDED.append(word)


def post(word):
    ASKED.append(word)


def call(fn, word):
    return pickle.dumps(functools.partial(fn, word))


async def test_work_that_begins_anew_gets_the_same_answers_and_nothing_is_done_twice():
    ASKED.clear()
    answers = asyncio.Queue()
    requests = DriverRequests(lambda number, reply: answers.put_nowait((number, reply)))
    for _ in range(2):
        requests.handle(NO_ANSWER, call(post, "posted"))
        for number in (1, 2):  # the same request twice is two requests
            requests.handle(number, call(note, "a"))
            answered, reply = await asyncio.wait_for(answers.get(), 60)
            assert (answered, pickle.loads(reply)[:2]) == (number, (True, "A"))
        requests.restart()
    assert ASKED == ["posted", "a", "a"]
    await requests.close()


async def test_what_is_under_way_ends_with_the_work_and_is_not_answered():
    ASKED.clear()
    ENDED.clear()
    answers = []
    requests = DriverRequests(lambda *answer: answers.append(answer))
    requests.handle(1, call(wait_for_ever, "b"))
    await asyncio.sleep(0)
    await requests.close()
    assert (ASKED, ENDED, answers) == (["b"], ["b"], [])
