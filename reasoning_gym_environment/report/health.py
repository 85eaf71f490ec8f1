"""What a run does, from its record, and what is wrong with its last groups.

`docs/watch.md` explains each line, with its threshold.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
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
        # Of the trainer: the first and the last one, each with the time of its first group.
        self._first_step: tuple[int, float] | None = None
        self._last_step: tuple[int, float] | None = None
        self._tokens_at: Counter[int] = Counter()  # of the last minute, by second
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
            self._note_step(group.step, time)
        self._rollouts_at[int(time)] += len(group.rollouts)
        self._tokens_at[int(time)] += sum(r.completion_tokens for r in group.rollouts)
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

    def _note_step(self, step: int, time: float) -> None:
        if self._first_step is None or (step, time) < self._first_step:
            self._first_step = (step, time)
        last = self._last_step
        if last is None or step > last[0] or (step == last[0] and time < last[1]):
            self._last_step = (step, time)

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
            del self._tokens_at[second]

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
        return [
            ["rollouts per second", f"{self._rate(self._rollouts_at, now):.1f}"],
            ["last group", ago],
        ]

    def _rate(self, count_at: Mapping[int, int], now: float) -> float:
        """Return a count per second over the last minute, or over the age of a younger run."""
        since = now - RATE_SECONDS
        count = sum(own for second, own in count_at.items() if second > since)
        seconds = min(RATE_SECONDS, now - self._first)
        return count / max(1.0, seconds)

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
        if ended:
            ending = record.ending if record else ""
            when = " ".join(filter(None, (minute(seconds_of(ended)), ending)))
            return "past", f"Ended {when}: {self._groups_text()}"
        done = self._done(record)
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
        rollouts = self._rate(self._rollouts_at, now)
        tokens = self._rate(self._tokens_at, now)
        ago = lasting(now - self._last)
        return (
            f"Running, {rollouts:.1f} rollouts and {tokens:,.0f} tokens per second, last group "
            f"{ago} ago"
        )

    def _done(self, record: RunRecord | None) -> str:
        """Say how far the run is."""
        step = self._last_step and self._last_step[0]
        if record and record.step is not None:
            step = record.step
        total = record.total_steps if record else -1
        parts = []
        if step is not None:
            parts.append(
                f"step {step:,} of {total:,}" if total >= 0 else f"step {step:,}"
            )
            left = self._seconds_left(total)
            if left is not None:
                parts.append(f"about {lasting(left)} left at this pace")
        parts.append(self._groups_text())
        return ", ".join(parts)

    def _groups_text(self) -> str:
        parts = [counted(self._groups)]
        signals = [each.signal for each in self._outcomes if each.signal is not None]
        if signals:
            share = signals.count(Signal.MIXED) / len(signals)
            parts.append(f"{share:.0%} of the last {len(signals)} taught")
        if self._last:
            parts.append(f"the last one {minute(self._last)}")
        return ", ".join(parts)

    def _seconds_left(self, total: int) -> float | None:
        """Return the seconds to the last step at the pace of all steps; None if unknown."""
        if self._first_step is None or self._last_step is None:
            return None
        (first, began), (last, time) = self._first_step, self._last_step
        if last <= first or time <= began or total < last:
            return None
        return (total - last) * (time - began) / (last - first)

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
