"""The items of a run: which is next, and which are asked again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ..records import Problem, recipe_key

MAX_RETRIES = 3
"""How often a problem whose group is lost is requested again."""


class Items:
    """Draws items, and keeps those that are asked before new ones.

    Args:
        draw: returns the next item; None if there is none.
        counts: counters "problems/retried" and "problems/given_up".

    Attributes:
        backlog: items that wait; the last one comes first.
        drawing: a draw that a round of the loop has left to the next one, if any.
    """

    def __init__(
        self, draw: Callable[[], Awaitable[Any]], counts: Counter[str]
    ) -> None:
        self.backlog: list[Any] = []
        self.drawing: asyncio.Task[None] | None = None
        self._draw = draw
        self._counts = counts
        self._retries: Counter[str] = Counter()

    async def next(self) -> Any:
        """Return the next item; None if there is none."""
        return self.backlog.pop() if self.backlog else await self._draw()

    async def next_before(self, deadline: float) -> Any:
        """Return the next item; None if there is none in time. A slow draw goes on meanwhile.

        Args:
            deadline: in seconds of the monotonic clock.
        """
        seconds = deadline - time.monotonic()
        if not self.backlog and seconds > 0:
            if self.drawing is None:
                self.drawing = asyncio.create_task(self._draw_into_backlog())
            await asyncio.wait({self.drawing}, timeout=seconds)
            if self.drawing.done():
                drawing = self.drawing
                self.drawing = None
                drawing.result()
        return self.backlog.pop() if self.backlog else None

    async def _draw_into_backlog(self) -> None:
        self.backlog.append(await self._draw())

    def add(self, items: Iterable[Any]) -> None:
        """Ask these before new ones."""
        self.backlog.extend(items)

    def ask_again(self, item: Any) -> None:
        """Put a lost item behind the backlog, up to MAX_RETRIES times until it is scored."""
        # A subclass's own items have no key: they can't be told apart, so none is retried.
        key = item_key(item)
        self._retries[key] += 1
        if key and self._retries[key] <= MAX_RETRIES:
            self._counts["problems/retried"] += 1
            self.backlog.insert(0, item)
        else:
            self.give_up(item)

    def give_up(self, item: Any) -> None:
        """Count an item that is not asked again."""
        self._counts["problems/given_up"] += 1
        self.forget_retries(item)

    def forget_retries(self, item: Any) -> None:
        """Let an item whose group has come be retried anew."""
        self._retries.pop(item_key(item), None)


def item_key(item: Any) -> str:
    """Return what identifies a problem; empty for a subclass's own item."""
    return recipe_key(item.recipe) if isinstance(item, Problem) else ""
