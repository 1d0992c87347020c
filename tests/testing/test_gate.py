"""A test's gate holds items for which it is not open, and lists those that have arrived."""

from __future__ import annotations

import asyncio

import pytest

from abreast.testing import Gate
from abreast.testing.clock import settle


async def test_those_it_is_opened_for_pass_and_the_others_wait():
    gate = Gate()
    passed: list[int] = []

    async def walk(who: int) -> None:
        await gate.pass_(who)
        passed.append(who)

    walkers = [asyncio.create_task(walk(who)) for who in range(4)]
    await gate.wait_for(0, 1, 2, 3)
    assert gate.arrived == [0, 1, 2, 3]
    assert gate.held == {0, 1, 2, 3}
    gate.open(2)
    await settle()
    assert passed == [2]
    assert gate.held == {0, 1, 3}
    gate.open(1)
    gate.open(1)
    await settle()
    gate.open_all()
    await asyncio.gather(*walkers)
    assert passed == [2, 1, 0, 3]
    assert gate.held == frozenset()


async def test_who_comes_after_it_was_opened_passes_at_once():
    gate = Gate()
    gate.open("a")
    await gate.pass_("a")
    gate.open_all()
    await gate.pass_("b")
    assert gate.arrived == ["a", "b"]
    await gate.wait_for("a", "b")


async def test_whoever_watches_is_told_when_the_last_of_those_has_come():
    gate = Gate()
    gate.open_all()
    watcher = asyncio.create_task(gate.wait_for(1, 2))
    await settle()
    await gate.pass_(1)
    await settle()
    assert not watcher.done()
    await gate.pass_(2)
    await gate.pass_(3)
    await watcher


async def test_waiting_for_someone_who_never_comes_is_an_error():
    with pytest.raises(TimeoutError):
        await Gate().wait_for("nobody", timeout=0)


async def test_who_is_cancelled_at_the_gate_is_no_longer_held():
    gate = Gate()
    walker = asyncio.create_task(gate.pass_("a"))
    await gate.wait_for("a")
    walker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walker
    assert gate.held == frozenset()
