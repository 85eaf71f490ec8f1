"""Progress of a run: a log line every few seconds, and a warning if nothing can be learned."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence

from ..records import GroupResult, Status
from ..util.text import escape_control_characters
from .metrics import Means, Statistics

logger = logging.getLogger(__name__)
line_logger = logging.getLogger(f"{__name__}.line")
"""Logs the progress line; a terminal shows its last message below all others."""

GROUPS = 50
"""The warning looks at this many groups."""
NEARLY_ALL = 0.95
_EXAMPLES = 2
_EXAMPLE_LENGTH = 160

_NO_ANSWER = """\
{unanswered:.0%} of the completions of the first {groups} groups have no answer between <answer> \
and </answer> ({truncated:.0%} are truncated): nothing can be learned from them. The model wrote:
{examples}
Ways out: train it on demonstrations first (`export --format sft` makes them from rollouts of a \
model that answers); another system_prompt; another chat template, if this one opens a thought \
that the prompt asks for again (docs/inference.md); answer_tolerance, if the tags hold the answer \
in another form."""

_TRUNCATED = """\
{truncated:.0%} of the completions of the first {groups} groups are truncated at max_token_length: \
nothing can be learned from them. The model wrote:
{examples}
Ways out: a larger max_token_length, on the server too; a model that thinks less; for a model \
that thinks by itself, system_prompt: direct."""


def learning_warning(unanswered: float, truncated: float, examples: Sequence[str]) -> str | None:
    """Explain why nothing can be learned and what to do; None if something can.

    Args:
        unanswered, truncated: shares of the completions, in [0, 1].
        examples: texts without an answer.
    """
    if max(unanswered, truncated) < NEARLY_ALL:
        return None
    return (_TRUNCATED if truncated >= NEARLY_ALL else _NO_ANSWER).format(
        unanswered=unanswered,
        truncated=truncated,
        groups=GROUPS,
        examples="\n".join(f"  {shorten(text)}" for text in examples),
    )


def shorten(text: str) -> str:
    """Return the beginning and the end of a text on one line that is safe to print.

    Example:
        >>> shorten("The answer\\nis 4.")
        'The answer is 4.'
    """
    line = escape_control_characters(" ".join(text.split()))
    half = _EXAMPLE_LENGTH // 2 - 1
    return line if len(line) <= _EXAMPLE_LENGTH else f"{line[:half]} … {line[-half + 1 :]}"


class ProgressReporter:
    """Reports on the groups of a run in the log.

    Args:
        statistics: counts every group before `group_finished` is called.
        clock: gives the time in seconds.
    """

    def __init__(self, statistics: Statistics, clock: Callable[[], float] = time.monotonic) -> None:
        self._statistics = statistics
        self._clock = clock
        self._examples: list[str] = []
        self._last, self._last_time = statistics.total, clock()

    def group_finished(self, group: GroupResult) -> None:
        """Keep an example without an answer; warn after 50 groups if nothing can be learned."""
        groups = self._statistics.counts["groups/collected"]
        if groups > GROUPS:
            return
        unanswered = (a for a in group.attempts if a.verdict.status is Status.NO_ANSWER)
        example = next(unanswered, None)
        if example is not None and len(self._examples) < _EXAMPLES:
            self._examples.append(example.completion.text)
        if groups < GROUPS:
            return
        means = self._statistics.total
        no_answer = means[f"status/{Status.NO_ANSWER.value}"].value
        if text := learning_warning(no_answer, means["truncated"].value, self._examples):
            logger.warning("%s", text)

    def line(self) -> str:
        """Describe the groups since the last line."""
        now, total = self._clock(), self._statistics.total
        seconds, since = max(now - self._last_time, 1e-9), total.since(self._last)
        self._last, self._last_time = total, now
        rate = since["groups"].count / seconds
        parts = [f"{total['groups'].count} groups, {rate:.1f}/s", *_shares(since)]
        if since["level"].count:
            parts.append(f"mean level {since['level'].value:.1f}")
        return ", ".join(parts)

    async def log_forever(self, seconds: float) -> None:
        """Log a line at this interval, starting with the first group."""
        while True:
            await asyncio.sleep(seconds)
            line = self.line()
            if self._last["groups"].count:
                line_logger.info("%s", line)

    @contextlib.asynccontextmanager
    async def logging_every(self, seconds: float) -> AsyncIterator[None]:
        """Log lines at this interval while the body runs."""
        task = asyncio.ensure_future(self.log_forever(seconds))
        try:
            yield
        finally:
            task.cancel()


def _shares(means: Means) -> list[str]:
    """Format the shares of rollouts and groups; unscored rollouts count for truncation alone."""
    status = {status: means[f"status/{status.value}"] for status in Status}
    rollouts = status[Status.SOLVED].count
    scored = rollouts - status[Status.UNSCORED].total
    mixed = means["groups/mixed"]
    shares = (
        ("solved", status[Status.SOLVED].total, scored),
        ("with signal", mixed.total, mixed.count),
        ("truncated", means["truncated"].total, rollouts),
        ("no answer", status[Status.NO_ANSWER].total, scored),
    )
    return [f"{total / count:.0%} {name}" for name, total, count in shares if count]
