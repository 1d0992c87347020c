"""What work in other processes asks of its driver: done here, in the context of the work's item."""

import asyncio
import contextvars
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from abreast.executors.replies import failure_reply, success_reply
from abreast.executors.worker_channel import NO_ANSWER

# A packed reply, and whether it is kept for a call that begins anew.
_Reply: TypeAlias = tuple[bytes, bool]


class DriverRequests:
    """The requests of one call, such as its model calls.

    If the call begins anew because its machine was lost, requests that were answered are answered
    the same again, and what was posted is not repeated. Not so those with `is_remembered` False:
    they are large, and the same at any time.
    """

    def __init__(self, answer: Callable[[int, bytes], None]) -> None:
        """`answer` is called with the number of a request and its packed reply."""
        self._answer = answer
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[_Reply]] = set()
        self._counts: Counter[bytes] = Counter()
        self._answered: dict[tuple[bytes, int], bytes] = {}

    def handle(self, number: int, call: bytes) -> None:
        """Do what is asked, without waiting for it."""
        key = (call, self._counts[call])
        self._counts[call] += 1
        if number == NO_ANSWER:
            if key not in self._answered:
                self._answered[key] = b""
                self._context.run(pickle.loads(call))  # noqa: S301 - from a process of ours
            return
        if (reply := self._answered.get(key)) is not None:
            self._answer(number, reply)
            return
        loop = asyncio.get_running_loop()
        task = asyncio.Task(_reply_to(call), loop=loop, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._settle(done, number, key))

    def restart(self) -> None:
        """Forget what is under way: the call begins anew."""
        self._counts.clear()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End what is under way."""
        while self._tasks:
            self.restart()
            await asyncio.wait(self._tasks)

    def _settle(self, task: "asyncio.Task[_Reply]", number: int, key: tuple[bytes, int]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            reply, is_remembered = task.result()
            if is_remembered:
                self._answered[key] = reply
            self._answer(number, reply)


async def _reply_to(call: bytes) -> _Reply:
    try:
        function: Any = pickle.loads(call)  # noqa: S301 - from a process of ours
        reply = success_reply(await function(), "what was asked")
        return reply, getattr(function, "is_remembered", True)
    except Exception as error:  # noqa: BLE001 - raised where it was asked
        return failure_reply(error, "what was asked", __file__), True
