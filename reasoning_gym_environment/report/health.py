"""How a run goes, in the words of its log: from its last groups and from its record."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from ..records import Signal, Status
from ..rollouts.metrics import GROUPS, NEARLY_ALL, AnswerCheck
from ..storage.dumps import counted
from ..storage.rows import StoredGroup
from ..storage.runs import RECORD_SECONDS, RunRecord

OK, WARNING, ERROR = "ok", "warning", "error"

_FEWEST = 10
"""Groups from which shares are reported."""

_RATE_SECONDS = 60
_SILENT_SECONDS = 6 * RECORD_SECONDS
_WAITING_SECONDS = 120.0
_UNSCORED = 0.02
_TRUNCATED = 0.2

_WITHOUT_SIGNAL = {Signal.ALL_SOLVED: "all solved", Signal.NONE_SOLVED: "all unsolved"}


class _Outcome(NamedTuple):
    """What a group tells about the health of its run; sorted by time."""

    time: float
    number: int
    signal: Signal | None
    unscored: int
    truncated: int
    completions: list[tuple[str, str, Status]]


class RunHealth:
    """The last groups of a run or an evaluation, in whatever order they are read."""

    def __init__(self) -> None:
        self._groups = 0
        self._first = self._last = 0.0
        self._outcomes: list[_Outcome] = []  # a heap of the last groups by time
        self._rollouts_at: Counter[int] = Counter()  # of the last minute, by second

    def add(self, group: StoredGroup) -> None:
        """Take in a group."""
        time = seconds_of(group.time) or 0.0
        self._first = min(self._first, time) if self._groups else time
        self._last = max(self._last, time)
        self._groups += 1
        since = self._last - _RATE_SECONDS
        if time > since:
            self._rollouts_at[int(time)] += len(group.rollouts)
            for second in [each for each in self._rollouts_at if each <= since]:
                del self._rollouts_at[second]
        heap = self._outcomes
        if len(heap) < GROUPS:
            heapq.heappush(heap, _outcome(group, time, self._groups))
        elif heap[0][:2] < (time, self._groups):
            heapq.heapreplace(heap, _outcome(group, time, self._groups))

    def pace(self, now: float) -> list[list[str]]:
        """Return label and value of the rate over the last minute, and of the last group's age."""
        if not self._last:
            return []
        ago = f"{lasting(now - self._last)} ago"
        return [["rollouts per second", f"{self._rate(now):.1f}"], ["last group", ago]]

    def _rate(self, now: float) -> float:
        since = now - _RATE_SECONDS
        rollouts = sum(count for second, count in self._rollouts_at.items() if second > since)
        return rollouts / max(1.0, min(_RATE_SECONDS, now - self._first))

    def lines(
        self,
        record: RunRecord | None = None,
        *,
        trains: bool,
        unreadable: int = 0,
        ended: bool = False,
        now: float | None = None,
    ) -> list[dict[str, str]]:
        """Return what is wrong, or one line that nothing is.

        Args:
            record: of the run, if it writes one.
            trains: whether the groups are of training.
            unreadable: lines of the run's files that could not be read.
            ended: whether it has ended, where no record says so.
            now: seconds since the epoch; None leaves out what is only true while a run goes.
        """
        ended = ended or bool(record and record.ended)
        found = [*self._state(record, None if ended else now), *self._findings(trains=trains)]
        if unreadable:
            found.append((WARNING, f"Skipped {unreadable} torn or unreadable lines"))
        return [{"level": level, "text": text} for level, text in found or [self._fine(ended, now)]]

    def _fine(self, ended: bool, now: float | None) -> tuple[str, str]:
        if ended:
            return OK, "Ended"
        if now is None or not self._last:
            return OK, "Nothing wrong in the last groups"
        ago = lasting(now - self._last)
        return OK, f"{self._rate(now):.1f} rollouts per second, last group {ago} ago"

    def _state(self, record: RunRecord | None, now: float | None) -> Iterator[tuple[str, str]]:
        """Yield what the run's record and files say.

        Args:
            now: None unless the run goes.
        """
        if record and record.lost:
            yield ERROR, f"{counted(record.lost)} lost to disk"
        if record and now is not None:
            if record.failures:
                yield ERROR, f"Inference fails: lost {counted(record.failures)} in a row"
            if record.waiting:
                yield WARNING, f"Requests wait: {record.waiting}"
            silent = now - (seconds_of(record.updated) or 0.0)
            since_group = now - (self._last or seconds_of(record.started) or 0.0)
            if silent > _SILENT_SECONDS:
                what = "The process was killed, or its disk stalls"
                yield ERROR, f"{what}: it has written nothing about itself for {lasting(silent)}"
            elif since_group > _WAITING_SECONDS:
                yield WARNING, f"No group for {lasting(since_group)}"

    def _findings(self, *, trains: bool) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the last groups."""
        last = self._outcomes
        if len(last) < _FEWEST:
            return
        of, check = f"the last {len(last)} groups", AnswerCheck()
        for outcome in last:
            check.add(outcome.completions)
        given = sum(len(one.completions) for one in last)
        unscored = sum(one.unscored for one in last)
        if unscored > _UNSCORED * (unscored + given):
            share = unscored / (unscored + given)
            yield WARNING, f"{share:.0%} of the rollouts of {of} are unscored"
        if text := check.finding(of):
            yield ERROR, text
            return
        truncated = sum(one.truncated for one in last) / max(1, given)
        if truncated >= _TRUNCATED:
            what = "are truncated at max_token_length"
            yield WARNING, f"{truncated:.0%} of the completions of {of} {what}"
        if trains:
            yield from _without_signal(last, of)


def _without_signal(last: list[_Outcome], of: str) -> Iterator[tuple[str, str]]:
    signals = Counter(one.signal for one in last)
    for signal, what in _WITHOUT_SIGNAL.items():
        share = signals[signal] / len(last)
        if share >= NEARLY_ALL:
            yield WARNING, f"{share:.0%} of {of} are {what}: little can be learned from them"


def _outcome(group: StoredGroup, time: float, number: int) -> _Outcome:
    scored = group.scored
    return _Outcome(
        time=time,
        number=number,
        signal=group.signal,
        unscored=len(group.rollouts) - len(scored),
        truncated=sum(rollout.truncated for rollout in scored),
        completions=[  # of the text, only whether there is one is kept
            (r.text[:1] if r.text.strip() else "", r.finish_reason, r.status) for r in scored
        ],
    )


def seconds_of(time: str) -> float | None:
    """Return seconds since the epoch of an ISO 8601 time; None if it isn't one.

    Example:
        >>> seconds_of("1970-01-01T00:01:00+00:00"), seconds_of("soon")
        (60.0, None)
    """
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def lasting(seconds: float) -> str:
    """Return a duration in words.

    Example:
        >>> lasting(4.2), lasting(90), lasting(7200), lasting(400_000)
        ('4 s', '90 s', '2 h', '5 days')
    """
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
