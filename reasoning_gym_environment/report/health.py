"""What a run does, from its record, and what is wrong with its last groups.

`docs/watch.md` explains each line, with its threshold.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from ..records import Signal
from ..rollouts.answer_check import GROUPS, NEARLY_ALL, AnswerCheck, find_faults
from ..scoring.extraction import AnswerFormat
from ..storage.dumps import counted
from ..storage.rows import StoredGroup, StoredRollout
from ..storage.run_record import RECORD_SECONDS, RunRecord
from .times import lasting, minute, seconds_of

RATE_SECONDS = 60
"""Seconds over which the rate is measured."""

LEAST_GROUPS = 10
"""Groups below which a share of them says too little."""

UNSCORED_SHARE = 0.02
"""Share of unscored rollouts above which there is a warning."""

TRUNCATED_SHARE = 0.2
"""Share of truncated completions from which on there is a warning."""

GROUP_SECONDS = 120.0
"""Age of the last group above which a run that goes is warned of."""

PAST_SECONDS = 600.0
"""Age of the last group above which a run without a record may have ended."""

KILLED_SECONDS = 3 * RECORD_SECONDS
"""Age of a record above which its process was killed, or its disk stalls."""


class _Outcome(NamedTuple):
    """What a group tells about its run's health; sorted by number: a clock may be set back."""

    number: int
    time: float
    read: int
    signal: Signal | None
    unscored: int
    truncated: int
    faults: list[frozenset[str]]


