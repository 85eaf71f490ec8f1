"""Which rows teach nothing: those without advantage, and those without an answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from ..records import Attempt, GroupResult, Status

SECONDS = 30.0
"""How long no row has taught anything when the log says so: well within a minute."""

LEAST_ROWS = 16
"""Rows in a row that teach nothing, in a run where others did: fewer may be chance."""


def mask_reason(attempt: Attempt, *, mask_incomplete: bool) -> str | None:
    """Return why a row gets no advantage; None if it gets one."""
    completion = attempt.completion
    if attempt.verdict.status is Status.UNSCORED:
        return "unscored"
    if not completion.completion_tokens:
        return "empty"
    if mask_incomplete and not completion.complete:
        word = completion.server_finish_reason
        if word in (None, completion.finish_reason):
            return f"finish_reason {completion.finish_reason}"
        return f"finish_reason {completion.finish_reason}, the server says {word}"
    return None


class UselessRows:
    """Finds a run whose rows are all masked or without an answer, by the clock.

    Args:
        mask_incomplete: whether completions that are not complete get no advantage.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        mask_incomplete: bool = True,
    ) -> None:
        self._clock = clock
        self._mask_incomplete = mask_incomplete
        self._has_taught = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._since: float | None = None
        self._reasons = Counter[str]()
        self._masked = 0
        self._is_told = False

    def add(self, group: GroupResult) -> None:
        """Count a group's rows; one that teaches something ends the count."""
        for attempt in group.attempts:
            reason = mask_reason(attempt, mask_incomplete=self._mask_incomplete)
            is_masked = reason is not None
            if not is_masked and attempt.verdict.status is Status.NO_ANSWER:
                reason = f"no answer, {attempt.verdict.detail or 'no detail'}"
            if reason is None:
                self._has_taught = True
                self._begin_anew()
                return
            self._reasons[reason] += 1
            self._masked += is_masked
        if self._since is None:
            self._since = self._clock()

    def finding(self) -> str | None:
        """Return that no row teaches anything, with the most frequent reason, once."""
        if self._is_told or self._since is None:
            return None
        seconds = self._clock() - self._since
        rows = self._reasons.total()
        if seconds < SECONDS or (self._has_taught and rows < LEAST_ROWS):
            return None
        self._is_told = True
        reason, count = self._reasons.most_common(1)[0]
        return (
            f"Nothing can be learned from the last {rows} rollouts, in {seconds:.0f} s: "
            f"{self._masked} are masked (set_advantage_to_zero) and {rows - self._masked} have no "
            f"answer. The most frequent reason, of {count}: {reason}"
        )
