"""Who waits for memory gets it as soon as it is free."""

from __future__ import annotations

import asyncio
import contextlib

from kdump.serve.memory_budget import MemoryBudget


def waiting(budget: MemoryBudget, size_bytes: int, got: list[int]) -> asyncio.Task[None]:
    """Somebody who takes bytes, notes how many, and keeps them."""

    async def take() -> None:
        async with budget.hold(size_bytes, size_bytes) as held:
            got.append(held.size_bytes)
            await asyncio.Event().wait()

    return asyncio.get_running_loop().create_task(take())


async def settle() -> None:
    """Let all tasks go on until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def cancel(*tasks: asyncio.Task[None]) -> None:
    for each in tasks:
        each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await each


def test_what_somebody_gives_back_early_is_for_those_who_wait() -> None:
    async def run() -> None:
        budget, got = MemoryBudget(100), list[int]()
        async with budget.hold(100, 100) as held:
            tasks = [waiting(budget, 40, got), waiting(budget, 40, got)]
            await settle()
            assert got == []
            budget.resize(held, 10)
            await settle()
            assert got == [40, 40]
            await cancel(*tasks)
        assert budget.free_bytes == 100

    asyncio.run(run())


def test_who_needs_less_is_not_kept_by_who_needs_more() -> None:
    async def run() -> None:
        budget, got = MemoryBudget(100), list[int]()
        async with budget.hold(100, 100) as held:
            tasks = [waiting(budget, 90, got), waiting(budget, 20, got)]
            await settle()
            budget.resize(held, 50)
            await settle()
            assert got == [20]
            await cancel(tasks[1])
        await settle()
        assert got == [20, 90]
        await cancel(tasks[0])
        assert budget.free_bytes == 100

    asyncio.run(run())


def test_who_does_not_wait_any_more_gets_nothing() -> None:
    async def run() -> None:
        budget, got = MemoryBudget(100), list[int]()
        async with budget.hold(100, 100) as held:
            early, late = waiting(budget, 60, got), waiting(budget, 60, got)
            await settle()
            await cancel(early)
            # It is given the bytes, and cancelled before it can take them.
            budget.resize(held, 0)
            late.cancel()
            await settle()
        assert got == []
        assert budget.free_bytes == 100

    asyncio.run(run())
