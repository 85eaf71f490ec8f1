"""One retry loop: pauses between the attempts of an operation, until a deadline."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Iterable, Iterator


class Retry:
    """The pauses between the attempts of one operation.

    The caller says in its `except` what is transient, and raises its own error at the end.

    Args:
        seconds: how long to try, counted from here; the last attempt begins at the deadline.
        pauses: seconds before each further attempt, or before all; ends with the attempts.

    Example:
        >>> async def acquire(lock):
        ...     retry = Retry(seconds=60.0, pauses=0.5)
        ...     while not lock.acquire():
        ...         if not await retry.wait():
        ...             raise TimeoutError("another process has held the lock for 60 s")
    """

    def __init__(self, seconds: float = math.inf, *, pauses: float | Iterable[float] = 1.0) -> None:
        self._give_up = time.monotonic() + seconds
        self._pauses = itertools.repeat(pauses) if isinstance(pauses, float | int) else iter(pauses)

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 or less after it."""
        return self._give_up - time.monotonic()

    def next_pause(self, *, at_least: float = 0.0) -> float | None:
        """Return the seconds before the next attempt; None if there is none.

        Args:
            at_least: seconds that a server asks for.
        """
        pause, left = next(self._pauses, None), self.left
        if pause is None or left <= 0 or at_least > left:
            return None
        return min(max(pause, at_least), left)

    async def wait(self, *, at_least: float = 0.0) -> bool:
        """Pause before the next attempt; return False at once if there is none."""
        pause = self.next_pause(at_least=at_least)
        if pause is not None:
            await asyncio.sleep(pause)
        return pause is not None


def backoff(first: float = 1.0, most: float = 10.0) -> Iterator[float]:
    """Yield pauses of random length below a bound that doubles: many clients don't retry at once.

    Args:
        first: the bound of the first pause in seconds.
        most: the largest bound in seconds.
    """
    for bound in itertools.accumulate(itertools.repeat(first), lambda last, _: min(most, 2 * last)):
        yield random.uniform(0.0, bound)
