"""Work for other processes: in a module without pytest, which each of them would import."""

import asyncio
import os

import abreast
from abreast.core.outcome import Usage


async def ask(model, item):
    reply = await model.ask(f"item {item}")
    return reply.text, os.getpid()


def ask_in_a_thread_of_its_own_loop(model, item):
    return asyncio.run(ask(model, item))


async def ask_twice(model, item):
    replies = await asyncio.gather(model.ask(f"a {item}"), model.ask(f"b {item}"))
    return [reply.text for reply in replies]


async def hear(model, item):
    heard = []
    await model.ask(item, hear=heard.append)
    return heard


async def open_one(item):
    async with abreast.open_model(f"scripted/{item}") as model:
        return (await model.ask("hello")).text


def report(item):
    here = abreast.current()
    here.add_usage(Usage(1, item, 2 * item))
    here.note("mine", number=item)
    return item


async def report_later(item):
    await asyncio.sleep(0)
    return report(item)
