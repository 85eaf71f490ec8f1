"""How a run goes, told from its last groups and its record, in the words of its log.

`docs/watch.md` explains each line, with its threshold.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..records import Signal
from ..rollouts.answer_check import GROUPS, NEARLY_ALL, AnswerCheck, find_faults
from ..rollouts.changes import DriftCheck
from ..rollouts.measures import CHECKED
from ..scoring.extraction import AnswerFormat
from ..storage.dumps import counted
from ..storage.rows import StoredGroup, StoredRollout
from ..storage.run_record import RECORD_SECONDS, RunRecord
from .identity import category_of
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

KILLED_SECONDS = 6 * RECORD_SECONDS
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
        self._outcomes: list[_Outcome] = []  # a heap of the last groups by number
        self._rollouts_at: Counter[int] = Counter()  # of the last minute, by second
        self.changes = DriftCheck()

    def add(self, group: StoredGroup) -> None:
        """Take in a group."""
        time = seconds_of(group.time) or 0.0
        self._first = min(self._first, time) if self._groups else time
        latest = max((self._last_number, self._last), (group.number, time))
        self._last_number, self._last = latest
        self._groups += 1
        self._answer_format = group.answer_format
        self.changes.add(group, category_of(group))
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
        now: float | None = None,
    ) -> list[dict[str, str]]:
        """Return what is wrong, or that nothing is; first whether the run is over.

        Args:
            unreadable: lines of the run's files that could not be read.
            ended: when it has ended; empty while it goes, and where nothing says so.
            now: seconds since the epoch; None leaves out what is only true while a run goes.
        """
        changes = self.changes.flags() if trains else []
        lasting_changes = [change for change in changes if change["until"] is None]
        over_changes = [change for change in changes if change["until"] is not None]
        over = [("past", change["text"]) for change in over_changes]
        findings = list(self._state(record, None if ended else now))
        findings += [("warning", change["text"]) for change in lasting_changes]
        findings += self._findings(lasting_changes, trains=trains)
        if unreadable:
            findings.append(
                ("warning", f"Skipped {unreadable} torn or unreadable lines")
            )
        checked = self._checked(over_changes)
        if ended:
            text = f"Ended {minute(seconds_of(ended))}"
            findings.insert(0, ("past", text if findings else f"{text}; {checked}"))
        elif (
            not record and now is not None and now - (self._last or now) > PAST_SECONDS
        ):
            text = f"Last group {minute(self._last)}; no record tells whether the run goes on"
            findings.insert(0, ("past", text))
        elif not findings:
            findings.append(("ok", self._sound(now, checked)))
        return [{"level": level, "text": text} for level, text in [*findings, *over]]

    def _checked(self, over: Sequence[Mapping[str, Any]]) -> str:
        """Say what was looked at where no change lasts."""
        groups = counted(self._groups)
        if not over:
            return f"no change found in {groups}: {CHECKED}"
        last = max(change["until"] for change in over)
        return (
            f"no change lasts in {groups}, the last was over at group {last}: {CHECKED}"
        )

    def _sound(self, now: float | None, checked: str) -> str:
        if now is None or not self._last:
            return checked.capitalize()
        ago = lasting(now - self._last)
        rate = f"{self._rate(now):.1f} rollouts per second, last group {ago} ago"
        return f"{rate}; {checked}"

    def _state(
        self, record: RunRecord | None, now: float | None
    ) -> Iterator[tuple[str, str]]:
        """Yield what the run's record and files say; `now` is None unless the run goes."""
        if record is None:
            return
        if record.lost:
            yield "error", f"{counted(record.lost)} lost to disk"
        if now is None:
            return
        if record.failures:
            yield "error", f"Inference fails: lost {counted(record.failures)} in a row"
        if record.waiting:
            yield "warning", f"Requests wait: {record.waiting}"
        updated = seconds_of(record.updated) or 0.0
        # Before its first group, a run is as old as its start.
        last_group = self._last or seconds_of(record.started) or 0.0
        if now - updated > KILLED_SECONDS:
            problem = "The process was killed, or its disk stalls: nothing written about itself"
            yield (
                "error",
                f"{problem} for {lasting(now - updated)}, since {minute(updated)}",
            )
        elif now - last_group > GROUP_SECONDS:
            yield (
                "warning",
                f"No group for {lasting(now - last_group)}, since {minute(last_group)}",
            )

    def _findings(
        self, changes: Sequence[Mapping[str, Any]], *, trains: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the last groups, but for what changes say of them."""
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
        is_flagged = any("truncated" in change["kinds"] for change in changes)
        if truncated >= TRUNCATED_SHARE and not is_flagged:
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
