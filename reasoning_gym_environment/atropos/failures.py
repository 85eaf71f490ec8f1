"""What each kind of failure does to its group, to its problem and to the run: one table.

`groups.py` acts by it, and docs/reliability.md shows it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..rollouts.accounting import GroupOutcome

MAX_LOSSES = 5
"""Failures in a row that end a run; a subclass has its own in `max_consecutive_losses`."""

PATIENCE_WITH_FILTERS = 10
"""An item that gives nothing may have been filtered out, so that more of them are allowed."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A kind of failure.

    Attributes:
        about: what fails, on the page.
        outcome: of the group.
        is_asked_again: whether its problem comes again, up to `items.MAX_RETRIES` times.
        ends_serve, ends_process: whether MAX_LOSSES of it in a row end the run.
        patience: how many times as many are allowed.
        may_pass: whether a restart may help, so that the run ends with 75 instead of 2.
    """

    about: str
    outcome: GroupOutcome
    is_asked_again: bool = False
    ends_serve: bool = False
    ends_process: bool = False
    patience: int = 1
    may_pass: bool = False


SERVER_FAILED = Failure(
    about="no server gave valid completions",
    outcome=GroupOutcome.LOST,
    is_asked_again=True,
    ends_process=True,  # a server that is away may be back for a run that serves
    may_pass=True,
)
REQUEST_REFUSED = Failure(
    about="the server refuses the request for good (another 4xx)",
    outcome=GroupOutcome.LOST,
    ends_serve=True,
    ends_process=True,
)
WORKER_TIMEOUT = Failure(
    about="the completions did not come within `worker_timeout`, in `serve`",
    outcome=GroupOutcome.INTERRUPTED,
    is_asked_again=True,
)
METHOD_RAISED = Failure(
    about="a method of a subclass raises while the group is collected",
    outcome=GroupOutcome.INTERRUPTED,
    ends_serve=True,
    ends_process=True,
)
DELIVERY_RAISED = Failure(
    about="a method of a subclass raises while the group is delivered",
    outcome=GroupOutcome.FAILED,
    ends_serve=True,
    ends_process=True,
)
NOT_SCORED = Failure(
    about="no rollout has a score",
    outcome=GroupOutcome.UNSCORED,
    ends_process=True,
    patience=PATIENCE_WITH_FILTERS,
)
NOTHING_COLLECTED = Failure(
    about="a subclass gives no group",
    outcome=GroupOutcome.DROPPED,
    ends_process=True,
    patience=PATIENCE_WITH_FILTERS,
)
GROUP_REFUSED = Failure(
    about="our check or the API refuses the group, and none was delivered before",
    outcome=GroupOutcome.REFUSED,
    ends_serve=True,
    ends_process=True,
)
NOT_DELIVERED = Failure(
    about="`process` can't write the groups of an item, or our check refuses them all",
    outcome=GroupOutcome.FAILED,
    ends_process=True,
    patience=PATIENCE_WITH_FILTERS,
)

FAILURES = (
    SERVER_FAILED,
    REQUEST_REFUSED,
    WORKER_TIMEOUT,
    METHOD_RAISED,
    DELIVERY_RAISED,
    NOT_SCORED,
    NOTHING_COLLECTED,
    GROUP_REFUSED,
    NOT_DELIVERED,
)


class FailureCounts:
    """How often each kind of failure came in a row, and whether that ends the run.

    Args:
        serves: whether the run serves; else it is `process`.
        max_losses: what replaces MAX_LOSSES.

    Example:
        >>> counts = FailureCounts(serves=False, max_losses=2)
        >>> counts.ends_run(SERVER_FAILED), counts.ends_run(SERVER_FAILED)
        (False, True)
    """

    def __init__(self, *, serves: bool, max_losses: int) -> None:
        self._serves = serves
        self._max_losses = max_losses
        self._in_a_row: Counter[Failure] = Counter()

    def __getitem__(self, failure: Failure) -> int:
        return self._in_a_row[failure]

    def ends_run(self, failure: Failure) -> bool:
        """Count a failure; return whether the run ends with it."""
        self._in_a_row[failure] += 1
        can_end = failure.ends_serve if self._serves else failure.ends_process
        limit = failure.patience * self._max_losses
        return can_end and self._in_a_row[failure] >= limit

    def forget(self, *failures: Failure) -> None:
        """Count these anew, after a success."""
        for failure in failures:
            del self._in_a_row[failure]
