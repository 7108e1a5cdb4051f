"""Work that is cheaper together: one thread does it, and what comes meanwhile is its next turn."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Turns(Generic[Item, Result]):
    """``work`` gets the items of a turn and gives a result for each.

    Where it raises, each item is tried alone: one is at fault, or not all find room.
    ``drop``: what to do with a result that nobody waits for any more.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], Sequence[Result]],
        drop: Callable[[Result], object] = lambda _: None,
    ):
        self._work, self._drop = work, drop
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._thread = ThreadPoolExecutor(1, name)
        self._pump: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> list[Item]:
        """What waits for the next turn."""
        return [item for item, _ in self._waiting]

    async def __call__(self, item: Item) -> Result:
        """The result for an item. An item that is cancelled before its turn is left out."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._pump is None:
            self._pump = asyncio.create_task(self._all())
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled():  # both happened at once
                self._drop(done.result())
            raise

    async def _all(self) -> None:
        while self._waiting:
            turn, self._waiting = self._waiting, []
            await self._turn([one for one in turn if not one[1].done()])
        self._pump = None

    async def _turn(self, turn: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not turn:
            return
        loop, items = asyncio.get_running_loop(), [item for item, _ in turn]
        try:
            results = await loop.run_in_executor(self._thread, self._work, items)
        except Exception as error:
            if len(turn) > 1:
                for one in turn:
                    await self._turn([one])
            elif not turn[0][1].done():
                turn[0][1].set_exception(error)
            return
        for (_, done), result in zip(turn, results, strict=True):
            if done.done():  # cancelled
                self._drop(result)
            else:
                done.set_result(result)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
