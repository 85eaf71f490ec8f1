"""Messages that are logged once per interval, and lines about waits that come ever more rarely."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .retries import RetryPolicy

LOG_INTERVAL = 60.0
"""Seconds between two equal messages, unless a call names others."""


class _Throttle(NamedTuple):
    """What a throttled record has in its attribute `throttle`."""

    subject: Hashable
    interval: float


def throttled(
    subject: Hashable = None, *, interval: float = LOG_INTERVAL
) -> dict[str, Any]:
    """Return the `extra` of a message that may be logged once per interval.

    Its logger needs the filter `THROTTLE`.

    Args:
        subject: what the message is about, such as a server: each has an interval of its own.
        interval: seconds between two such messages.

    Example:
        logger = logging.getLogger(__name__)
        logger.addFilter(THROTTLE)
        logger.warning("%s fails: %s", url, error, extra=throttled(url))
    """
    return {"throttle": _Throttle(subject, interval)}


class ThrottleFilter(logging.Filter):
    """A filter of loggers: throttled messages pass once per interval, all others always.

    Messages are equal if their logger, their text before formatting and their subject are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lock = threading.Lock()  # disks are written, and logged about, in threads
        self.reset(clock)

    def reset(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Forget what was logged, and take another clock. Tests begin with it."""
        self._clock = clock
        self._held_back_until: dict[Hashable, float] = {}

    def admits(self, key: Hashable, *, interval: float = LOG_INTERVAL) -> bool:
        """Return whether a message may be logged now, and hold back its like from then on."""
        now = self._clock()
        with self._lock:
            self._held_back_until = {
                held_back: until
                for held_back, until in self._held_back_until.items()
                if until > now
            }
            if key in self._held_back_until:
                return False
            self._held_back_until[key] = now + interval
            return True

    def filter(self, record: logging.LogRecord) -> bool:
        # taken out, since a host's formatter may write all that a record has
        throttle: _Throttle | None = record.__dict__.pop("throttle", None)
        if throttle is None:
            return True
        key = (record.name, record.msg, throttle.subject)
        return self.admits(key, interval=throttle.interval)


THROTTLE = ThrottleFilter()
"""The filter of the package's loggers. A host's handlers get what it lets pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPauses:
    """Seconds between two lines about the same wait: the first pause, and the longest."""

    first: float = 10.0
    longest: float = 300.0

    def growing(self) -> Iterator[float]:
        """Yield the pauses, each twice as long as the last one, without end."""
        policy = RetryPolicy(
            first_pause=self.first, growth=2.0, longest_pause=self.longest
        )
        return policy.pauses()


LOG_PAUSES = LogPauses()
"""In a log. On a terminal, where a line changes in its place, they don't grow."""


class Reminders:
    """When to log a line about a wait: at once, and then after pauses that double.

    Example:
        >>> seconds = iter([0, 0, 9, 10, 29, 30]).__next__
        >>> reminders = Reminders(LogPauses(first=10), clock=seconds)
        >>> [reminders.is_due() for _ in range(5)]
        [True, False, True, False, True]
    """

    def __init__(
        self, pauses: LogPauses, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pauses = pauses.growing()
        self._clock = clock
        self._due_at = clock()

    def is_due(self) -> bool:
        """Return whether to log a line now; the next pause begins with it."""
        now = self._clock()
        if now < self._due_at:
            return False
        self._due_at = now + next(self._pauses)
        return True
