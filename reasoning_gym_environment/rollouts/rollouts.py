"""One group of rollouts: requested, scored and saved, or lost and retried."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from ..inference.client import InferenceClient
from ..inference.dialects import SamplingParams
from ..inference.errors import InferenceError
from ..records import Completion, GroupResult, Problem, Recipe
from ..scoring.grading import ScoringSettings, Verifier, grade
from ..storage.dumps import DumpKind, DumpWriter, dump_kind
from ..storage.rows import StoredGroup
from ..util.outages import LOG_INTERVAL

logger = logging.getLogger(__name__)

MAX_RETRIES = 3
"""Retries of one problem."""

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_POLL_SECONDS = 0.5


class GroupObserver(Protocol):
    """A part of a run that learns from finished training groups."""

    def group_finished(self, group: GroupResult) -> None:
        """Take note of a scored group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSettings:
    """Which training groups are saved to disk.

    Attributes:
        dumped_kinds: the kinds of groups to save.
        rollout_save_score_threshold: a group with a reward above it is successful.
    """

    dumped_kinds: frozenset[DumpKind]
    rollout_save_score_threshold: float


class Rollouts:
    """Turns problems into scored groups.

    Args:
        dumps: the writer of training groups.
    """

    def __init__(
        self,
        client: InferenceClient,
        verifier: Verifier,
        dumps: DumpWriter,
        *,
        settings: RolloutSettings,
        scoring: ScoringSettings,
    ) -> None:
        self._client = client
        self._verifier = verifier
        self._dumps = dumps
        self._settings = settings
        self._scoring = scoring
        self._saved = 0

    async def sample(
        self, problem: Problem, *, n: int, length_limit: int, sampling: SamplingParams
    ) -> GroupResult:
        """Return a scored group of `n` completions.

        Args:
            length_limit: tokens of prompt and completion.

        Raises:
            InferenceError: the servers returned no completions.
        """
        completions = await self._client.sample(
            problem.question, n=n, length_limit=length_limit, sampling=sampling
        )
        return await self.score(problem, completions)

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem, in their order."""
        return await grade(problem, completions, self._verifier, self._scoring)

    def waiting(self) -> str:
        """Return what the requests wait for; empty if nothing holds them back."""
        return self._client.failover.waiting

    async def save(self, group: GroupResult, identity: Mapping[str, Any]) -> None:
        """Dump a training group if its kind is dumped; on disk when this returns.

        Args:
            identity: the run's part of the row.
        """
        self._saved += 1
        kind = dump_kind(group.rewards, threshold=self._settings.rollout_save_score_threshold)
        if kind in self._settings.dumped_kinds:
            row = self.row(group, {**identity, "number": self._saved})
            await self._dumps.write(kind, row.to_json())

    def row(self, group: GroupResult, identity: Mapping[str, Any]) -> StoredGroup:
        """Return the group as a row of dumps and evaluation samples, with the time in UTC."""
        prompt = self._client.prompt(group.problem.question)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        run = {**identity, "scoring": self._scoring.to_json(), "time": now}
        return StoredGroup.from_result(group, prompt.messages, run)


class RetryBudget:
    """Number of retries left for each problem whose group was lost.

    Example:
        >>> budget, recipe = RetryBudget(), Recipe(task="gcd", seed=2)
        >>> [budget.may_retry(recipe) for _ in range(4)]
        [True, True, True, False]
    """

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, int]] = Counter()

    def group_finished(self, group: GroupResult) -> None:
        self._forget(group.problem.recipe)

    def may_retry(self, recipe: Recipe) -> bool:
        """Count a lost group; return whether to retry its problem."""
        self._lost[recipe.task, recipe.seed] += 1
        if self._lost[recipe.task, recipe.seed] <= MAX_RETRIES:
            return True
        self._forget(recipe)
        return False

    def _forget(self, recipe: Recipe) -> None:
        self._lost.pop((recipe.task, recipe.seed), None)


class FailureBackoff:
    """Failure backoff with rate-limited logging.

    Attributes:
        failures: groups lost since the last success.
        permanent: those whose error is not transient.
        pause: seconds between two requests while inference fails, else 0.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = 0
        self.permanent = 0
        self.pause = 0.0
        self._clock = clock
        self._since = 0.0
        self._increased = 0.0
        self._next = 0.0
        self._logged_at = -math.inf
        self._logged = False

    async def wait(self) -> None:
        """Wait until a group may be requested: while inference fails, one at a time."""
        while self.pause and self._clock() < self._next:
            await asyncio.sleep(_POLL_SECONDS)
        self._next = self._clock() + self.pause  # the others wait for the result of this one

    def record_failure(self, task: str, error: InferenceError) -> None:
        """Count a lost group; the pause doubles once for all groups that were in flight."""
        now = self._clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        self.permanent += not error.is_transient
        if not self.pause or now - self._increased >= self.pause:
            self._increased = now
            self.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self.pause))
        self._next = now + self.pause
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at, self._logged = now, True
            logger.warning("Lost a group of %s, %d in a row: %s", task, self.failures, error)

    def group_finished(self, group: GroupResult) -> None:
        """Reset after a success, which is logged if a failure was."""
        if self._logged:
            seconds = self._clock() - self._since
            groups = "1 group" if self.failures == 1 else f"{self.failures} groups"
            logger.warning("Inference is back after %.0f s, %s lost", seconds, groups)
        self.failures = self.permanent = 0
        self.pause = 0.0
        self._logged = False
