"""Progress lines in the log, and warnings about answers and deliveries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from ..records import GroupResult, Signal, Status
from ..scoring.extraction import AnswerFormat
from ..storage.rows import StoredGroup
from ..util.log_throttle import LOG_INTERVAL, LogPauses, Reminders
from .accounting import COLLECTED, NOT_COLLECTED, Statistics
from .answer_check import GROUPS, NEARLY_ALL, AnswerCheck
from .figures import SOLVED, Figure, RunFigures, describe
from .masking import UselessRows
from .values import Means

logger = logging.getLogger(__name__)

progress_logger = logging.getLogger(f"{__name__}.line")
"""Logs the progress line; a terminal shows its last message below all others."""


def signal_line(means: Means, prefix: str = "") -> str:
    """Format the shares of groups with and without signal, for example of "category/games/"."""
    mixed, solved, unsolved = (means[f"{prefix}groups/{kind.value}"] for kind in Signal)
    if not mixed.count:
        return "0 groups"
    return (
        f"{mixed.count} groups: {mixed.value:.0%} with signal, {solved.value:.0%} all solved, "
        f"{unsolved.value:.0%} none solved"
    )


def signal_lines(means: Means, categories: Iterable[str]) -> list[str]:
    """Format a `signal_line` for all groups, and for each category that has any."""
    lines = [signal_line(means)]
    for category in sorted(set(categories)):
        prefix = f"category/{category}/"
        if means[f"{prefix}groups/{Signal.MIXED.value}"].count:
            lines.append(f"{category}: {signal_line(means, prefix)}")
    return lines


class ProgressReporter:
    """Reports on the groups of a run in the log, each after the statistics have counted it."""

    def __init__(
        self,
        statistics: Statistics,
        clock: Callable[[], float] = time.monotonic,
        *,
        waiting: Callable[[], Iterable[str]] = list,
        mask_incomplete: bool = True,
        answer_format: AnswerFormat = "tags",
    ) -> None:
        self._statistics = statistics
        self._clock = clock
        self._waiting = waiting
        self._groups = 0
        self._answers = AnswerCheck(answer_format)
        self._useless = UselessRows(clock, mask_incomplete=mask_incomplete)
        self._figures = RunFigures()
        self._last = statistics.total
        self._last_time = clock()
        self._delivered = 0
        self._delivered_at = clock()
        self._before = Counter[str]()  # events up to the last delivery

    def group_finished(self, group: GroupResult) -> None:
        """Warn if nothing can be learned, within a minute and after 50 groups."""
        self._groups += 1
        self._useless.add(group)
        self.warn_of_useless_rows()
        row = StoredGroup.from_result(group, [], {"number": self._groups})
        self._figures.add(row, self._statistics.categories.get(row.task, ""))
        if self._groups > GROUPS:
            return
        self._answers.add(
            (a.completion.text, a.completion.finish_reason, a.verdict.status)
            for a in group.attempts
        )
        if self._groups < GROUPS:
            return
        subject = f"the first {GROUPS} groups"
        text = self._answers.warning(
            subject, consequence="nothing can be learned from them"
        )
        solved = self._statistics.total[f"groups/{Signal.ALL_SOLVED.value}"].value
        if not text and solved >= NEARLY_ALL:
            text = (
                f"{solved:.0%} of {subject} are all solved: little can be learned from them, and a "
                "group with equal rewards is not sent (ensure_scores_are_not_same). Ways out: "
                "complexity_mode: curriculum, which raises the level of solved tasks (set already, "
                "it needs some groups of each); a higher difficulty with complexity_mode: fixed; "
                "harder tasks."
            )
        if text:
            logger.warning("%s", text)

    def warn_of_useless_rows(self) -> None:
        """Log that no row of the last half minute or more teaches anything, once."""
        finding = self._useless.finding()
        if finding:
            logger.warning("%s", finding)

    def figures(self) -> list[Figure]:
        """Return the figures of all groups, the worst first."""
        return self._figures.all_figures()

    def line(self) -> str:
        """Describe the groups since the last line; empty before the first group or wait."""
        now = self._clock()
        total = self._statistics.total
        seconds = max(now - self._last_time, 1e-9)
        since = total.since(self._last)
        self._last = total
        self._last_time = now
        status = {status: since[f"status/{status.value}"] for status in Status}
        rollouts = status[Status.SOLVED].count
        scored = rollouts - status[Status.UNSCORED].total
        mixed = since["groups/mixed"]
        shares = (
            ("solved", status[Status.SOLVED].total, scored),
            ("with signal", mixed.total, mixed.count),
            ("truncated", since["truncated"].total, rollouts),
            ("no answer", status[Status.NO_ANSWER].total, scored),
        )
        parts = [
            f"{total['groups'].count} groups, {since['groups'].count / seconds:.1f}/s"
        ]
        parts += [
            f"{share / count:.0%} {name}" for name, share, count in shares if count
        ]
        if since["level"].count:
            parts.append(f"mean level {since['level'].value:.1f}")
        if self._groups >= GROUPS:  # of fewer, thirds say little
            parts += [
                f"lately {describe(row)}"
                for row in self.figures()
                if row.measure == SOLVED
            ]
        reason = self.reason()
        return (
            ", ".join(filter(None, [*parts, reason]))
            if total["groups"].count or reason
            else ""
        )

    def reason(self) -> str:
        """Say what the run waits for, and how groups ended if none was delivered for a minute."""
        counts = Counter(self._statistics.reported_counts())
        delivered = counts["groups/sent"] + counts["groups/written"]
        now = self._clock()
        if delivered != self._delivered or not counts["groups/started"]:
            self._delivered = delivered
            self._delivered_at = now
            self._before = self._statistics.counts.copy()  # has no groups in progress
        reasons = [*filter(None, self._waiting())]
        seconds = now - self._delivered_at
        if seconds >= LOG_INTERVAL:
            new = counts - self._before
            ends = [outcome.value for outcome in (*COLLECTED, *NOT_COLLECTED)]
            ends += ["generating", "in_flight"]
            groups = ", ".join(
                f"{new[f'groups/{e}']} {e}" for e in ends if new[f"groups/{e}"]
            )
            groups = groups.replace("filtered", "filtered (equal scores)").replace(
                "_", " "
            )
            if groups or not reasons:
                groups = groups or "none in progress"
                reasons.append(f"no group delivered for {seconds:.0f} s: {groups}")
        return "; ".join(reasons)

    @asynccontextmanager
    async def logging_every(self, pauses: LogPauses) -> AsyncIterator[None]:
        """Log lines during the body, starting with the first group or wait.

        They come after the first of the pauses, and after longer ones while no group is finished.
        """

        async def log_forever() -> None:
            reminders = Reminders(pauses)
            groups = self._groups
            while True:
                await asyncio.sleep(pauses.first)
                self.warn_of_useless_rows()
                if self._groups != groups:
                    groups = self._groups
                    reminders = Reminders(pauses)
                if not reminders.is_due():
                    continue
                line = self.line()
                if line:
                    progress_logger.info("%s", line)
                else:  # nothing to wait for yet
                    reminders = Reminders(pauses)

        task = asyncio.ensure_future(log_forever())
        try:
            yield
        finally:
            task.cancel()
