"""What work in other processes asks of its driver, also when the work begins anew."""

import asyncio
import functools
import pickle

from abreast.executors.driver_requests import DriverRequests
from abreast.executors.worker_channel import NO_ANSWER


def write(file, word):
    with file.open("a") as lines:
        lines.write(f"{word}\n")


async def note(file, word):
    write(file, word)
    return word.upper()


async def wait_for_ever(file, word):
    write(file, word)
    try:
        await asyncio.Event().wait()
    finally:
        write(file, f"{word} has ended")


def call(fn, *arguments):
    return pickle.dumps(functools.partial(fn, *arguments))


async def test_work_that_begins_anew_gets_the_same_answers_and_nothing_is_done_twice(tmp_path):
    file = tmp_path / "asked"
    answers = asyncio.Queue()
    requests = DriverRequests(lambda number, reply: answers.put_nowait((number, reply)))
    for _ in range(2):
        requests.handle(NO_ANSWER, call(write, file, "posted"))
        for number in (1, 2):  # the same request twice is two requests
            requests.handle(number, call(note, file, "a"))
            answered, reply = await asyncio.wait_for(answers.get(), 60)
            assert (answered, pickle.loads(reply)[:2]) == (number, (True, "A"))
        requests.restart()
    assert file.read_text().split("\n") == ["posted", "a", "a", ""]
    await requests.close()


async def test_what_is_under_way_ends_with_the_work_and_is_not_answered(tmp_path):
    file, answers = tmp_path / "asked", []
    requests = DriverRequests(lambda *answer: answers.append(answer))
    requests.handle(1, call(wait_for_ever, file, "b"))
    await asyncio.sleep(0)
    await requests.close()
    assert file.read_text() == "b\nb has ended\n"
    assert answers == []