class RunHealth:
    """The last groups of a run or an evaluation, in whatever order they are read."""

    def __init__(self) -> None:
        self._groups = 0
        # Times are seconds since the epoch.
        self._first = 0.0
        self._last = 0.0
        self._last_number = 0
        self._answer_format: AnswerFormat = "tags"  # of the group that was read last
        self._step: int | None = None
        self._outcomes: list[_Outcome] = []  # a heap of the last groups by number
        self._rollouts_at: Counter[int] = Counter()  # of the last minute, by second

    def add(self, group: StoredGroup) -> None:
        """Take in a group."""
        time = seconds_of(group.time) or 0.0
        self._first = min(self._first, time) if self._groups else time
        latest = max((self._last_number, self._last), (group.number, time))
        self._last_number, self._last = latest
        self._groups += 1
        self._answer_format = group.answer_format
        if group.step is not None:
            self._step = max(self._step or 0, group.step)
        self._rollouts_at[int(time)] += len(group.rollouts)
        self._forget_old_seconds()
        heap = self._outcomes
        is_full = len(heap) == GROUPS
        if is_full and heap[0][:3] > (group.number, time, self._groups):
            return
        outcome = self._outcome(group, time)
        if is_full:
            heapq.heapreplace(heap, outcome)
        else:
            heapq.heappush(heap, outcome)

    def _forget_old_seconds(self) -> None:
        last = self._last
        old = [
            second
            for second in self._rollouts_at
            # A clock may have been set back.
            if not last - RATE_SECONDS < second <= last + 1
        ]
        for second in old:
            del self._rollouts_at[second]

    def _outcome(self, group: StoredGroup, time: float) -> _Outcome:
        scored = group.scored
        return _Outcome(
            number=group.number,
            time=time,
            read=self._groups,
            signal=group.signal,
            unscored=len(group.rollouts) - len(scored),
            truncated=sum(rollout.truncated for rollout in scored),
            faults=[_faults_of(rollout, group) for rollout in scored],
        )

    def pace(self, now: float) -> list[list[str]]:
        """Return label and value of the rate over the last minute, and of the last group's age."""
        if not self._last:
            return []
        ago = f"{lasting(now - self._last)} ago"
        return [["rollouts per second", f"{self._rate(now):.1f}"], ["last group", ago]]

    def _rate(self, now: float) -> float:
        since = now - RATE_SECONDS
        rollouts = sum(
            count for second, count in self._rollouts_at.items() if second > since
        )
        # A run that is younger than a minute is measured over its age.
        seconds = min(RATE_SECONDS, now - self._first)
        return rollouts / max(1.0, seconds)

    def lines(
        self,
        record: RunRecord | None = None,
        *,
        trains: bool,
        unreadable: int = 0,
        ended: str = "",
        now: float,
    ) -> list[dict[str, str]]:
        """Return the run's state, then what is wrong with its last groups.

        Args:
            unreadable: lines of the run's files that could not be read.
            ended: when it has ended; empty while it goes, and where nothing says so.
            now: seconds since the epoch.
        """
        findings = [self._state(record, ended=ended, now=now)]
        if record is not None:
            findings += self._losses(record, goes_on=not ended)
        findings += self._findings(trains=trains)
        if unreadable:
            findings.append(
                ("warning", f"Skipped {unreadable} torn or unreadable lines")
            )
        return [{"level": level, "text": text} for level, text in findings]

    def _state(
        self, record: RunRecord | None, *, ended: str, now: float
    ) -> tuple[str, str]:
        """Return what the run does, in one sentence, and its level."""
        done = self._done(record)
        if ended:
            ending = record.ending if record else ""
            when = " ".join(filter(None, (minute(seconds_of(ended)), ending)))
            return "past", f"Ended {when}: {done}"
        if record is None:
            if self._last and now - self._last > PAST_SECONDS:
                return "past", f"No record tells whether the run goes on: {done}"
            return "ok", f"{self._pace_text(now)}: {done}"
        updated = seconds_of(record.updated) or 0.0
        if now - updated > KILLED_SECONDS:
            return "error", f"No end recorded, nothing since {minute(updated)}: {done}"
        wait = record.wait
        if wait is not None:
            since = seconds_of(wait.since) or now
            for_how_long = f"since {minute(since)} ({lasting(now - since)})"
            reason = f"{wait.reason} {for_how_long}"
            detail = f" ({record.waiting})" if record.waiting else ""
            return "warning", f"Waiting for {reason}{detail}: {done}"
        # Before its first group, a run is as old as its start.
        last_group = self._last or seconds_of(record.started) or 0.0
        if now - last_group > GROUP_SECONDS:
            return (
                "warning",
                f"No group for {lasting(now - last_group)}, since {minute(last_group)}: {done}",
            )
        return "ok", f"{self._pace_text(now)}: {done}"

    def _pace_text(self, now: float) -> str:
        if not self._last:
            return "Running"
        ago = lasting(now - self._last)
        return (
            f"Running, {self._rate(now):.1f} rollouts per second, last group {ago} ago"
        )

    def _done(self, record: RunRecord | None) -> str:
        """Say how far the run is: step, groups, the share of the last ones that taught."""
        step = record.step if record and record.step is not None else self._step
        parts = [] if step is None else [f"step {step:,}"]
        parts.append(counted(self._groups))
        signals = [each.signal for each in self._outcomes if each.signal is not None]
        if signals:
            share = signals.count(Signal.MIXED) / len(signals)
            parts.append(f"{share:.0%} of the last {len(signals)} taught")
        if self._last:
            parts.append(f"the last one {minute(self._last)}")
        return ", ".join(parts)

    def _losses(self, record: RunRecord, *, goes_on: bool) -> Iterator[tuple[str, str]]:
        if record.lost:
            yield "error", f"{counted(record.lost)} lost to disk"
        if record.failures and goes_on:
            yield "error", f"Inference fails: lost {counted(record.failures)} in a row"

    def _findings(self, *, trains: bool) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the last groups."""
        outcomes = self._outcomes
        if len(outcomes) < LEAST_GROUPS:
            return
        subject = f"the last {len(outcomes)} groups"
        check = AnswerCheck(self._answer_format)
        for faults in chain.from_iterable(outcome.faults for outcome in outcomes):
            check.count(faults)
        scored = sum(len(outcome.faults) for outcome in outcomes)
        unscored = sum(outcome.unscored for outcome in outcomes)
        if unscored > UNSCORED_SHARE * (unscored + scored):
            share = unscored / (unscored + scored)
            yield "warning", f"{share:.0%} of the rollouts of {subject} are unscored"
        text = check.finding(subject)
        if text:
            # It explains what follows: such completions are truncated, or solve nothing.
            yield "error", text
            return
        truncated = sum(outcome.truncated for outcome in outcomes) / max(1, scored)
        if truncated >= TRUNCATED_SHARE:
            problem = "are truncated at max_token_length"
            yield (
                "warning",
                f"{truncated:.0%} of the completions of {subject} {problem}",
            )
        if trains:
            yield from self._signal_findings(subject)

    def _signal_findings(self, subject: str) -> Iterator[tuple[str, str]]:
        for signal, outcome_text in (
            (Signal.ALL_SOLVED, "all solved"),
            (Signal.NONE_SOLVED, "all unsolved"),
        ):
            count = sum(outcome.signal is signal for outcome in self._outcomes)
            share = count / len(self._outcomes)
            if share >= NEARLY_ALL:
                yield (
                    "warning",
                    f"{share:.0%} of {subject} are {outcome_text}: little can be learned from them",
                )


def _faults_of(rollout: StoredRollout, group: StoredGroup) -> frozenset[str]:
    """Return what `AnswerCheck` counts; no text is kept."""
    return find_faults(
        rollout.text, rollout.finish_reason, rollout.status, group.answer_format
    )
