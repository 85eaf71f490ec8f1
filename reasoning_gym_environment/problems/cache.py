"""The latest problems, kept in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ..records import Problem, Recipe, recipe_key


class ProblemCache:
    """The latest problems of recipes: concurrent and later callers share one problem.

    Args:
        max_bytes: of the problems that are kept.
    """

    def __init__(self, *, max_bytes: int = 64 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._making: dict[str, asyncio.Task[Problem]] = {}
        self._kept: dict[str, Problem] = {}  # the last used is last

    async def get(self, generate: Callable[[Recipe], Any], recipe: Recipe) -> Problem:
        """Make the problem of a recipe unless it is kept; raise GenerationError as `generate`."""
        key = recipe_key(recipe)
        if key in self._kept:
            problem = self._kept[key] = self._kept.pop(key)
            return problem
        if key not in self._making:
            self._making[key] = asyncio.create_task(generate(recipe))
            self._making[key].add_done_callback(partial(self._keep, key))
        return await asyncio.shield(self._making[key])

    def _keep(self, key: str, making: asyncio.Task[Problem]) -> None:
        """Keep a problem that could be made, and forget the oldest beyond the limit."""
        del self._making[key]
        if making.cancelled() or making.exception():
            return
        problem = making.result()
        self._kept[key] = problem
        self._bytes += _kept_bytes(key, problem)
        while self._bytes > self._max_bytes:
            oldest = next(iter(self._kept))
            self._bytes -= _kept_bytes(oldest, self._kept.pop(oldest))


OBJECT_OVERHEAD = 4096
"""Bytes of a Problem, its Recipe and two entries of dictionaries, about."""


def _kept_bytes(key: str, problem: Problem) -> int:
    """Estimate the memory of a problem and its key."""
    size = OBJECT_OVERHEAD
    # The parameters are about as long as the key that holds them.
    size += 2 * sys.getsizeof(key)
    size += sys.getsizeof(problem.question)
    size += sys.getsizeof(problem.oracle)
    size += sys.getsizeof(problem.entry)
    return size
