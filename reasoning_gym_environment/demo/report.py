"""Output of the demo: a progress line while it runs, and a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ..records import FORMAT_FAILURES, Signal, Status
from ..rollouts.metrics import Mean, Means, signal_line

_PLAIN_SECONDS = 3.0


class Progress:
    """A line that is rewritten on a terminal, and repeated every few seconds elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._next = 0.0

    def show(self, line: str) -> None:
        now = time.monotonic()
        if self._terminal:
            self._stream.write(f"\r{line}\x1b[K")
        elif now >= self._next:
            self._stream.write(f"{line}\n")
            self._next = now + _PLAIN_SECONDS
        self._stream.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if self._terminal:
            self._stream.write("\n")


_BAR_WIDTH = 20
_MOST_MOVED = 6


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The results of one demo.

    Attributes:
        seconds: of serving, without the start.
        means: over the whole run, named as in `rollouts.metrics`.
        counts: of the environment's events.
        curriculum: the statistics of the curriculum at the end.
        batches, pulled: batches and groups that the trainer received.
        dumps: the files that were written.
    """

    seconds: float
    means: Means
    counts: Mapping[str, int]
    curriculum: Mapping[str, Any]
    batches: int
    pulled: int
    dumps: tuple[Path, ...]

    @property
    def succeeded(self) -> bool:
        """Whether groups were collected, sent and received by the trainer."""
        return all((self.counts["groups/collected"], self.counts["groups/sent"], self.pulled))


def progress_line(seconds: float, means: Means, counts: Mapping[str, int]) -> str:
    collected = counts["groups/collected"]
    return (
        f"{seconds:4.0f} s  {collected:5d} groups collected  "
        f"{counts['groups/accepted']:5d} accepted  {counts['groups/sent']:5d} sent  "
        f"{_percent(means['solved'])} solved  "
        f"{collected / max(seconds, 1.0):5.1f} groups/s"
    )


def render(report: DemoReport, log: Path) -> str:
    """Return the summary as text."""
    parts = (_flow(report, log), _outcomes(report), _signal(report), _categories(report))
    return "\n".join(line for part in parts for line in ("", *part))


def _flow(report: DemoReport, log: Path) -> Iterator[str]:
    counts = report.counts
    yield f"{report.seconds:.0f} seconds of serving"
    yield f"  groups collected  {counts['groups/collected']:6d}"
    yield f"  groups accepted   {counts['groups/accepted']:6d}  with unequal scores"
    yield f"  groups sent       {counts['groups/sent']:6d}  to the API server"
    yield f"  groups pulled     {report.pulled:6d}  by the trainer, in {report.batches} batches"
    folders = sorted({str(path.parent.resolve()) for path in report.dumps})
    yield f"  dump files        {len(report.dumps):6d}  in {', '.join(folders) or 'no folder'}"
    yield f"  log                       {log.resolve()}"


def _outcomes(report: DemoReport) -> Iterator[str]:
    means = report.means
    yield f"Of {means['truncated'].count} rollouts"
    for status in Status:
        if share := _share(means, status):
            yield f"  {status.value.replace('_', ' '):17} {share:6.1%}"
    failures = sum(_share(means, status) for status in FORMAT_FAILURES)
    yield f"  format failures   {failures:6.1%}  no answer, or several"
    yield f"  truncated         {_percent(means['truncated'])}"


def _signal(report: DemoReport) -> Iterator[str]:
    """Yield the share of groups with signal, and the tasks that the curriculum moved farthest."""
    stats = report.curriculum
    yield f"Of {signal_line(report.means)}"
    yield (
        f"Curriculum: {stats['tasks_with_adjustments']} of {stats['total_tasks_tracked']} tasks "
        f"moved, {report.counts['curriculum/moves']} times; mean difficulty "
        f"{stats['average_complexity']:.2f} (from 0, easiest, to 1)"
    )
    details = stats["task_details"].items()
    for task, at in sorted(details, key=lambda one: -abs(_distance(one[1])))[:_MOST_MOVED]:
        yield (
            f"  {task:26} from level {(at['height'] - 1) / 2:4.1f} to {at['level']:4.1f} "
            f"of {at['height'] - 1}, in {at['groups']} groups"
        )


def _distance(at: Mapping[str, float]) -> float:
    """Return the distance of a task from the middle of its ladder, where it began."""
    return at["difficulty"] - 0.5 if at["height"] > 1 else 0.0


def _categories(report: DemoReport) -> Iterator[str]:
    means = report.means
    yield f"Solved              {_percent(means['solved'])}"
    for name, count in means.counts().items():
        kind, _, rest = name.partition("/")
        category, _, what = rest.partition("/")
        if (kind, what) == ("category", "solved"):
            mean = means[name]
            bar = "#" * round(mean.value * _BAR_WIDTH)
            signal = _percent(means[f"category/{category}/groups/{Signal.MIXED.value}"])
            yield (
                f"  {category:17} {_percent(mean)}  {bar:{_BAR_WIDTH}}  of {count} rollouts, "
                f"{signal.strip()} of groups with signal"
            )


def _share(means: Means, status: Status) -> float:
    mean = means[f"status/{status.value}"]
    return mean.value if mean.count else 0.0


def _percent(mean: Mean) -> str:
    return f"{mean.value:6.1%}" if mean.count else "     -"
