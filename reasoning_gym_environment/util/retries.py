"""When to try again what failed, and when to give up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often, for how long and with which pauses an operation is tried.

    It is given up when it was tried `attempts` times and `seconds` have passed.

    Attributes:
        attempts: the fewest attempts, however long they take.
        seconds: how long there are more than those; the last one begins at the deadline.
        first_pause: seconds between the first two attempts.
        growth: what each pause is multiplied by to get the next one.
        longest_pause: seconds to which pauses grow.
        jitter: whether each pause has a random length below these, so that many clients don't
            retry at once.
    """

    attempts: int = 1
    seconds: float = 0.0
    first_pause: float = 1.0
    growth: float = 1.0
    longest_pause: float = 10.0
    jitter: bool = False

    def pauses(self) -> Iterator[float]:
        """Yield the seconds before the second attempt, the third and so on, without end."""
        pause = self.first_pause
        while True:
            yield random.uniform(0.0, pause) if self.jitter else pause
            pause = min(self.growth * pause, self.longest_pause)


class Retry:
    """The attempts of one operation.

    The caller says in its `except` what is transient, and raises its own error at the end.

    Args:
        clock: returns the time in seconds; the operation begins now.

    Example:
        >>> retry = Retry(RetryPolicy(attempts=3, first_pause=1.0, growth=3.0))
        >>> retry.next_pause(), retry.next_pause(), retry.next_pause()
        (1.0, 3.0, None)
    """

    def __init__(
        self, policy: RetryPolicy, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = policy.seconds
        self._pauses = policy.pauses()
        self._clock = clock
        self._began = clock()
        self._attempts_left = policy.attempts

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; 0 or less after it."""
        return self._began + self._seconds - self._clock()

    def use_up_attempts(self) -> None:
        """Let only the deadline allow further attempts, after one that took as long as many."""
        self._attempts_left = 0

    def next_pause(
        self, *, at_least: float = 0.0, failing_for: float = 0.0
    ) -> float | None:
        """Count a failed attempt; return the seconds before the next one, None if there is none.

        Args:
            at_least: seconds that the other side asks for.
            failing_for: seconds for which all operations of this kind have failed. The deadline
                counts from there if that is longer than since this one began.
        """
        self._attempts_left -= 1
        pause = max(at_least, next(self._pauses))
        if self._attempts_left > 0:
            return pause
        seconds_left = min(self.seconds_left, self._seconds - failing_for)
        if seconds_left <= 0 or at_least > seconds_left:
            return None
        return min(pause, seconds_left)

    async def wait(self, *, at_least: float = 0.0) -> bool:
        """Pause before the next attempt; return False at once if there is none."""
        pause = self.next_pause(at_least=at_least)
        if pause is not None:
            await asyncio.sleep(pause)
        return pause is not None
